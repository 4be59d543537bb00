package sched_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// The thirty semantics, thirteen to fifteen: runs that overlap.

func second[T any](_ T, err error) error { return err }

func wantIs(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// atMost returns the greatest number of runs of a job that went on at once.
func atMost(deeds []deed) int {
	most := 0
	for _, d := range deeds {
		n := 0
		for _, o := range deeds {
			if !o.From.After(d.From) && (o.Until.IsZero() || o.Until.After(d.From)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Overlap is decided across the fleet: a run of one process counts for the ticks
// that another admits.
func TestSemantic13Overlap(t *testing.T) {
	for _, tt := range []struct {
		name    string
		overlap sched.Overlap
		want    []string
		history []string
		atOnce  int
	}{
		{
			"skip", nil,
			[]string{"00:01:00", "00:04:00", "00:07:00"},
			[]string{"skipped 00:02:00", "skipped 00:03:00", "ok 00:01:00", "skipped 00:05:00", "skipped 00:06:00", "ok 00:04:00"},
			1,
		},
		{
			"buffer one",
			sched.BufferOne{},
			[]string{"00:01:00", "00:02:00", "00:04:00"},
			[]string{"skipped 00:03:00", "ok 00:01:00", "skipped 00:05:00", "skipped 00:06:00", "ok 00:02:00"},
			1,
		},
		{
			"buffer two",
			sched.BufferAll{Max: 2},
			[]string{"00:01:00", "00:02:00", "00:03:00"},
			[]string{"ok 00:01:00", "skipped 00:05:00", "skipped 00:06:00", "ok 00:02:00"},
			1,
		},
		{
			"allow",
			sched.Allow{},
			[]string{"00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00", "00:06:00", "00:07:00"},
			[]string{"ok 00:01:00", "ok 00:02:00", "ok 00:03:00", "ok 00:04:00"},
			3,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: tt.overlap}, 170*time.Second)
				f.start(0)
				f.start(0)
				f.until("00:01:30")
				old := f.owner()
				f.server.Delete(t, testclaims.Key(prefix, "sched/default/owner")) // its run goes on
				f.until("00:01:45")
				if f.owner() == old {
					f.server.Delete(t, testclaims.Key(prefix, "sched/default/owner"))
				}
				f.until("00:07:20")
				f.ledger.want(t, "a", tt.want...)
				if got := f.history("a"); !slices.Equal(got, tt.history) {
					t.Errorf("recorded %v, want %v", got, tt.history)
				}
				deeds := f.ledger.all("a")
				if n := atMost(deeds); n != tt.atOnce {
					t.Errorf("%d at once, want %d", n, tt.atOnce)
				}
				if deeds[0].By == deeds[1].By {
					t.Error("one process ran both: this tests nothing")
				}
			})
		})
	}
	t.Run("a dead runner", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.BufferOne{}}, time.Hour)
			f.start(0)
			f.start(0)
			f.until("00:01:59")
			f.owner().kill()
			f.until("00:02:20")
			f.ledger.want(t, "a", "00:01:00", "00:02:00")
			if got := f.ledger.all("a")[1].From.Sub(time.Date(2000, 1, 1, 0, 1, 59, 0, time.UTC)); got > ttl+time.Second {
				t.Errorf("the next began %v after the death", got)
			}
		})
	})
}

// CancelRunning asks the run to end, and begins the next when its claim is gone.
func TestSemantic14CancelRunning(t *testing.T) {
	t.Run("it stops", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.CancelRunning{}, Handler: func(ctx context.Context, _ sched.Tick) error {
				select {
				case <-time.After(90 * time.Second):
					return nil
				case <-ctx.Done():
					time.Sleep(time.Second)
					return context.Cause(ctx)
				}
			}}, 0)
			f.start(0)
			f.start(0)
			f.until("00:01:30")
			f.server.Delete(t, testclaims.Key(prefix, "sched/default/owner")) // the request goes to another process
			f.until("00:03:30")
			f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00")
			deeds := f.ledger.all("a")
			if n := atMost(deeds); n != 1 {
				t.Errorf("%d at once", n)
			}
			wantIs(t, deeds[0].Err, sched.ErrCancelled)
			if wait := deeds[1].From.Sub(deeds[1].Nominal); wait < time.Second || wait > 2*time.Second {
				t.Errorf("the next began after %v", wait)
			}
			if got := f.history("a"); !slices.Equal(got, []string{"cancelled 00:01:00", "cancelled 00:02:00"}) {
				t.Errorf("%v", got)
			}
		})
	})
	t.Run("it does not stop", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.CancelRunning{}, Handler: func(_ context.Context, tick sched.Tick) error {
				if tick.Nominal.Minute() == 1 {
					time.Sleep(5 * time.Minute)
				}
				return nil
			}}, 0)
			f.start(0)
			f.until("00:03:30")
			f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00")
			deeds := f.ledger.all("a")
			// A drain for it to stop in, and the lease of its claim.
			if wait := deeds[1].From.Sub(deeds[1].Nominal); wait < ttl || wait > ttl+5*time.Second {
				t.Errorf("the next began after %v", wait)
			}
			if deeds[1].Fence <= deeds[0].Fence {
				t.Errorf("fences %d, %d", deeds[0].Fence, deeds[1].Fence)
			}
			if got := f.history("a"); !slices.Contains(got, "lost 00:01:00") {
				t.Errorf("%v", got)
			}
			f.until("00:07:00")
		})
	})
	t.Run("an older one does not come back", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.CancelRunning{}, Guarantee: sched.AtLeastOnce}, 59500*time.Millisecond)
			f.start(0)
			f.start(0)
			f.until("00:01:10")
			runner := f.owner()
			f.server.Delete(t, testclaims.Key(prefix, "sched/default/owner"))
			f.until("00:01:20")
			if f.owner() == runner {
				t.Fatal("the owner runs it: this tests nothing")
			}
			f.until("00:01:57")
			runner.kill() // the claim outlives the tick that is due next
			f.until("00:04:30")
			f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00", "00:04:00")
			if got := f.history("a"); !slices.Contains(got, "lost 00:01:00") {
				t.Errorf("%v", got)
			}
		})
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.CancelRunning{}, Guarantee: sched.AtLeastOnce}, 59500*time.Millisecond)
			f.start(0)
			f.start(0)
			f.until("00:01:58")
			f.owner().kill() // the next is due, and not admitted, when its run is found lost
			f.until("00:03:30")
			f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00")
			if got := f.history("a"); !slices.Contains(got, "lost 00:01:00") {
				t.Errorf("%v", got)
			}
		})
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{
				Name: "a", Schedule: minutely, Overlap: sched.CancelRunning{}, Guarantee: sched.AtLeastOnce,
				Handler: func(ctx context.Context, _ sched.Tick) error {
					<-ctx.Done()
					time.Sleep(time.Second)
					return context.Cause(ctx)
				},
			}, 0)
			f.start(0)
			f.start(0)
			f.until("00:01:10")
			runner := f.owner()
			f.server.Delete(t, testclaims.Key(prefix, "sched/default/owner"))
			f.until("00:01:59.500")
			runner.stop() // it ends when the next waits
			f.until("00:02:30")
			f.ledger.want(t, "a", "00:01:00", "00:02:00")
			if got := f.history("a"); !slices.Equal(got, []string{"interrupted 00:01:00"}) {
				t.Errorf("%v", got)
			}
		})
	})
	t.Run("the newest waits", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			every := calendar.Must(calendar.Every(5*time.Second, 0))
			f.do(sched.Job{Name: "a", Schedule: every, Overlap: sched.CancelRunning{}, Handler: func(context.Context, sched.Tick) error {
				time.Sleep(12 * time.Second) // the drain is 3 s
				return nil
			}}, 0)
			f.start(0)
			f.until("00:00:40")
			if got := f.history("a"); !slices.Contains(got, "skipped 00:00:10") {
				t.Errorf("%v", got)
			}
		})
	})
}

// A run that panics, or calls Goexit, lets go of everything.
func TestSemantic15PanicSafety(t *testing.T) {
	for name, end := range map[string]func(){
		"panic": func() { panic("boom") }, "panic with nil": func() { panic(nil) }, "Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.do(sched.Job{Name: "a", Schedule: minutely, Handler: func(_ context.Context, tick sched.Tick) error {
					if tick.Nominal.Minute()%2 == 1 {
						end()
					}
					return nil
				}}, 0)
				f.start(0)
				f.until("00:04:30")
				f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00", "00:04:00")
				if got := f.history("a"); !slices.Equal(got, []string{"failed 00:01:00", "ok 00:02:00", "failed 00:03:00", "ok 00:04:00"}) {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// Of a job whose runs exclude each other, a tick that is run again goes before the
// next.
func TestDeadRunsGoFirst(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.BufferAll{}, Guarantee: sched.AtLeastOnce}, 65*time.Second)
		for range 3 {
			f.start(0)
		}
		f.until("00:02:01")
		f.owner().kill()
		f.until("00:06:00")
		var got []string
		for _, d := range f.ledger.all("a")[:4] {
			got = append(got, d.Nominal.Format("15:04")+" "+string(rune('0'+d.Attempt)))
		}
		if want := []string{"00:01 1", "00:01 2", "00:02 1", "00:03 1"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
