package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
)

// What show prints of a job has all that somebody on call looks for.
func TestJobText(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2026, 3, 1, 2, minute, 0, 0, time.UTC) }
	i := sched.JobInfo{
		Group: "billing", Job: "invoices", Schedule: "@every 1m", Kind: "report", Version: 7, Problem: "the disk is full", Next: at(9), Overdue: at(1), Requests: 2,
		Running: []sched.TickInfo{{ID: "r", Attempt: 1, Owner: "api-7", Began: at(3)}},
		Waiting: []sched.TickInfo{{ID: "w"}, {ID: "x", Attempt: 2, After: at(8), Note: "attempt 1 failed"}},
		Last: &sched.Entry{
			ID: "l", Outcome: sched.OutcomeFailed, Attempt: 1, Fence: 4, Owner: "api-7", Began: at(2), Ended: at(3), Missed: 5, Error: "no disk", Again: true,
		},
	}
	const want = `billing/invoices: @every 1m
  defined: kind report, version 7
  problem: the disk is full
  next: 2026-03-01T02:09:00Z
  overdue: the tick of 2026-03-01T02:01:00Z
  running: r attempt 1 by api-7 since 2026-03-01T02:03:00Z
  waiting: w
  waiting: x for attempt 2 at 2026-03-01T02:08:00Z: attempt 1 failed
  requests: 2 wait for the owner
  last: 2026-03-01T02:03:00Z failed      l attempt 1, fence 4, 1m0s by api-7, 5 missed: no disk; tried again`
	if got := strings.Join(jobText(i), "\n"); got != want {
		t.Errorf("%s", got)
	}
	paused := sched.JobInfo{
		Group: "g", Job: "j", Schedule: "s", Paused: &sched.Pause{By: "ada", Note: "no power", At: at(4)},
		Last: &sched.Entry{ID: "l", Outcome: sched.OutcomePaused, Missed: 3, Ended: at(5)},
	}
	const text = `g/j: s
  paused by ada since 2026-03-01T02:04:00Z: no power
  last: 2026-03-01T02:05:00Z paused      l, one record for 3 ticks`
	if got := strings.Join(jobText(paused), "\n"); got != text {
		t.Errorf("%s", got)
	}
}

// The terminal does not obey what is stored of a job, and its lines are no fields.
func TestSchedStoredText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(w.dir(), "jobs.yaml")
	w.noErr(os.WriteFile(file, []byte("jobs:\n- {name: j, schedule: '@daily', kind: k}\n"), 0o600))
	w.ok("sched", "apply", "-f", file)
	s, err := sched.New(w.client("a"), sched.Config{Group: "default"})
	w.noErr(err)
	const stored = "no power\x1b[2J\n  next: never"
	w.noErr(s.Handle("k", func(context.Context, sched.Tick, json.RawMessage) error { return errors.New(stored) }))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	eventually(t, "the owner has the job", func() bool {
		return w.ctl("sched", "backfill", "j", "--from", "2020-01-01T00:00:00Z", "--to", "2020-01-01T00:00:01Z").code == 0
	})
	eventually(t, "the run fails", func() bool {
		i, err := s.Inspect(t.Context(), "j")
		return err == nil && i.Last != nil
	})
	cancel()
	w.noErr(<-done)
	w.ok("sched", "pause", "j", "--reason", stored)
	for _, args := range [][]string{{"show", "j"}, {"explain", "j", "2020-01-01T00:00:00Z"}} {
		out := w.ok(append([]string{"sched"}, args...)...)
		w.finds(out, `no power\x1b[2J`)
		if strings.Contains(out, "\x1b") || strings.Contains(out, "\n  next") {
			t.Errorf("stored text is not escaped:\n%s", out)
		}
	}
}
