package main

import (
	"context"
	"io"
	"time"

	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
	"github.com/spf13/cobra"
)

// tickView is what became of one tick.
type tickView struct {
	Job     string    `json:"job"`
	Nominal time.Time `json:"nominal"`
	Text    string    `json:"text"`
}

func (v tickView) name() string { return explain.Stamp(v.Nominal) }

// schedExplainCommand shows what became of one tick of a job of the group.
func (a *app) schedExplainCommand() *cobra.Command {
	var nominal time.Time
	return a.jobsCommand(spec{
		use: "explain JOB INSTANT", least: 2, most: 2, short: "Show what became of one tick of a job, and why",
		check: func(args []string) (err error) {
			nominal, err = time.Parse(time.RFC3339Nano, args[1])
			return usageIf(err != nil, "explain: INSTANT is a time such as 2026-03-01T02:30:00Z; sched next shows the next ones")
		},
	}, func(ctx context.Context, s *sched.Scheduler, args []string) error {
		text, err := s.Explain(ctx, args[0], nominal)
		if err != nil {
			return err
		}
		v := tickView{Job: args[0], Nominal: nominal.UTC(), Text: text}
		return printOne(a, v, func(w io.Writer) { paragraph(w, 4, text) })
	})
}
