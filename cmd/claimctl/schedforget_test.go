package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// serves runs a group in a process that has a job, until the returned function is called.
func (w *world) serves(owner, group, job string) (stop func()) {
	s, err := sched.New(w.client(owner), sched.Config{Group: group})
	w.noErr(err)
	w.noErr(s.Add(sched.Job{Name: job, Schedule: calendar.Must(calendar.Cron("0 0 1 1 *")), Handler: func(context.Context, sched.Tick) error { return nil }}))
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	eventually(w.T, "the job is registered", func() bool { return w.ctl("sched", "show", "-g", group, job).code == 0 })
	return func() { cancel(); w.noErr(<-done) }
}

// The state of a job that the owner may have is not removed by mistake.
func TestForgetLiveJob(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	stop := w.serves("cron-1", "billing", "j")
	w.fails(exitUsage, `forget "j": the owner cron-1 of group "billing" may have the job`, "sched", "forget", "-g", "billing", "j", "--yes")
	w.ok("sched", "show", "-g", "billing", "j")
	w.ok("sched", "forget", "-g", "billing", "j", "--yes", "--may-lose")
	stop()
	w.serves("cron-2", "billing", "k")()
	w.ok("sched", "forget", "-g", "billing", "k", "--yes") // nobody has it
}

// The history tells a run that was requested from a tick of the schedule at the same instant.
func TestHistoryShowsOrigins(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	defer w.serves("cron-1", "billing", "j")()
	w.ok("sched", "run", "-g", "billing", "j", "--payload", `{"month": 3}`)
	w.fails(exitFailure, "the Payload is not valid JSON", "sched", "run", "-g", "billing", "j", "--payload", "{")
	w.ok("sched", "backfill", "-g", "billing", "j", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:00:01Z")
	eventually(t, "both have run", func() bool {
		return strings.Count(w.ok("sched", "history", "-g", "billing", "j", "-o", "name"), "\n") == 2
	})
	out := w.ok("sched", "history", "-g", "billing", "j")
	if !strings.Contains(out, "2026-01-01T00:00:00Z backfill  ok") || !strings.Contains(out, " manual") {
		t.Errorf("%s", out)
	}
	for _, v := range as[[]entryView](w, "sched", "history", "-g", "billing", "j") {
		if v.Origin != "manual" && v.Origin != "backfill" {
			t.Errorf("%+v", v)
		}
	}
	nominal := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if v := viewEntry(sched.Entry{Group: "a", Job: "b/c", ID: "a/b/c/2026-01-01T00:00:00Z", Nominal: nominal}); v.Origin != "" || v.Tick != "2026-01-01T00:00:00Z" {
		t.Errorf("of the schedule: %+v", v)
	}
}
