package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// workStates are the states that --state takes.
var workStates = []work.State{
	work.StateFree, work.StateClaimed, work.StateOrphaned, work.StateFailed,
	work.StateDone, work.StateDead, work.StateUnreadable,
}

func stateNames() []string {
	return views(workStates, func(s work.State) string { return string(s) })
}

// states is the value of --state.
type states struct {
	names  []string
	wanted []work.State
}

func (s *states) flag(flags *pflag.FlagSet) {
	flags.StringSliceVar(&s.names, "state", nil, "only these states: "+strings.Join(stateNames(), ", "))
}

func (s *states) check([]string) error {
	for _, name := range s.names {
		s.wanted = append(s.wanted, work.State(name))
		if !slices.Contains(workStates, work.State(name)) {
			return usageError("--state %q is not one of %v", name, workStates)
		}
	}
	return nil
}

// completeWork completes the keys that have a record.
func (a *app) completeWork(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completeFrom(cmd, args, typed, func(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
		works, err := work.New(claims, work.Config{})
		if err != nil {
			return sequence[string](nil, err)
		}
		return mapped(works.Records(ctx, typed), func(r work.Record) string { return r.Key })
	})
}

// workSpec is a spec without its run, and what it does with records.
func (a *app) workSpec(s spec, f func(ctx context.Context, works *work.Runner, args []string) error) spec {
	s.names = a.completeWork
	return on(s, func(_ context.Context, claims *etcdclaims.Client, _ []string) (*work.Runner, error) {
		return work.New(claims, work.Config{})
	}, f)
}

func (a *app) workCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "work", GroupID: groupRepair, Short: "Show and repair records of work"}
	var of, only states
	list := a.command(a.workSpec(spec{
		use: "ls [PREFIX]", table: workColumns, most: 1, short: "List records of work", flags: of.flag, check: of.check,
		long: `List records of work. Work that is at most once is not begun again after its owner
died: retry it once you know that its effect did not happen.`,
		example: `  claimctl work ls --state orphaned,dead invoices/`,
	}, func(ctx context.Context, works *work.Runner, args []string) error {
		return printList(a, workColumns, mapped(works.Records(ctx, append(args, "")[0], of.wanted...), viewWork))
	}))
	complete(list, "state", stateNames()...)
	cmd.AddCommand(
		list,
		a.command(a.workSpec(spec{use: "show KEY", least: 1, most: 1, short: "Show the record of work"},
			func(ctx context.Context, works *work.Runner, args []string) error {
				r, ok, err := works.Record(ctx, args[0])
				if err == nil && !ok {
					err = fmt.Errorf("show %q: %w", args[0], work.ErrNoRecord)
				}
				if err != nil {
					return err
				}
				return printOne(a, viewWork(r), nil)
			})),
		a.command(a.workSpec(
			spec{use: "retry KEY", least: 1, most: 1, short: "Let work that failed, is dead or orphaned be begun again at once"},
			func(ctx context.Context, works *work.Runner, args []string) error {
				r, err := works.Retry(ctx, args[0])
				return a.done(err, viewWork(r), "%q may be begun again; attempts so far: %d", r.Key, r.Attempt)
			})),
		a.command(a.workSpec(spec{
			use: "forget KEY", least: 1, most: 1, short: "Delete the record of work: it counts as never begun",
			flags: only.flag, check: only.check,
		}, func(ctx context.Context, works *work.Runner, args []string) error {
			err := works.Forget(ctx, args[0], only.wanted...)
			return a.done(err, doneView{Done: "forgotten", Key: args[0]}, "forgot %q: it counts as never begun", args[0])
		})))
	return cmd
}

// workView is a record of work as it is shown.
type workView struct {
	Key        string    `json:"key" col:"KEY"`
	State      string    `json:"state" col:"STATE"`
	Attempt    int       `json:"attempt" col:"ATTEMPT"`
	Fence      int64     `json:"fence,string" col:"FENCE"`
	Owner      string    `json:"owner,omitempty" col:"OWNER"`
	Instance   string    `json:"instance,omitempty"`
	Claim      string    `json:"claim,omitempty"`
	Begun      time.Time `json:"begun,omitzero" col:"BEGUN"`
	Ended      time.Time `json:"ended,omitzero" col:"ENDED"`
	NotBefore  time.Time `json:"notBefore,omitzero" col:"NOT BEFORE"`
	AtMostOnce bool      `json:"atMostOnce,omitempty" col:"AT MOST ONCE"`
	Meaning    string    `json:"-" col:"THAT MEANS"` // what AtMostOnce asks of the operator
	Result     string    `json:"result,omitempty" col:"RESULT"`
	Note       string    `json:"note,omitempty" col:"NOTE"`
	Error      string    `json:"error,omitempty" col:"ERROR,short"`
	Stack      string    `json:"stack,omitempty" col:"STACK"`
}

const workColumns = "KEY,STATE,ATTEMPT,AT MOST ONCE,ERROR,OWNER,FENCE,BEGUN,NOT BEFORE"

func viewWork(r work.Record) workView {
	v := workView{
		Key: r.Key, State: string(r.State), Attempt: r.Attempt, Fence: r.Fence, Owner: r.Owner, Instance: r.Instance, Claim: r.Claim,
		Begun: r.Begun.UTC(), Ended: r.Ended.UTC(), NotBefore: r.NotBefore.UTC(), Error: r.Error, Stack: r.Stack,
		Result: r.Result, Note: r.Note, AtMostOnce: r.AtMostOnce,
	}
	switch {
	case explain.IsRisky(r):
		v.Meaning = "no caller begins it again. If its effect did not happen, retry it; if it did, leave or forget it"
	case r.AtMostOnce:
		v.Meaning = "no caller begins it again if its owner dies"
	}
	return v
}

// summary is one line about the record.
func (v workView) summary() string {
	s := v.State
	if v.Attempt > 0 {
		s += fmt.Sprintf(", attempt %d by %s", v.Attempt, v.Owner)
	}
	if !v.NotBefore.IsZero() {
		s += ", next not before " + explain.Stamp(v.NotBefore)
	}
	if v.AtMostOnce {
		s += ", at most once"
	}
	return s
}
