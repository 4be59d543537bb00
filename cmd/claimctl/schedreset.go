package main

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const resetText = `Put back the high-water mark of a job that is ahead of the clock of this machine.
The clock of an owner was ahead, and the ticks until the mark do not run otherwise.
Look at the clock of this machine first.

Ticks that ran already do not run again when they come due. If the
history is too short to show which ticks ran, --may-repeat is required, and some of
them can run twice, with the same ID. Runs and records are not changed.`

func (a *app) resetCommand() *cobra.Command {
	var mayRepeat bool
	return a.jobCommand(spec{
		use: "reset", short: "Put back the mark of a job that is ahead of the clock", long: resetText,
		flags: func(flags *pflag.FlagSet) {
			flags.BoolVar(&mayRepeat, "may-repeat", false, "also if ticks without a record may run twice")
		},
	}, func(ctx context.Context, s *sched.Scheduler, job string) error {
		to, err := s.ResetMark(ctx, job, a.reason, mayRepeat)
		if errors.Is(err, sched.ErrMayRepeat) {
			return usageError("%v: repeat with --may-repeat", err)
		}
		v := doneView{Done: "reset", Group: a.group, Job: job, Nominal: to.UTC(), Reason: a.reason}
		return a.done(err, v, "put back the mark of %q to %s; ticks after it that have run do not run again", job, explain.Stamp(to))
	})
}
