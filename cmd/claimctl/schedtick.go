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

// tickView is what became of one tick.
type tickView struct {
	Job     string    `json:"job"`
	Nominal time.Time `json:"nominal"`
	Text    string    `json:"text"`
}

func (v tickView) name() string    { return doctor.Stamp(v.Nominal) }
func (v tickView) cells() []string { return []string{v.Job, doctor.Stamp(v.Nominal), v.Text} }

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
				text, err := s.Explain(ctx, args[0], nominal)
				if err != nil {
					return err
				}
				v := tickView{Job: args[0], Nominal: nominal.UTC(), Text: text}
				return printOne(a, v, func(w io.Writer) { _, _ = fmt.Fprintln(w, text) })
			})
		},
	}
}
