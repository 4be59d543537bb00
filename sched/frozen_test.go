package sched_test

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
)

// An owner that stands still between its decision and the transaction admits nothing when it
// goes on: another owner has decided about the tick.
func TestOwnerFrozenBeforeAdmission(t *testing.T) {
	overlaps := []sched.Overlap{sched.Skip{}, sched.BufferAll{}}
	if testetcd.Long() {
		overlaps = append(overlaps, sched.Allow{}, sched.CancelRunning{})
	}
	for _, overlap := range overlaps {
		var between atomic.Int64        // how many times it stood still with a decision
		for reading := range int64(6) { // of the clock, on which the owner stops
			inFleet(t, func(t *testing.T, f *fleet) {
				f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: overlap, History: 100}, 0)
				f.do(sched.Job{Name: "b", Schedule: minutely, Overlap: overlap, History: 100, CatchUp: caughtUp(overlap)}, time.Second)
				var frozen atomic.Pointer[node]
				var readings atomic.Int64
				thaw := make(chan struct{})
				f.onNow = func(n *node) {
					if frozen.Load() != n || time.Now().Second() != 0 {
						return
					}
					decides := strings.Contains(string(debug.Stack()), "admitDue") // which acts on the time that it has read
					if (reading > 0 || decides || readings.Load() > 0) && readings.Add(1) > reading {
						if decides {
							between.Add(1)
						}
						n.host.Cut()
						<-thaw
					}
				}
				f.until("00:00:10")
				f.start(0)
				time.Sleep(time.Second)
				f.start(0)
				f.until("00:01:30")
				frozen.Store(f.owner())
				f.until("00:02:45") // longer than its lease
				frozen.Load().host.Heal()
				frozen.Store(nil)
				close(thaw)
				f.until("00:05:30")
				if got := f.ledger.nominals("a"); len(got) < 4 || got[len(got)-1] != "00:05:00" { // the audit finds one that ran twice
					t.Errorf("%T, stopped at reading %d: %v", overlap, reading, got)
				}
			})
		}
		if n := between.Load(); n == 0 {
			t.Errorf("%T: the owner never stopped between a decision and its transaction", overlap)
		}
	}
}

// A process that stands still between the transaction that begins a run and its handler does
// not call the handler when it goes on: the run was settled as that of a dead process.
func TestOwnerFrozenBeforeHandler(t *testing.T) {
	for _, delivery := range []sched.Guarantee{sched.AtMostOnce, sched.AtLeastOnce} {
		caseInFleet(t, delivery.String(), func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, Guarantee: delivery, History: 100}, 0)
			var frozen atomic.Pointer[node]
			thaw := make(chan struct{})
			f.cfg.Hooks.Began = func(sched.Tick) {
				if n := frozen.Swap(nil); n != nil {
					n.host.Cut()
					<-thaw
					n.host.Heal()
				}
			}
			f.until("00:00:10")
			f.start(0)
			time.Sleep(time.Second)
			f.start(0)
			f.until("00:01:30")
			n := f.owner()
			frozen.Store(n)
			f.until("00:02:45")
			close(thaw)
			f.until("00:05:30")
			runs := 0
			for _, d := range f.ledger.all("a") {
				if d.Nominal.Format(time.TimeOnly) == "00:02:00" {
					if runs++; d.By == n.name {
						t.Errorf("the frozen process ran %v", d)
					}
				}
			}
			if want := int(delivery); runs != want {
				t.Errorf("%d runs of the tick, want %d: %v", runs, want, f.history("a"))
			}
			if got := f.ledger.nominals("a"); got[len(got)-1] != "00:05:00" {
				t.Errorf("%v", got)
			}
		})
	}
}

// The clocks of two processes differ by an hour, or by thirty days. No tick runs twice, a retry
// waits no longer than its back-off, and requests are served. What the fast clock has cost is
// reported, and can be mended.
func TestClocksThatDiffer(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, 30 * 24 * time.Hour} {
		for _, spread := range []bool{false, true} {
			caseInFleet(t, by.String(), func(t *testing.T, f *fleet) {
				f.wasReset = true
				f.cfg.Spread = spread
				f.do(sched.Job{Name: "a", Schedule: minutely, History: 1000}, 0)
				f.do(sched.Job{
					Name: "fails", Schedule: minutely, History: 1000, Overlap: sched.Allow{}, Retry: sched.Retry{Max: 2, Backoff: 4 * time.Second},
					Handler: func(context.Context, sched.Tick) error { return errors.New("broken") },
				}, 0)
				f.until("00:00:10")
				fast := f.start(by)
				time.Sleep(time.Second)
				f.start(0)
				f.until("00:03:30")
				killed := time.Now()
				fast.kill()
				f.start(-by)
				f.until("00:06:30")
				if i := f.inspect("a"); i.Ahead == 0 || i.Problem == "" {
					t.Errorf("not reported: %v", i)
				}
				_, err := f.console().RunNow(t.Context(), "fails")
				noErr(t, err)
				f.until("00:07:30")
				last := map[string]time.Time{}
				for _, d := range f.ledger.all("fails") {
					// A retry that waits as its owner dies waits for the next owner, too.
					most := 4 * time.Second << max(0, d.Attempt-2)
					was, again := last[d.ID()]
					if gap := d.From.Sub(was); again && gap > most+time.Second &&
						!(was.Before(killed) && d.From.Before(killed.Add(most+ttl+2*time.Second)) && d.From.After(killed)) {
						t.Errorf("%v, %v after the one before", d, gap)
					}
					last[d.ID()] = d.From
					if d.Manual && d.Attempt == 3 {
						err = errors.New("three attempts")
					}
				}
				if err == nil {
					t.Error("a request was not served, or not tried again")
				}
				before := len(f.ledger.all("a"))
				f.resets("a", true)
				f.until("00:10:30")
				if n := len(f.ledger.all("a")) - before; n != 3 {
					t.Errorf("%d ticks in three minutes after the reset: %v", n, f.ledger.nominals("a"))
				}
			})
		}
	}
}
