package main

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// A mark that is ahead of the clock is mended without etcdctl: doctor has the command. Ticks
// that may have run are not repeated without a flag.
func TestResetMark(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	run := func(revision string, ahead time.Duration) {
		s, err := sched.New(w.client("cron-1"), sched.Config{Group: "billing", Now: func() time.Time { return time.Now().Add(ahead) }})
		w.noErr(err)
		w.noErr(s.Add(sched.Job{
			Name: "j", Revision: revision, Schedule: calendar.Must(calendar.Cron("0 * * * *")),
			Handler: func(context.Context, sched.Tick) error { return nil },
		}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		eventually(t, "the job is registered", func() bool {
			i, err := s.Inspect(t.Context(), "j")
			return err == nil && i.Revision == revision
		})
		cancel()
		w.noErr(<-done)
	}
	run("1", 0)
	w.fails(exitFailure, "the high-water mark is not ahead of the clock", "sched", "reset", "-g", "billing", "j")
	run("2", 48*time.Hour)
	w.finds(w.ok("sched", "show", "-g", "billing", "j"), "is ahead of the clock by")
	w.finds(w.doctor().out, "sched reset -g billing j")
	w.fails(exitUsage, "repeat with --may-repeat", "sched", "reset", "-g", "billing", "j")
	w.finds(w.ok("sched", "reset", "-g", "billing", "j", "--may-repeat"), `put back the mark of "j" to`)
	w.fails(exitFailure, "the high-water mark is not ahead of the clock", "sched", "reset", "-g", "billing", "j")
}
