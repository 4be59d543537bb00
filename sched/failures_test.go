package sched_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// A tick whose next attempt never gets its turn is one failure: it is late, or a newer tick
// replaces it while it waits or just as its attempt fails.
func TestDroppedRetryIsAFailure(t *testing.T) {
	for _, c := range []struct {
		name  string
		job   sched.Job
		takes time.Duration
		why   sched.Outcome // of the record of the tick
		left  bool          // the owner has dropped the tick, and not the process that ran it
	}{
		{"late", sched.Job{StartDeadline: 30 * time.Second, Retry: sched.Retry{Max: 5, Backoff: 2 * time.Minute}}, 0, sched.OutcomeLate, true},
		{"replaced while it waits", sched.Job{
			Overlap: sched.CancelRunning{},
			Retry:   sched.Retry{Max: 5, Backoff: 10 * time.Minute},
		}, 0, sched.OutcomeSkipped, true},
		{
			"replaced as it fails",
			sched.Job{
				Overlap: sched.CancelRunning{},
				Retry:   sched.Retry{Max: 5, Backoff: 10 * time.Minute},
			},
			60500 * time.Millisecond, sched.OutcomeTimeout,
			false,
		},
	} {
		caseInFleet(t, c.name, func(t *testing.T, f *fleet) {
			var dropped atomic.Int64
			f.cfg.Hooks.Left = func(e sched.Entry) {
				if e.Outcome == c.why && e.Attempt == 1 {
					dropped.Add(1)
				}
			}
			c.job.Name, c.job.Schedule, c.job.PauseOnFailure, c.job.History = "a", minutely, 3, 200
			over := make(chan struct{}) // a tick that waited when the job was paused can still run
			defer close(over)
			c.job.Handler = func(context.Context, sched.Tick) error {
				select {
				case <-time.After(c.takes):
				case <-over:
				}
				return errors.New("broken")
			}
			if c.takes > 0 {
				c.job.Timeout = 58 * time.Second // otherwise the newer tick cancels the run
			}
			f.do(c.job, 0)
			f.until("00:00:10")
			f.start(0)
			f.until("00:30:30")
			i := f.inspect("a")
			if i.Paused == nil || i.Paused.By != "sched" || !strings.Contains(i.Paused.Note, "3 runs failed in a row") {
				t.Errorf("paused: %+v, after %d runs", i.Paused, len(f.ledger.all("a")))
			}
			if n := dropped.Load(); c.left && n != 3 {
				t.Errorf("%d ticks were dropped after a failed attempt before the pause; want 3: %v", n, f.history("a"))
			}
			if e := f.entries("a")[0]; !c.left && !strings.Contains(e.Error, "not tried again, because a newer tick waits") {
				t.Errorf("%v", e)
			}
		})
	}
}

// A run whose handler does not return after its Timeout is a failure, although the owner records
// its end.
func TestStuckRunIsAFailure(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		hang := make(chan struct{})
		defer close(hang)
		f.do(sched.Job{
			Name: "a", Schedule: minutely, PauseOnFailure: 3, Timeout: 10 * time.Second, Overlap: sched.Allow{},
			Handler: func(context.Context, sched.Tick) error { <-hang; return nil },
		}, 0)
		f.until("00:00:10")
		f.start(0)
		f.until("00:05:50")
		if i := f.inspect("a"); i.Paused == nil || len(f.ledger.all("a")) > 4 {
			t.Errorf("paused %v after %d runs: %v", i.Paused, len(f.ledger.all("a")), f.history("a"))
		}
	})
}

// A handler that returns just as its run is noted as stuck leaves no note.
func TestHandlerReturnsAsItIsNoted(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		back := make(chan struct{})
		var n *node
		noted := zap.Hooks(func(e zapcore.Entry) error {
			if strings.HasPrefix(e.Message, "handler did not return") {
				n.host.Inject(claimtest.Fault{On: claimtest.Other, DelayRequest: time.Second})
				close(back)
				time.Sleep(10 * time.Millisecond) // the end is on its way before the note
			}
			return nil
		})
		core, _ := observer.New(zap.WarnLevel)
		f.cfg.Logger = zap.New(core, noted)
		f.do(sched.Job{Name: "a", Schedule: minutely, Timeout: 10 * time.Second, Handler: func(context.Context, sched.Tick) error { <-back; return nil }}, 0)
		n = f.start(0)
		f.until("00:01:30")
		f.wantHistory("a", "ok 00:01:00")
		if left := f.under("/stuck/"); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// A tick that an operator takes back between two attempts has not failed, nor has one that is
// dropped before its first attempt.
func TestWithdrawnRetryIsNoFailure(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{
			Name: "a", Schedule: minutely, PauseOnFailure: 1, History: 200, Retry: sched.Retry{Max: 5, Backoff: 10 * time.Minute},
			Handler: func(context.Context, sched.Tick) error { return errors.New("broken") },
		}, 0)
		f.do(sched.Job{
			Name: "b", Schedule: minutely, PauseOnFailure: 1, Overlap: sched.BufferOne{},
			StartDeadline: 30 * time.Second,
		}, 100*time.Second)
		f.until("00:00:10")
		f.start(0)
		for i := range 3 {
			f.until(fmt.Sprintf("00:%02d:30", i+1))
			noErr(t, f.console().Cancel(t.Context(), "a", "not now"))
			f.until(fmt.Sprintf("00:%02d:40", i+1))
			if i := f.inspect("a"); i.Paused != nil || i.Failures != 0 || len(i.Waiting) != 0 {
				t.Errorf("%+v", i)
			}
		}
		if h := f.history("b"); !slices.Contains(h, "late 00:02:00") || f.inspect("b").Paused != nil {
			t.Errorf("%v, %+v", h, f.inspect("b").Paused)
		}
	})
}

// Ticks that are dropped at one time count one after the other: none is lost.
func TestDroppedRetriesCountOneByOne(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{
			Name: "a", Schedule: calendar.Must(calendar.Every(time.Second, 0)), PauseOnFailure: 1000, History: 200, Overlap: sched.Allow{},
			StartDeadline: 30 * time.Second, Retry: sched.Retry{Max: 1, Backoff: 10 * time.Minute},
			Handler: func(context.Context, sched.Tick) error { return errors.New("broken") },
		}, 0)
		n := f.start(0)
		f.until("00:00:20.5")
		n.stop()
		waiting := len(f.inspect("a").Waiting) // for another attempt
		f.until("00:02:00.5")
		noErr(t, f.console().Pause(t.Context(), "a", "no more"))
		f.start(0)
		f.until("00:02:10")
		if i := f.inspect("a"); waiting < 10 || len(i.Waiting) != 0 || i.Failures != waiting {
			t.Errorf("%d failures, want %d; %d wait: %v", i.Failures, waiting, len(i.Waiting), f.history("a"))
		}
	})
}

// The owner learns that another process has counted, and counts on from there.
func TestDroppedRetryAfterOthersCounted(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		fails := func(context.Context, sched.Tick) error { return errors.New("broken") }
		f.cfg.Spread = true
		f.do(sched.Job{
			Name: "a", Schedule: minutely, PauseOnFailure: 6, History: 200, Overlap: sched.Allow{}, StartDeadline: 50 * time.Second,
			Retry: sched.Retry{Max: 1, Backoff: 2 * time.Minute, On: func(error) bool { return time.Now().Minute()%2 == 0 }}, Handler: fails,
		}, 0)
		f.until("00:00:10")
		f.start(0)
		f.start(0)
		// Odd minutes fail at once, even ones when their second attempt, which waits longer than the deadline, is late.
		f.until("00:05:50")
		if i := f.inspect("a"); i.Failures != 5 || i.Paused != nil {
			t.Errorf("%d failures, paused %v: %v", i.Failures, i.Paused, f.history("a"))
		}
		f.until("00:06:50")
		if i := f.inspect("a"); i.Failures != 5 && i.Paused == nil {
			t.Errorf("%d failures", i.Failures)
		}
		f.until("00:07:50")
		if i := f.inspect("a"); i.Paused == nil {
			t.Errorf("not paused: %d failures, %v", i.Failures, f.history("a"))
		}
	})
}
