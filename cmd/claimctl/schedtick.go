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

// schedExplainCommand shows what became of one tick of a job of the group.
func (a *app) schedExplainCommand(group *string) *cobra.Command {
	return &cobra.Command{
		Use: "explain JOB INSTANT", Short: "Show what became of one tick of a job, and why", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			nominal, err := time.Parse(time.RFC3339Nano, args[1])
			if err != nil {
				return usageError("explain: INSTANT is a time such as 2026-03-01T02:30:00Z; sched next shows the next ones")
			}
			return a.scheduler(cmd, *group, func(ctx context.Context, s *sched.Scheduler) error {
				x, err := s.Explain(ctx, args[0], nominal)
				if err != nil {
					return err
				}
				v := fateView{Job: x.Job, Nominal: x.Nominal, Fate: string(x.Fate), Text: x.Text}
				if x.Entry != nil {
					v.Outcome = string(x.Entry.Outcome)
				}
				return printOne(a, v, func(w io.Writer) { _, _ = fmt.Fprintln(w, x) })
			})
		},
	}
}
