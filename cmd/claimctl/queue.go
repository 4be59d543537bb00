package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/pausing"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// queueName is one queue in a list.
type queueName struct {
	Queue string `json:"queue" col:"QUEUE"`
}

// queueStats counts the items of a queue.
type queueStats struct {
	Queue       string    `json:"queue" col:"QUEUE"`
	Ready       int       `json:"ready" col:"READY,0"`
	Later       int       `json:"later" col:"LATER,0"`
	Behind      int       `json:"behind" col:"BEHIND"`
	Taken       int       `json:"taken" col:"TAKEN,0"`
	Dead        int       `json:"dead" col:"DEAD,0"`
	OldestReady time.Time `json:"oldestReady,omitzero" col:"OLDEST READY"`
	Paused      string    `json:"paused,omitempty" col:"PAUSED,short"`
	Resumes     time.Time `json:"pausedUntil,omitzero"` // by itself
}

func viewStats(name string, s queue.Stats) queueStats {
	v := queueStats{
		Queue: name, Ready: s.Ready, Later: s.Later, Behind: s.Behind, Taken: s.Taken, Dead: s.Dead,
		OldestReady: s.OldestReady.UTC(),
	}
	if !s.Paused.At.IsZero() {
		v.Paused, v.Resumes = pausing.Text(s.Paused.By, s.Paused.At, s.Paused.Until, s.Paused.Why), s.Paused.Until.UTC()
	}
	return v
}

// inQueue calls f with a queue that exists, as it was configured.
func inQueue(ctx context.Context, claims *etcdclaims.Client, name string, f func(q *queue.Queue) error) error {
	q, err := queue.Open(ctx, claims, name)
	switch {
	case errors.Is(err, etcdclaims.ErrInvalidKey):
		return &exitError{exitUsage, err}
	case errors.Is(err, queue.ErrNotFound):
		return fmt.Errorf("%w; claimctl queue ls --all lists the queues", err)
	case err != nil:
		return err
	}
	err = f(q)
	_ = q.Close(ctx) // it has no items
	return err
}

// completeQueues completes the names of queues.
func (a *app) completeQueues(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completeFrom(cmd, args, typed, allQueues)
}

// queueSpec is a spec without its run, and what it does with a queue.
func (a *app) queueSpec(s spec, f func(ctx context.Context, q *queue.Queue, args []string) error) spec {
	s.least, s.most, s.names = s.least+1, s.most+1, a.completeQueues
	s.run = func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
		return inQueue(ctx, claims, args[0], func(q *queue.Queue) error { return f(ctx, q, args[1:]) })
	}
	return s
}

func (a *app) queueCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "queue", GroupID: groupRepair, Short: "Show and repair queues and dead letters"}
	list := a.queueListCommand()
	list.Args = noQueue
	cmd.AddCommand(
		list, a.queueStatsCommand(),
		a.command(a.queueSpec(spec{use: "show QUEUE ID", short: "Show an item, with its payload and attempts", least: 1, most: 1},
			func(ctx context.Context, q *queue.Queue, args []string) error {
				i, err := q.Look(ctx, args[0])
				if err != nil {
					return err
				}
				v := viewItem(i)
				return printOne(a, v, v.text)
			})),
		a.command(a.queueSpec(spec{use: "waiting QUEUE", table: waitingColumns, short: "List the items that wait, in their order"},
			func(ctx context.Context, q *queue.Queue, _ []string) error {
				return printList(a, waitingColumns, mapped(q.Waiting(ctx), viewItem))
			})),
		a.command(a.queueSpec(spec{use: "taken QUEUE", table: takenColumns, short: "List the items that workers have"},
			func(ctx context.Context, q *queue.Queue, _ []string) error {
				return printList(a, takenColumns, mapped(q.Taken(ctx), viewItem))
			})),
		a.pauseQueueCommand(),
		a.command(a.queueSpec(spec{use: "resume QUEUE", short: "End a pause"},
			func(ctx context.Context, q *queue.Queue, _ []string) error {
				return a.done(q.Resume(ctx), doneView{Done: "resumed", Queue: q.Name()}, "resumed %q", q.Name())
			})),
		a.cancelItemCommand(),
		a.deadCommand())
	return cmd
}

func (a *app) cancelItemCommand() *cobra.Command {
	taken := false
	return a.command(a.queueSpec(spec{
		use: "cancel QUEUE ID", short: "Remove an item that no worker has, or any item", least: 1, most: 1,
		flags: func(flags *pflag.FlagSet) {
			flags.BoolVar(&taken, "also-taken", false, "also if a worker has it: the context of its handler ends")
		},
	}, func(ctx context.Context, q *queue.Queue, args []string) error {
		var opts []queue.CancelOption
		if taken {
			opts = append(opts, queue.AlsoTaken(a.reason))
		}
		return a.done(q.Cancel(ctx, args[0], opts...), doneView{Done: "removed", Queue: q.Name(), Item: args[0]}, "removed %q", args[0])
	}))
}

func (a *app) pauseQueueCommand() *cobra.Command {
	var length pauseLength
	return a.command(a.queueSpec(spec{
		use: "pause QUEUE", short: "Stop all claiming until resume, or for some time",
		flags: length.flag,
		check: func([]string) error {
			why := length.wrong()
			return usageIf(why != "", "%s", why)
		},
	}, func(ctx context.Context, q *queue.Queue, _ []string) error {
		var opts []queue.PauseOption
		if length.isSet() {
			opts = append(opts, queue.For(length.d))
		}
		done := doneView{Done: "paused", Queue: q.Name(), Reason: a.reason}
		err := q.Pause(ctx, a.reason, opts...)
		if err == nil && length.isSet() {
			st, _ := q.Stats(ctx) // the queue is paused, also if its end cannot be read
			done.Until = st.Paused.Until.UTC()
		}
		return a.done(err, done, "paused %q%s", q.Name(), untilText(done.Until))
	}))
}

func (a *app) queueListCommand() *cobra.Command {
	var idle bool
	return a.command(spec{
		use: "ls", table: "QUEUE", short: "List the queues that have work, or had until a minute ago",
		long: `List the queues that have items which wait or are taken, or had some until a minute
ago. A queue that has only dead letters is not among them: see --all, and stats. The
items of one queue are listed by waiting, taken and dead ls.`,
		flags: func(flags *pflag.FlagSet) {
			flags.BoolVar(&idle, "all", false, "also those that are idle, or have only dead letters")
		},
		run: func(ctx context.Context, claims *etcdclaims.Client, _ []string) error {
			names := queue.Active(ctx, claims)
			if idle {
				names = allQueues(ctx, claims)
			}
			return printList(a, "QUEUE", mapped(names, func(s string) queueName { return queueName{s} }))
		},
	})
}

// noQueue refuses the name of a queue, whose items are listed by other commands.
func noQueue(_ *cobra.Command, args []string) error {
	return usageIf(len(args) > 0, "queue ls: lists queues; the items of %q are listed by queue waiting, queue taken and queue dead ls",
		append(args, "")[0])
}

// allQueues yields the names of all queues, sorted. One into which only Queue.Op has enqueued is
// among those with work alone.
func allQueues(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
	known, _, err := explain.First(queue.Names(ctx, claims), math.MaxInt)
	active, _, err2 := explain.First(queue.Active(ctx, claims), math.MaxInt)
	if err = cmp.Or(err, err2); err != nil {
		return sequence[string](nil, err)
	}
	names := append(known, active...)
	slices.Sort(names)
	return sequence(slices.Compact(names))
}

const statsColumns = "QUEUE,READY,LATER,BEHIND,TAKEN,DEAD,PAUSED,OLDEST READY"

func (a *app) queueStatsCommand() *cobra.Command {
	return a.command(spec{
		use: "stats [QUEUE]", table: statsColumns, names: a.completeQueues, most: 1, short: "Count the items of a queue, or of all queues",
		run: func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
			if len(args) == 0 {
				return a.allStats(ctx, claims)
			}
			return inQueue(ctx, claims, args[0], func(q *queue.Queue) error {
				s, err := q.Stats(ctx)
				if err != nil {
					return err
				}
				v := viewStats(q.Name(), s)
				if a.forPeople() {
					return printList(a, statsColumns, sequence([]queueStats{v}))
				}
				return printOne(a, v, nil)
			})
		},
	})
}

// allStats prints the counts of all queues.
func (a *app) allStats(ctx context.Context, claims *etcdclaims.Client) error {
	return printList(a, statsColumns, func(yield func(queueStats, error) bool) {
		for name, err := range allQueues(ctx, claims) {
			var q *queue.Queue
			var s queue.Stats
			if err == nil {
				q, err = queue.New(claims, queue.Config{Name: name}) // which counts whatever its order is
			}
			if err == nil {
				s, err = q.Stats(ctx)
				_ = q.Close(ctx) // it has no items
			}
			if !yield(viewStats(name, s), err) || ctx.Err() != nil { // it ends the others as well
				return
			}
		}
	})
}

func (a *app) deadCommand() *cobra.Command {
	var timeout, older time.Duration
	limit := func(flags *pflag.FlagSet) {
		flags.DurationVar(&timeout, "timeout", time.Minute, "how long the items may take, once the queue was read in --command-timeout")
	}
	// many calls f with the time that many items may take: those that were changed before an
	// error are counted in it.
	many := func(ctx context.Context, verb string, f func(ctx context.Context) (int, error)) (int, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		n, err := f(ctx)
		if err != nil {
			return n, fmt.Errorf("%w; %s before: %d", err, verb, n)
		}
		return n, nil
	}
	dead := &cobra.Command{Use: "dead", Short: "Show and repair dead letters"}
	dead.AddCommand(
		a.command(a.queueSpec(spec{use: "ls QUEUE", table: deadColumns, short: "List the dead letters, oldest first"},
			func(ctx context.Context, q *queue.Queue, _ []string) error {
				return printList(a, deadColumns, mapped(q.DeadLetters(ctx), viewItem))
			})),
		a.command(a.queueSpec(spec{use: "redrive QUEUE ID", short: "Make a dead letter visible again", least: 1, most: 1},
			func(ctx context.Context, q *queue.Queue, args []string) error {
				return a.done(q.Redrive(ctx, args[0]), doneView{Done: "redriven", Queue: q.Name(), Item: args[0]}, "redrove %q", args[0])
			})),
		a.command(a.queueSpec(
			spec{use: "redrive-all QUEUE", short: "Make all dead letters visible again", flags: limit},
			func(ctx context.Context, q *queue.Queue, _ []string) error {
				if a.dry {
					return printList(a, deadColumns, mapped(q.DeadLetters(ctx), viewItem))
				}
				n, err := many(ctx, "redriven", q.RedriveAll)
				return a.done(err, doneView{Done: "redriven", Queue: q.Name(), Items: &n},
					"redrove %s", errtext.Count(n, "dead letter", "dead letters"))
			})),
		a.command(a.queueSpec(spec{
			use: "purge QUEUE", short: "Remove dead letters for good",
			flags: func(flags *pflag.FlagSet) {
				limit(flags)
				flags.DurationVar(&older, "older-than", 0, "only those that died before this time, by this host's clock")
			},
			check: func([]string) error {
				return usageIf(older < 0, "queue dead purge: --older-than %v is negative", older)
			},
		}, func(ctx context.Context, q *queue.Queue, _ []string) error {
			before := time.Now().Add(-older)
			if a.dry {
				all, _, err := explain.First(q.DeadLetters(ctx), math.MaxInt)
				all = slices.DeleteFunc(all, func(i queue.Info) bool { return !i.Since.Before(before) })
				return printList(a, deadColumns, mapped(sequence(all, err), viewItem))
			}
			n, err := many(ctx, "removed", func(ctx context.Context) (int, error) { return q.Purge(ctx, before) })
			return a.done(err, doneView{Done: "removed", Queue: q.Name(), Items: &n},
				"removed %s", errtext.Count(n, "dead letter", "dead letters"))
		})))
	return dead
}

// itemView is an item of a queue. The topic, the payload and when an item was enqueued are not
// read with a list.
type itemView struct {
	ID       string          `json:"id" col:"ID"`
	Where    string          `json:"where" col:"WHERE"`
	Topic    string          `json:"topic,omitempty" col:"TOPIC"`
	Key      string          `json:"partitionKey,omitempty" col:"PARTITION KEY"`
	Priority *int            `json:"priority,omitempty" col:"PRIORITY"` // not known of a completed item
	Attempts int             `json:"attempts" col:"ATTEMPTS"`
	Enqueued time.Time       `json:"enqueued,omitzero" col:"ENQUEUED"`
	Vesting  time.Time       `json:"vesting,omitzero" col:"VESTS"`
	Since    time.Time       `json:"since,omitzero" col:"SINCE"`
	Owner    string          `json:"owner,omitempty" col:"OWNER"`
	Fence    int64           `json:"fence,string" col:"FENCE"`
	Why      string          `json:"why,omitempty" col:"WHY,short"`
	Payload  []byte          `json:"payload,omitempty" col:"PAYLOAD"` // base64
	Result   []byte          `json:"result,omitempty" col:"RESULT"`   // base64
	History  []queue.Attempt `json:"history,omitempty"`

	LastError string `json:"-" col:"LAST ERROR,short"` // of the last attempt
}

const (
	waitingColumns = "ID,WHERE,ATTEMPTS,VESTS,PRIORITY,PARTITION KEY,LAST ERROR"
	takenColumns   = "ID,OWNER,SINCE,ATTEMPTS,PRIORITY,PARTITION KEY,FENCE"
	deadColumns    = "ID,ATTEMPTS,WHY,SINCE,PRIORITY"
)

func viewItem(i queue.Info) itemView {
	v := itemView{
		ID: i.ID, Where: string(i.Where), Topic: i.Topic, Key: i.PartitionKey, Payload: i.Payload, Attempts: i.Attempts,
		Enqueued: i.Enqueued.UTC(), Vesting: i.Vesting.UTC(), Since: i.Since.UTC(),
		Owner: i.Owner, Fence: i.Fence, Why: i.Why, Result: i.Result, History: i.History,
	}
	if i.Where != queue.Completed {
		v.Priority = &i.Priority
	}
	if n := len(v.History); n > 0 {
		v.LastError = v.History[n-1].Error
	}
	return v
}

func (v itemView) text(w io.Writer) {
	shown := v
	shown.LastError = ""    // History has it
	if len(v.History) > 0 { // which has the rest of a long error
		shown.Why = firstLine(v.Why)
	}
	details(w, shown)
	for _, h := range v.History {
		_, _ = fmt.Fprintf(w, "%10d. %s %s by %s: ", h.Number, explain.Stamp(h.At), h.Ending, clean(h.Owner))
		paragraph(w, 12, h.Error)
	}
}
