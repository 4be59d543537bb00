package main

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/etcdclaims/claims/sched"
	"github.com/spf13/cobra"
)

const resetText = `Put back the high-water mark of a job that is ahead of the clock of this machine.
The clock of an owner was ahead, and the ticks until the mark do not run otherwise.
Look at the clock of this machine first.

Ticks that ran already do not run again when they come due. If the
history is too short to show which ticks ran, --may-repeat is required, and some of
them can run twice, with the same ID. Runs and records are not changed.`

func (a *app) resetCommand(group *string) *cobra.Command {
	var why string
	var mayRepeat bool
	cmd := &cobra.Command{
		Use: "reset JOB", Args: cobra.ExactArgs(1), Short: "Put back the mark of a job that is ahead of the clock", Long: resetText,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.scheduler(cmd, *group, func(ctx context.Context, s *sched.Scheduler) error {
				to, err := s.ResetMark(ctx, args[0], why, mayRepeat)
				if errors.Is(err, sched.ErrMayRepeat) {
					return usageError("%v: repeat with --may-repeat", err)
				}
				v := doneView{Done: "reset", Group: *group, Job: args[0], Nominal: moment(to), Reason: why}
				return a.done(err, v, "put back the mark of %q to %s; ticks after it that have run do not run again", args[0], doctor.Stamp(to))
			})
		},
	}
	addReason(cmd, &why, "note that is kept with the mark")
	cmd.Flags().BoolVar(&mayRepeat, "may-repeat", false, "also if ticks without a record may run twice")
	return cmd
}
