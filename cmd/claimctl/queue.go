package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/spf13/cobra"
)

// queueName is one queue in a list.
type queueName struct {
	Queue string `json:"queue"`
}

func (v queueName) name() string    { return v.Queue }
func (v queueName) cells() []string { return []string{v.Queue} }

// queueStats counts the items of a queue.
type queueStats struct {
	Queue       string     `json:"queue"`
	Ready       int        `json:"ready"`
	Later       int        `json:"later"`
	Taken       int        `json:"taken"`
	Dead        int        `json:"dead"`
	OldestReady *time.Time `json:"oldestReady,omitempty"`
	Paused      string     `json:"paused,omitempty"`
}

func (v queueStats) name() string { return v.Queue }

var statsHeader = []string{"QUEUE", "READY", "LATER", "TAKEN", "DEAD", "OLDEST READY", "PAUSED"}

func (v queueStats) cells() []string {
	return []string{v.Queue, fmt.Sprint(v.Ready), fmt.Sprint(v.Later), fmt.Sprint(v.Taken), fmt.Sprint(v.Dead), at(v.OldestReady), v.Paused}
}

func viewStats(name string, s queue.Stats) queueStats {
	v := queueStats{Queue: name, Ready: s.Ready, Later: s.Later, Taken: s.Taken, Dead: s.Dead, OldestReady: moment(s.OldestReady)}
	if !s.Paused.At.IsZero() {
		v.Paused = doctor.Paused(s.Paused.By, s.Paused.At, s.Paused.Why)
	}
	return v
}

// queueOf calls f with a queue that exists, as it was configured.
func (a *app) queueOf(cmd *cobra.Command, name string, f func(ctx context.Context, q *queue.Queue) error) error {
	return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
		return a.inQueue(ctx, claims, name, func(q *queue.Queue) error { return f(ctx, q) })
	})
}

func (a *app) inQueue(ctx context.Context, claims *etcdclaims.Client, name string, f func(q *queue.Queue) error) error {
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

// queueVerb makes a command about one queue.
type queueVerb func(use, short string, args int, f func(ctx context.Context, q *queue.Queue, args []string) error) *cobra.Command

func (a *app) queueCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "queue", GroupID: groupRepair, Short: "Show and repair queues and dead letters"}
	var idle bool
	list := &cobra.Command{
		Use: "ls", Args: noQueue, Short: "List the queues that have work, or had until a minute ago",
		Long: `List the queues that have items which wait or are taken, or had some until a minute
ago. A queue that has only dead letters is not among them: see --all, and stats. The
items of one queue are listed by waiting, taken and dead ls.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
				names := queue.Active(ctx, claims)
				if idle {
					all, err := allQueues(ctx, claims)
					if err != nil {
						return err
					}
					names = sequence(all)
				}
				return printList(a, []string{"QUEUE"}, mapped(names, func(s string) queueName { return queueName{s} }))
			})
		},
	}
	list.Flags().BoolVar(&idle, "all", false, "also those that are idle, or have only dead letters")
	verb := func(use, short string, args int, f func(ctx context.Context, q *queue.Queue, args []string) error) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Args: cobra.ExactArgs(args + 1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.queueOf(cmd, args[0], func(ctx context.Context, q *queue.Queue) error { return f(ctx, q, args[1:]) })
			},
		}
	}
	show := verb("show QUEUE ID", "Show an item, with its payload and attempts", 1, func(ctx context.Context, q *queue.Queue, args []string) error {
		i, err := q.Look(ctx, args[0])
		if err != nil {
			return err
		}
		v := viewItem(i)
		return printOne(a, v, v.text)
	})
	waiting := verb("waiting QUEUE", "List the items that wait, in their order", 0, func(ctx context.Context, q *queue.Queue, _ []string) error {
		return printList(a, waitingHeader, mapped(q.Waiting(ctx), func(i queue.Info) waitingItem { return waitingItem{viewItem(i)} }))
	})
	taken := verb("taken QUEUE", "List the items that workers have", 0, func(ctx context.Context, q *queue.Queue, _ []string) error {
		return printList(a, takenHeader, mapped(q.Taken(ctx), func(i queue.Info) takenItem { return takenItem{viewItem(i)} }))
	})
	var why string
	pause := verb("pause QUEUE", "Stop all claiming until resume", 0, func(ctx context.Context, q *queue.Queue, _ []string) error {
		return a.done(q.Pause(ctx, why), doneView{Done: "paused", Queue: q.Name(), Reason: why}, "paused %q", q.Name())
	})
	addReason(pause, &why, "note that is kept with the pause")
	resume := verb("resume QUEUE", "End a pause", 0, func(ctx context.Context, q *queue.Queue, _ []string) error {
		return a.done(q.Resume(ctx), doneView{Done: "resumed", Queue: q.Name()}, "resumed %q", q.Name())
	})
	cancel := verb("cancel QUEUE ID", "Remove an item that no worker has", 1, func(ctx context.Context, q *queue.Queue, args []string) error {
		return a.done(q.Cancel(ctx, args[0]), doneView{Done: "removed", Queue: q.Name(), Item: args[0]}, "removed %q", args[0])
	})
	cmd.AddCommand(list, a.queueStatsCommand(), show, waiting, taken, pause, resume, cancel, a.deadCommand(verb))
	return cmd
}

// noQueue refuses the name of a queue, whose items are listed by other commands.
func noQueue(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("queue ls: lists queues; the items of %q are listed by queue waiting, queue taken and queue dead ls", args[0])
}

// allQueues returns the names of all queues. One into which only Queue.Op has enqueued is
// among those with work alone.
func allQueues(ctx context.Context, claims *etcdclaims.Client) ([]string, error) {
	found := map[string]bool{}
	for _, names := range []iter.Seq2[string, error]{queue.Names(ctx, claims), queue.Active(ctx, claims)} {
		for name, err := range names {
			if err != nil {
				return nil, err
			}
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func (a *app) queueStatsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "stats [QUEUE]", Args: cobra.MaximumNArgs(1), Short: "Count the items of a queue, or of all queues",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
				if len(args) == 0 {
					return a.allStats(ctx, claims)
				}
				return a.inQueue(ctx, claims, args[0], func(q *queue.Queue) error {
					s, err := q.Stats(ctx)
					if err != nil {
						return err
					}
					v := viewStats(q.Name(), s)
					if a.format == formatTable {
						return printList(a, statsHeader, sequence([]queueStats{v}))
					}
					return printOne(a, v, nil)
				})
			})
		},
	}
}

// allStats prints the counts of all queues.
func (a *app) allStats(ctx context.Context, claims *etcdclaims.Client) error {
	names, err := allQueues(ctx, claims)
	if err != nil {
		return err
	}
	return printList(a, statsHeader, func(yield func(queueStats, error) bool) {
		for _, name := range names {
			var s queue.Stats
			q, err := queue.New(claims, queue.Config{Name: name}) // which counts whatever its order is
			if err == nil {
				s, err = q.Stats(ctx)
				_ = q.Close(ctx) // it has no items
			}
			if !yield(viewStats(name, s), err) {
				return
			}
		}
	})
}

func (a *app) deadCommand(verb queueVerb) *cobra.Command {
	dead := &cobra.Command{Use: "dead", Short: "Show and repair dead letters"}
	deadList := verb("ls QUEUE", "List the dead letters, oldest first", 0, func(ctx context.Context, q *queue.Queue, _ []string) error {
		return printList(a, deadHeader, mapped(q.DeadLetters(ctx), func(i queue.Info) deadItem { return deadItem{viewItem(i)} }))
	})
	redrive := verb("redrive QUEUE ID", "Make a dead letter visible again", 1, func(ctx context.Context, q *queue.Queue, args []string) error {
		return a.done(q.Redrive(ctx, args[0]), doneView{Done: "redriven", Queue: q.Name(), Item: args[0]}, "redrove %q", args[0])
	})
	var timeout time.Duration
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
	all := verb("redrive-all QUEUE", "Make all dead letters visible again", 0, func(ctx context.Context, q *queue.Queue, _ []string) error {
		n, err := many(ctx, "redriven", q.RedriveAll)
		return a.done(err, doneView{Done: "redriven", Queue: q.Name(), Items: &n}, "redrove %d items", n)
	})
	var older time.Duration
	var yes bool
	purge := verb("purge QUEUE", "Remove dead letters for good", 0, func(ctx context.Context, q *queue.Queue, _ []string) error {
		if older < 0 {
			return usageError("queue dead purge: --older-than %v is negative", older)
		}
		if !yes {
			return usageError("queue dead purge: removes dead letters of %q for good; repeat with --yes", q.Name())
		}
		n, err := many(ctx, "removed", func(ctx context.Context) (int, error) { return q.Purge(ctx, time.Now().Add(-older)) })
		return a.done(err, doneView{Done: "removed", Queue: q.Name(), Items: &n}, "removed %d dead letters", n)
	})
	purge.Flags().DurationVar(&older, "older-than", 0, "only those that died before this time, by this host's clock")
	for _, cmd := range []*cobra.Command{all, purge} {
		cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long the items may take, once the queue was read in --command-timeout")
	}
	purge.Flags().BoolVar(&yes, "yes", false, "remove them")
	dead.AddCommand(deadList, redrive, all, purge)
	return dead
}
