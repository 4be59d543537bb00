package main

import (
	"context"
	"io"
	"time"

	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// tickView is what became of one tick.
type tickView struct {
	Job     string    `json:"job"`
	Nominal time.Time `json:"nominal"`
	Text    string    `json:"text"`
}

func (v tickView) name() string { return explain.Stamp(v.Nominal) }

// parseInstant reads a time of day, in the time zone of now, or a time of RFC 3339.
func parseInstant(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location()), nil
		}
	}
	return time.Parse(time.RFC3339Nano, text)
}

// schedExplainCommand shows what became of one tick of a job of the group.
func (a *app) schedExplainCommand() *cobra.Command {
	var at string
	var nominal time.Time
	return a.jobsCommand(spec{
		use: "explain JOB [INSTANT]", least: 1, most: 2, names: a.completeJobs, short: "Show what became of one tick of a job, and why",
		example: `  claimctl sched explain -g billing invoices --at 06:31`,
		flags: func(flags *pflag.FlagSet) {
			flags.StringVar(&at, "at", "", "INSTANT: 06:31 of today, by the local time of this host, or as in 2026-03-01T02:30:00Z")
		},
		check: func(args []string) (err error) {
			nominal, err = parseInstant(append(args, at)[1], time.Now())
			return usageIf(err != nil, "explain: INSTANT or --at is a time such as 06:31 or 2026-03-01T02:30:00Z; sched next shows the next ones")
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
