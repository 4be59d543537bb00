package sched_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// The thirty semantics, sixteen to twenty-two: time.

// shifted is a schedule as a machine with another tz database has it: with the
// same text, and at other instants.
type shifted struct {
	calendar.Schedule
	by time.Duration
}

func (s shifted) Next(t time.Time) time.Time { return s.Schedule.Next(t.Add(-s.by)).Add(s.by) }
func (s shifted) String() string             { return "TZ=Somewhere 0 * * * *" }

// A zone belongs to the schedule, and one process at a time says what it means:
// replicas that disagree do not both run their instants.
func TestSemantic16Zones(t *testing.T) {
	for _, zone := range []string{"Local", ""} {
		if _, err := calendar.Cron("0 0 * * *", calendar.In(zone)); err == nil {
			t.Errorf("zone %q was taken", zone)
		}
	}
	inFleet(t, func(t *testing.T, f *fleet) {
		ten := calendar.Must(calendar.Every(10*time.Minute, 0))
		f.do(sched.Job{Name: "a", Schedule: shifted{ten, 0}}, 0)
		f.start(0)
		time.Sleep(time.Second)
		f.jobs = nil
		f.do(sched.Job{Name: "a", Schedule: shifted{ten, 3 * time.Minute}}, 0)
		f.start(0)
		f.until("00:25:00")
		f.ledger.want(t, "a", "00:10:00", "00:20:00")
		f.owner().stop() // at 00:25: what was due, and is next, is what the other says
		f.until("00:44:00")
		f.ledger.want(t, "a", "00:10:00", "00:20:00", "00:23:00", "00:33:00", "00:43:00")
		if at := f.ledger.all("a")[0].Nominal.Location(); at != time.UTC {
			t.Errorf("the nominal time is in %v", at)
		}
	})
}

// Where clocks are changed, what the schedule's policies say is run, once.
func TestSemantic17GapAndFold(t *testing.T) {
	testetcd.SkipRace(t)
	for _, tt := range []struct {
		name, expr string
		from       time.Time
		want       []string // UTC
	}{
		{"gap, fire", "TZ=America/New_York 30 2 * * *", time.Date(2026, 3, 8, 6, 28, 0, 0, time.UTC), []string{"07:00:00"}},
		{"gap, skip", "TZ=America/New_York GAP=skip 30 2 * * *", time.Date(2026, 3, 8, 6, 28, 0, 0, time.UTC), nil},
		{"fold, first", "TZ=America/New_York 30 1 * * *", time.Date(2026, 11, 1, 5, 28, 0, 0, time.UTC), []string{"05:30:00"}},
		{"fold, last", "TZ=America/New_York FOLD=last 30 1 * * *", time.Date(2026, 11, 1, 5, 28, 0, 0, time.UTC), []string{"06:30:00"}},
		{"fold, both", "TZ=America/New_York FOLD=both 30 1 * * *", time.Date(2026, 11, 1, 5, 28, 0, 0, time.UTC), []string{"05:30:00", "06:30:00"}},
		{"fold, each hour", "TZ=America/New_York 30 * * * *", time.Date(2026, 11, 1, 5, 28, 0, 0, time.UTC), []string{"05:30:00", "06:30:00"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Cron(tt.expr))}, 0)
				f.start(time.Until(tt.from))
				time.Sleep(64 * time.Minute)
				f.ledger.want(t, "a", tt.want...)
			})
		})
	}
}

// plain is a schedule of somebody else's.
type plain struct{}

func (plain) Next(t time.Time) time.Time { return t.Truncate(7 * time.Minute).Add(7 * time.Minute) }

// Schedules are functions of time with one method, so that those of others fit;
// one that cannot say what it is needs a revision.
func TestSemantic18SchedulesOfOthers(t *testing.T) {
	s, err := sched.New(without(t), sched.Config{Group: "default"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add(sched.Job{Name: "a", Schedule: plain{}, Handler: nothing}); err == nil || !strings.Contains(err.Error(), "Revision") {
		t.Errorf("%v", err)
	}
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: plain{}, Revision: "1"}, 0)
		f.start(0)
		f.until("00:30:00")
		var times []string
		for at := (plain{}).Next(time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC)); at.Before(time.Now()); at = (plain{}).Next(at) {
			times = append(times, at.Format(time.TimeOnly))
		}
		f.ledger.want(t, "a", times...)
	})
}

func nothing(context.Context, sched.Tick) error { return nil }

// Periods count from the epoch: neither a start nor a take-over moves them.
func TestSemantic19IntervalsAreAnchored(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(90*time.Second, 10*time.Second))}, 0)
		f.until("00:00:47.123")
		f.start(0)
		f.until("00:02:33.456")
		f.start(0)
		f.until("00:04:00")
		f.owner().stop()
		f.until("00:08:00")
		// 00:00:00 of that day is a multiple of 90 s after the epoch.
		f.ledger.want(t, "a", "00:01:40", "00:03:10", "00:04:40", "00:06:10", "00:07:40")
	})
}

// Jitter moves the start and not the identity; every process draws the same.
func TestSemantic20Jitter(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, Jitter: time.Hour}, 0) // is cut to a minute
		f.start(0)
		f.start(0)
		f.until("00:03:30")
		f.owner().kill()
		f.until("00:12:00")
		f.ledger.once(t)
		seen := map[time.Duration]bool{}
		for _, d := range f.ledger.all("a") {
			late := d.Actual.Sub(d.Nominal)
			seen[late] = true
			if d.Nominal.Second() != 0 || late < 0 || late >= time.Minute || d.From.Before(d.Actual) {
				t.Errorf("%v, to start at %v", d, d.Actual)
			}
		}
		if len(seen) < 8 {
			t.Errorf("%d different delays of 8 or more ticks", len(seen))
		}
		// With catch-up Latest, the take-over misses one tick at most.
		for i, d := range f.ledger.all("a")[1:] {
			if gap := d.Nominal.Sub(f.ledger.all("a")[i].Nominal); gap != time.Duration(d.Missed+1)*time.Minute {
				t.Errorf("%v comes %v after the tick before, with %d missed", d, gap, d.Missed)
			}
		}
	})
}

// For callers who have no tick, a claim can be held for a least time. Nothing in
// this package needs that: the mark does more.
func TestSemantic21MinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		var mu sync.Mutex
		runs := 0
		var wg sync.WaitGroup
		for i := range 3 {
			claims := claimtest.NewClient(t, server.Host(t), etcdclaims.Config{Prefix: prefix, TTL: ttl})
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 30 * time.Millisecond) // the skew of three clocks
				for range 10 {
					_ = claims.TryRun(t.Context(), "report", func(context.Context) error {
						mu.Lock()
						runs++
						mu.Unlock()
						time.Sleep(5 * time.Millisecond)
						return nil
					}, etcdclaims.MinHold(30*time.Second))
					time.Sleep(time.Minute - 5*time.Millisecond)
				}
			})
		}
		wg.Wait()
		if runs != 10 {
			t.Errorf("%d runs of 10 ticks", runs)
		}
	})
}

// The wall clock says when, and nothing else. A step of it is seen, and the
// ownership verified before anything is admitted.
func TestSemantic22Clock(t *testing.T) {
	for _, tt := range []struct {
		name string
		step time.Duration
		want []string
		miss int
	}{
		{"forward", time.Hour, []string{"00:01:00", "00:02:00", "01:02:00", "01:03:00", "01:04:00"}, 59},
		{"back", -time.Hour, []string{"00:01:00", "00:02:00"}, 0},
		{"back a little", -90 * time.Second, []string{"00:01:00", "00:02:00", "00:03:00"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				jumps := make(chan time.Duration, 8)
				f.cfg.Hooks.ClockJumped = func(by time.Duration) { jumps <- by }
				f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
				n := f.start(0)
				f.until("00:02:30")
				asked := len(n.host.Sent(claimtest.Verify))
				n.skew.Add(int64(tt.step))
				n.host.StepClock(tt.step)
				f.until("00:02:45")
				if len(jumps) != 1 {
					t.Fatalf("%d jumps were seen", len(jumps))
				}
				if by := <-jumps; by != tt.step {
					t.Errorf("it jumped by %v", by)
				}
				if len(n.host.Sent(claimtest.Verify)) == asked {
					t.Error("the ownership was not verified")
				}
				f.until("00:04:59")
				f.ledger.want(t, "a", tt.want...)
				for _, d := range f.ledger.all("a")[2:] {
					if d.Missed > 0 && d.Missed != tt.miss {
						t.Errorf("%v was told of %d missed", d, d.Missed)
					}
				}
			})
		})
	}
	// An owner that slept past its lease admits nothing when it wakes.
	t.Run("sleep", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
			f.start(0)
			f.start(0)
			f.until("00:01:30")
			old := f.owner()
			old.host.Suspend(time.Hour)
			old.skew.Add(int64(time.Hour))
			f.until("00:02:30")
			if d := f.ledger.all("a"); slices.ContainsFunc(d[1:], func(d deed) bool { return d.By == old.name && d.Nominal.Hour() > 0 }) {
				t.Errorf("%v", d)
			}
			f.ledger.once(t)
		})
	})
}

// A step is one jump, also if the owner notices it before its claim is verified.
func TestClockJumpIsSeenOnce(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var jumps, elections atomic.Int64
		f.cfg.Hooks.ClockJumped = func(time.Duration) { jumps.Add(1) }
		f.cfg.Hooks.Elected = func(int64) { elections.Add(1) }
		f.do(sched.Job{Name: "a", Schedule: rarely}, 0)
		n := f.start(0)
		f.until("00:00:10")
		n.skew.Add(int64(time.Hour))
		n.host.StepClock(time.Hour)
		noErr(t, second(f.console().RunNow(t.Context(), "a"))) // wakes the owner
		f.until("00:00:20")
		if jumps.Load() != 1 || elections.Load() != 1 {
			t.Errorf("%d jumps, %d elections", jumps.Load(), elections.Load())
		}
		f.ledger.want(t, "a", "00:00:10")
	})
}
