package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/spf13/cobra"
)

// workStates are the states that --state takes.
var workStates = []work.State{
	work.StateFree, work.StateClaimed, work.StateOrphaned, work.StateFailed,
	work.StateDone, work.StateDead, work.StateUnreadable,
}

func stateNames() []string {
	var names []string
	for _, s := range workStates {
		names = append(names, string(s))
	}
	return names
}

func parseStates(names []string) ([]work.State, error) {
	var states []work.State
	for _, name := range names {
		if !slices.Contains(workStates, work.State(name)) {
			return nil, usageError("--state %q is not one of %v", name, workStates)
		}
		states = append(states, work.State(name))
	}
	return states, nil
}

func (a *app) workCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "work", GroupID: groupRepair, Short: "Show and repair records of work"}
	var states []string
	list := &cobra.Command{
		Use: "ls [PREFIX]", Args: cobra.MaximumNArgs(1), Short: "List records of work",
		Long: `List records of work. Work that is at most once is not begun again after its owner
died: retry it once you know that its effect did not happen.`,
		Example: `  claimctl work ls --state orphaned,dead invoices/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := parseStates(states)
			if err != nil {
				return err
			}
			return a.withWork(cmd, func(ctx context.Context, works *work.Runner) error {
				return printList(a, workHeader, mapped(works.Records(ctx, append(args, "")[0], wanted...), viewWork))
			})
		},
	}
	list.Flags().StringSliceVar(&states, "state", nil, "only these states: free, claimed, orphaned, failed, done, dead or unreadable")
	complete(list, "state", stateNames()...)
	show := &cobra.Command{
		Use: "show KEY", Args: cobra.ExactArgs(1), Short: "Show the record of work",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withWork(cmd, func(ctx context.Context, works *work.Runner) error {
				r, ok, err := works.Record(ctx, args[0])
				if err != nil {
					return err
				}
				if !ok {
					return fmt.Errorf("show %q: %w", args[0], work.ErrNoRecord)
				}
				v := viewWork(r)
				return printOne(a, v, v.text)
			})
		},
	}
	retry := &cobra.Command{
		Use: "retry KEY", Args: cobra.ExactArgs(1), Short: "Let work that failed, is dead or orphaned be begun again at once",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withWork(cmd, func(ctx context.Context, works *work.Runner) error {
				r, err := works.Retry(ctx, args[0])
				if err != nil {
					return err
				}
				return printOne(a, viewWork(r), func(io.Writer) { a.say("%q may be begun again; attempts so far: %d", r.Key, r.Attempt) })
			})
		},
	}
	var only []string
	forget := &cobra.Command{
		Use: "forget KEY", Args: cobra.ExactArgs(1), Short: "Delete the record of work: it counts as never begun",
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := parseStates(only)
			if err != nil {
				return err
			}
			return a.withWork(cmd, func(ctx context.Context, works *work.Runner) error {
				return a.done(works.Forget(ctx, args[0], wanted...), doneView{Done: "forgotten", Key: args[0]}, "forgot %q: it counts as never begun", args[0])
			})
		},
	}
	forget.Flags().StringSliceVar(&only, "state", nil, "only in one of these states")
	cmd.AddCommand(list, show, retry, forget)
	return cmd
}

func (v workView) text(w io.Writer) {
	fields(w, 13, [][2]string{
		{"Key", v.Key},
		{"State", v.State},
		{"Attempt", number(v.Attempt)},
		{"Fence", number(v.Fence)},
		{"Owner", v.Owner},
		{"Begun", at(v.Begun)},
		{"Ended", at(v.Ended)},
		{"Not before", at(v.NotBefore)},
		{"At most once", v.onceText()},
		{"Result", v.Result},
		{"Note", v.Note},
	})
	field(w, 13, "Error", v.Error)
	field(w, 13, "Stack", v.Stack)
}

// withWork is with for commands on records of work.
func (a *app) withWork(cmd *cobra.Command, f func(ctx context.Context, works *work.Runner) error) error {
	return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
		works, err := work.New(claims, work.Config{})
		if err != nil {
			return err
		}
		return f(ctx, works)
	})
}

// mapped yields what a function makes of each value.
func mapped[T, V any](all iter.Seq2[T, error], view func(T) V) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		for v, err := range all {
			if !yield(view(v), err) {
				return
			}
		}
	}
}
