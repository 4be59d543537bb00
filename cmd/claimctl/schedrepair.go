package main

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const forgetText = `Delete the state of a job that no process has any more: its mark, its history,
and the ticks that wait.

If a process still has the job, its owner registers it anew. Ticks that are due
meanwhile are lost, and no record counts them. So stop the processes that have the
job first, or deploy them without it. While the group has an owner that may have the
job, --may-lose is required.`

func (a *app) forgetCommand() *cobra.Command {
	var mayLose bool
	return a.command(spec{
		use: "forget JOB", names: a.completeJobs, least: 1, most: 1, short: "Delete the state of a job that no process has any more", long: forgetText,
		flags: func(flags *pflag.FlagSet) {
			flags.BoolVar(&mayLose, "may-lose", false, "also while the owner of the group may have the job")
		},
		run: func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
			job := args[0]
			s, err := newScheduler(ctx, claims, a.group)
			if err != nil {
				return err
			}
			if !mayLose {
				owner, err := ownerWith(ctx, claims, s, job)
				if err != nil {
					return err
				}
				if owner != "" {
					return usageError("forget %q: the owner %s of group %q may have the job; ticks that are due meanwhile "+
						"would be lost without a record; stop the processes that have the job first, or repeat with --may-lose",
						job, owner, a.group)
				}
			}
			return a.done(s.Forget(ctx, job), doneView{Done: "forgotten", Group: a.group, Job: job}, "forgot %q", job)
		},
	})
}

// ownerWith returns the owner of the group if it may have the job, and "" otherwise. It does
// not have a job whose definition was removed, nor one of which it has left a due tick
// undecided.
func ownerWith(ctx context.Context, claims *etcdclaims.Client, s *sched.Scheduler, job string) (string, error) {
	i, err := s.Inspect(ctx, job)
	if errors.Is(err, sched.ErrUnknownJob) {
		return "", nil // Forget returns the error, or deletes what is left of the job
	}
	gone := i.Kind != "" && i.Version == 0 // the definition was removed
	if err != nil || gone || !i.Unadmitted.IsZero() {
		return "", err
	}
	owner, err := claims.Lookup(ctx, "sched/"+s.Group()+"/owner")
	if err != nil || !owner.Held {
		return "", err
	}
	return owner.Owner, nil
}

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
