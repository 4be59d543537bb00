package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/etcdclaims/claims/sched"
	"github.com/spf13/cobra"
)

// fateView is what became of one tick.
type fateView struct {
	Job     string    `json:"job"`
	Nominal time.Time `json:"nominal"`
	Fate    string    `json:"fate"`
	Outcome string    `json:"outcome,omitempty"` // of the record that has or counts the tick, as in sched history
	Text    string    `json:"text"`
}

func (v fateView) name() string    { return doctor.Stamp(v.Nominal) }
func (v fateView) cells() []string { return []string{v.Job, doctor.Stamp(v.Nominal), v.Fate, v.Text} }

// tickCommands are the commands about one tick of a job of the group.
func (a *app) tickCommands(group *string) []*cobra.Command {
	verb := func(use, short string, f func(ctx context.Context, s *sched.Scheduler, job string, nominal time.Time) error) *cobra.Command {
		return &cobra.Command{
			Use: use + " JOB INSTANT", Short: short, Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				nominal, err := time.Parse(time.RFC3339Nano, args[1])
				if err != nil {
					return usageError("%s: INSTANT is a time such as 2026-03-01T02:30:00Z; sched next shows the next ones", use)
				}
				return a.scheduler(cmd, *group, func(ctx context.Context, s *sched.Scheduler) error { return f(ctx, s, args[0], nominal) })
			},
		}
	}
	var why string
	skip := verb("skip", "Leave out one tick of a job", func(ctx context.Context, s *sched.Scheduler, job string, nominal time.Time) error {
		v := doneView{Done: "skipped", Group: *group, Job: job, Nominal: moment(nominal), Reason: why}
		return a.done(s.SkipTick(ctx, job, nominal, why), v, "%q skips %s", job, doctor.Stamp(nominal))
	})
	addReason(skip, &why, "note for the record of the tick")
	unskip := verb("unskip", "Take a skip back until the tick is due", func(ctx context.Context, s *sched.Scheduler, job string, nominal time.Time) error {
		v := doneView{Done: "unskipped", Group: *group, Job: job, Nominal: moment(nominal)}
		return a.done(s.UnskipTick(ctx, job, nominal), v, "%q no longer skips %s", job, doctor.Stamp(nominal))
	})
	explain := verb("explain", "Show what became of one tick of a job, and why", func(ctx context.Context, s *sched.Scheduler, job string, nominal time.Time) error {
		x, err := s.Explain(ctx, job, nominal)
		if err != nil {
			return err
		}
		v := fateView{Job: x.Job, Nominal: x.Nominal, Fate: string(x.Fate), Text: x.Text}
		if x.Entry != nil {
			v.Outcome = string(x.Entry.Outcome)
		}
		return printOne(a, v, func(w io.Writer) { _, _ = fmt.Fprintln(w, x) })
	})
	return []*cobra.Command{skip, unskip, explain}
}
