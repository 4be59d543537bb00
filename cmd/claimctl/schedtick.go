package main

import (
	"context"
	"encoding/json"
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

// payloadFlag adds the flag of a payload for the handler.
func payloadFlag(flags *pflag.FlagSet, payload *string) {
	flags.StringVar(payload, "payload", "", "JSON for the handler, at most 16 KiB; for a defined job it replaces that of the definition")
}

func (a *app) runJobCommand() *cobra.Command {
	var payload string
	return a.jobCommand(spec{
		use: "run", short: "Request a run of a job now",
		example: `  claimctl sched run -g billing invoices --payload '{"month": "2026-03"}'`,
		flags:   func(flags *pflag.FlagSet) { payloadFlag(flags, &payload) },
	}, func(ctx context.Context, s *sched.Scheduler, job string) error {
		id, err := s.RunNow(ctx, job, sched.Payload(json.RawMessage(payload)))
		done := doneView{Done: "requested", Group: a.group, Job: job, Run: id}
		return a.done(err, done, "requested run %s of %q", id, job)
	})
}

func (a *app) backfillCommand() *cobra.Command {
	var from, to, payload string
	var first, last time.Time
	return a.jobCommand(spec{
		use: "backfill", short: "Request runs of all ticks in a time range",
		flags: func(flags *pflag.FlagSet) {
			flags.StringVar(&from, "from", "", "first instant, as 2026-03-01T00:00:00Z (required)")
			flags.StringVar(&to, "to", "", "end of the range, which is not part of it (required)")
			payloadFlag(flags, &payload)
		},
		check: func([]string) (err error) {
			first, err = time.Parse(time.RFC3339, from)
			if err == nil {
				last, err = time.Parse(time.RFC3339, to)
			}
			return usageIf(err != nil, "backfill: --from and --to are times such as 2026-03-01T00:00:00Z")
		},
	}, func(ctx context.Context, s *sched.Scheduler, job string) error {
		id, err := s.Backfill(ctx, job, first, last, nil, sched.Payload(json.RawMessage(payload)))
		done := doneView{Done: "requested", Group: a.group, Job: job, Run: id}
		return a.done(err, done, "requested %s of %q, one run after the other", id, job)
	})
}
