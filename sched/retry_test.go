package sched_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"google.golang.org/grpc/codes"
)

var errNoDisk = errors.New("no disk")

var tenMinutely = calendar.Must(calendar.Every(10*time.Minute, 0))

// failing returns a handler whose first attempts of each tick fail.
func failing(attempts int, takes time.Duration) func(context.Context, sched.Tick) error {
	return func(ctx context.Context, tick sched.Tick) error {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if tick.Attempt <= attempts {
			return fmt.Errorf("attempt %d: %w", tick.Attempt, errNoDisk)
		}
		return nil
	}
}

// wantAttempts fails the test unless each run was the next attempt of one tick, with a
// greater fence and after the wait.
func (f *fleet) wantAttempts(job string, want int, least time.Duration) {
	f.Helper()
	deeds := f.ledger.all(job)
	if len(deeds) != want {
		f.Fatalf("%v, want %d attempts", deeds, want)
	}
	for i, d := range deeds[1:] {
		before := deeds[i]
		if d.ID() != before.ID() || d.Attempt != before.Attempt+1 || d.Fence <= before.Fence || d.From.Sub(before.Until) < least {
			f.Errorf("%v after %v, which ended at %v", d, before, before.Until)
		}
	}
}

// A failed run is tried again as another attempt of its tick, later each time. Each attempt
// is recorded.
func TestRetry(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{
			Name: "a", Schedule: minutely, PauseOnFailure: 1, Handler: failing(2, time.Second),
			Retry: sched.Retry{Max: 3, Backoff: 4 * time.Second},
		}, 0)
		f.start(0)
		f.start(0)
		f.until("00:01:30")
		f.wantAttempts("a", 3, 2*time.Second)
		if d := f.ledger.all("a"); d[1].From.Sub(d[0].Until) > 5*time.Second || d[2].From.Sub(d[1].Until) < 4*time.Second {
			t.Errorf("%v", d)
		}
		f.wantHistory("a", "failed 00:01:00", "failed 00:01:00", "ok 00:01:00")
		for i, e := range f.entries("a") {
			if e.Attempt != i+1 || e.Again != (i < 2) {
				t.Errorf("%+v", e)
			}
		}
		if f.inspect("a").Paused != nil {
			t.Error("attempts that are repeated count as failed runs")
		}
	})
}

// A tick without an attempt left is recorded as failed for good, and Backfill runs it.
func TestRetryExhausted(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		broken := true
		f.do(sched.Job{Name: "a", Schedule: tenMinutely, Retry: sched.Retry{Max: 2}, Handler: func(context.Context, sched.Tick) error {
			if broken {
				panic("no disk")
			}
			return nil
		}}, 0)
		f.do(sched.Job{
			Name: "b", Schedule: tenMinutely, Handler: failing(1, 0),
			Retry: sched.Retry{Max: 2, On: func(err error) bool { return !errors.Is(err, errNoDisk) }},
		}, 0)
		f.do(sched.Job{Name: "c", Schedule: tenMinutely, Handler: failing(1, 0), Retry: sched.Retry{Max: 2, On: func(error) bool { panic("no opinion") }}}, 0)
		f.start(0)
		f.until("00:10:30")
		f.wantAttempts("a", 3, 500*time.Millisecond)
		f.wantHistory("a", "failed 00:10:00", "failed 00:10:00", "failed 00:10:00")
		f.wantHistory("b", "failed 00:10:00")
		f.wantHistory("c", "failed 00:10:00")
		if e := f.entries("a"); e[2].Again || !e[1].Again || f.entries("b")[0].Again {
			t.Errorf("%v", e)
		}
		broken = false
		noErr(t, second(f.console().Backfill(t.Context(), "a", clock("00:10:00"), clock("00:10:00").Add(1), nil)))
		f.until("00:11:00")
		if e := f.inspect("a").Last; e == nil || e.Outcome != sched.OutcomeOK || e.Nominal != clock("00:10:00") {
			t.Errorf("%v", e)
		}
	})
}

// Overlap decides about a tick that comes due while another waits for its next attempt.
// With a buffer it begins after that one.
func TestRetryAndOverlap(t *testing.T) {
	for _, c := range []struct {
		overlap sched.Overlap
		runs    string // minutes
		records []string
	}{
		{sched.Skip{}, "11", []string{"skipped 00:02:00", "ok 00:01:00"}},
		{sched.BufferOne{}, "11", []string{"skipped 00:02:00", "ok 00:01:00"}},
		{sched.BufferAll{}, "112", []string{"ok 00:01:00", "ok 00:02:00"}},
		{sched.CancelRunning{}, "12", []string{"skipped 00:01:00", "ok 00:02:00"}},
		{sched.Allow{}, "121", []string{"ok 00:02:00", "ok 00:01:00"}},
	} {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.cfg.Spread = true
			f.do(sched.Job{
				Name: "a", Schedule: minutely, Overlap: c.overlap,
				Handler: func(ctx context.Context, tick sched.Tick) error {
					return failing(2-tick.Nominal.Minute(), 2*time.Second)(ctx, tick)
				},
				// However short or long the wait is at random, the second attempt begins after 00:02:00 and before 00:03:00.
				Retry: sched.Retry{Max: 1, Backoff: 117 * time.Second},
			}, 0)
			f.start(0)
			f.start(0)
			f.until("00:03:10")
			runs := ""
			for _, d := range f.ledger.all("a") {
				if d.Nominal.Before(clock("00:03:00")) {
					runs += fmt.Sprint(d.Nominal.Minute())
				}
			}
			want := append([]string{"failed 00:01:00"}, c.records...)
			got := slices.DeleteFunc(f.history("a"), func(e string) bool { return strings.HasSuffix(e, "00:03:00") })
			if runs != c.runs || !slices.Equal(got, want) {
				t.Errorf("%T: ran %s, want %s; %v, want %v", c.overlap, runs, c.runs, got, want)
			}
		})
	}
}

// A tick that waits for its next attempt survives the owner, and is begun once.
func TestRetrySurvivesOwner(t *testing.T) {
	for _, spread := range []bool{false, true} {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.cfg.Spread = spread
			f.do(sched.Job{Name: "a", Schedule: tenMinutely, Handler: failing(1, time.Second), Retry: sched.Retry{Max: 1, Backoff: 40 * time.Second}}, 0)
			f.start(0)
			f.start(0)
			f.until("00:10:05")
			f.owner().kill()
			f.until("00:12:00")
			f.wantAttempts("a", 2, 15*time.Second)
			f.wantHistory("a", "failed 00:10:00", "ok 00:10:00")
		})
	}
}

// A wrong clock does not make a tick wait longer than its backoff.
func TestRetryAndClocks(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: tenMinutely, Handler: failing(1, time.Second), Retry: sched.Retry{Max: 1, Backoff: 40 * time.Second}}, 0)
		ahead := f.start(time.Hour / 2)
		f.until("00:10:05")
		ahead.kill()
		f.start(-time.Hour)
		f.until("00:11:30")
		f.wantAttempts("a", 2, 15*time.Second)
	})
}

// A run that was lost is not tried again by Retry: it may have done its work. A frozen run
// that fails after its claim is gone changes nothing.
func TestRetryIsFenced(t *testing.T) {
	for _, fault := range []string{"kill", "freeze"} {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: tenMinutely, Handler: failing(1, 3*time.Second), Retry: sched.Retry{Max: 5, Backoff: time.Second}}, 0)
			f.start(0)
			f.start(0)
			f.until("00:10:01")
			n := f.owner()
			if fault == "kill" {
				n.kill()
			} else {
				n.host.Inject(claimtest.Fault{Times: -1, Code: codes.Unavailable})
			}
			f.until("00:12:00")
			n.host.RemoveFaults()
			f.until("00:15:00")
			if d := f.ledger.all("a"); len(d) != 1 {
				t.Errorf("%s: %v", fault, d)
			}
			f.wantHistory("a", "lost 00:10:00")
		})
	}
}

// The end of a failed run is recorded once, with one next attempt, whatever is lost.
func TestRetryUnderFaults(t *testing.T) {
	for _, overlap := range []sched.Overlap{sched.Skip{}, sched.CancelRunning{}} {
		for _, fault := range []claimtest.Fault{
			{On: claimtest.Other, LoseReply: true, Times: 2},
			{On: claimtest.Other, LoseRequest: true, Times: 2},
			{On: claimtest.Other, LoseReply: true, Code: codes.Unavailable, Times: 3},
			{On: claimtest.Acquire, LoseReply: true},
		} {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.do(sched.Job{
					Name: "a", Schedule: tenMinutely, Overlap: overlap, Handler: failing(2, time.Second),
					Retry: sched.Retry{Max: 2, Backoff: 100 * time.Millisecond},
				}, 0)
				n := f.start(0)
				f.until("00:10:00.5")
				hits := n.host.Inject(fault)
				f.until("00:12:00")
				f.wantAttempts("a", 3, 50*time.Millisecond)
				f.wantHistory("a", "failed 00:10:00", "failed 00:10:00", "ok 00:10:00")
				if hits.Hits() == 0 {
					t.Errorf("%+v did not happen", fault)
				}
			})
		}
	}
}

// Cancel and StartDeadline take back a tick that waits for its next attempt.
func TestRetryTakenBack(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		for _, name := range []string{"cancel", "late"} {
			j := sched.Job{Name: name, Schedule: tenMinutely, Handler: failing(9, time.Second), Retry: sched.Retry{Max: 1, Backoff: time.Minute}}
			if name == "late" {
				j.StartDeadline = 20 * time.Second
			}
			f.do(j, 0)
		}
		f.start(0)
		f.until("00:10:10")
		if w := f.inspect("cancel").Waiting; len(w) != 1 || w[0].Attempt != 2 || w[0].After.Sub(clock("00:10:00")) < 30*time.Second {
			t.Errorf("%+v", w)
		}
		noErr(t, f.console().Cancel(t.Context(), "cancel", "enough"))
		f.until("00:15:00")
		f.wantHistory("cancel", "failed 00:10:00", "cancelled 00:10:00")
		f.wantHistory("late", "failed 00:10:00", "late 00:10:00")
		for _, job := range []string{"cancel", "late"} {
			if e := f.inspect(job).Last; len(f.ledger.all(job)) != 1 || e.Attempt != 1 || e.Again {
				t.Errorf("%v", e)
			}
		}
	})
}

// Cancel also takes back the next attempt of a tick whose run is just ending, is lost, or
// has not called its handler.
func TestRetryAfterCancel(t *testing.T) {
	slow := func(ctx context.Context, _ sched.Tick) error {
		time.Sleep(5 * time.Second)
		return cmp.Or(context.Cause(ctx), errNoDisk)
	}
	again := sched.Retry{Max: 5, Backoff: 10 * time.Second}
	for _, c := range []struct {
		name   string
		job    sched.Job
		fault  claimtest.Fault
		at     string // when it happens to the owner, which runs the tick
		happen func(n *node)
		cancel string // when
		runs   int
		record string
		text   string
	}{
		{
			"fails",
			sched.Job{Retry: again},
			claimtest.Fault{On: claimtest.Other, DelayRequest: 3 * time.Second},
			"00:10:04", nil, "00:10:06",
			1, "failed", "no disk; not tried again",
		},
		{
			"is interrupted",
			sched.Job{Guarantee: sched.AtLeastOnce},
			claimtest.Fault{},
			"00:10:04", func(n *node) { go n.stop() }, "00:10:04.5",
			1, "interrupted", "not begun again: cancelled",
		},
		{
			"is lost",
			sched.Job{Guarantee: sched.AtLeastOnce},
			claimtest.Fault{},
			"00:10:04", func(n *node) { n.kill() }, "00:10:06",
			1, "lost", "not begun again: cancelled",
		},
		{
			"begins",
			sched.Job{Retry: again},
			claimtest.Fault{On: claimtest.Acquire, DelayReply: 3 * time.Second},
			"00:09:59", nil, "00:10:01",
			0, "cancelled", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				c.job.Name, c.job.Schedule, c.job.Handler = "a", tenMinutely, slow
				f.do(c.job, 0)
				f.start(0)
				f.start(0)
				f.until(c.at)
				if c.happen != nil {
					c.happen(f.owner())
				} else {
					c.fault.Key = "sched/default/job/a"
					f.owner().host.Inject(c.fault)
				}
				f.until(c.cancel)
				noErr(t, f.console().Cancel(t.Context(), "a", "enough"))
				f.until("00:13:00")
				if d := f.ledger.all("a"); len(d) != c.runs {
					t.Errorf("%v", d)
				}
				f.wantHistory("a", c.record+" 00:10:00")
				if e := f.entries("a")[0]; e.Again || !strings.Contains(e.Error, c.text) || !strings.HasSuffix(e.Error, "cancelled by operator: enough") {
					t.Errorf("%+v", e)
				}
				f.until("00:20:04")
				if d := f.ledger.all("a"); len(d) != c.runs+1 {
					t.Errorf("Cancel affects a later tick: %v", d)
				}
			})
		})
	}
}

// Hooks.Finished receives what is recorded: a failed run has no other attempt if a newer
// tick waits by then.
func TestRetryReplaced(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inFleet(t, func(t *testing.T, f *fleet) {
			var finished atomic.Pointer[sched.Entry]
			f.cfg.Hooks.Finished = func(e sched.Entry) {
				if e.Nominal == clock("00:01:00") {
					finished.Store(&e)
				}
			}
			f.do(sched.Job{
				Name: "a", Schedule: minutely, Overlap: sched.CancelRunning{}, Handler: failing(1, 59*time.Second),
				Retry: sched.Retry{Max: 1},
			}, 0)
			n := f.start(0)
			f.until("00:01:55")
			n.host.Inject(claimtest.Fault{On: claimtest.Other, Key: "sched/default/job/a", DelayRequest: 3 * time.Second, LoseReply: lost})
			f.until("00:02:30")
			got := finished.Load()
			if got == nil || got.Outcome != sched.OutcomeFailed || got.Again || !strings.Contains(got.Error, "a newer tick waits") {
				t.Fatalf("%+v", got)
			}
			if all := f.entries("a"); len(all) != 1 || all[0].Again || all[0].Error != got.Error {
				t.Errorf("%+v; %+v", all, got)
			}
		})
	}
}

// AtLeastOnce and Retry count attempts apart.
func TestRetryAndDelivery(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{
			Name: "a", Schedule: tenMinutely, Handler: failing(1, 5*time.Second), Guarantee: sched.AtLeastOnce, MaxStarts: 2,
			Retry: sched.Retry{Max: 1, Backoff: time.Second},
		}, 0)
		f.start(0)
		f.start(0)
		f.until("00:10:08") // the second attempt
		f.owner().kill()
		f.until("00:12:00")
		f.wantAttempts("a", 3, -time.Hour)
		f.wantHistory("a", "failed 00:10:00", "ok 00:10:00")
	})
}

// Without etcd, failed runs are tried again in their process.
func TestRetryPassthrough(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		s, err := sched.New(without(t), sched.Config{Group: "default"})
		noErr(t, err)
		noErr(t, s.Add(sched.Job{
			Name: "a", Schedule: tenMinutely, Handler: f.ledger.record("local", failing(2, time.Second)), Retry: sched.Retry{Max: 1, Backoff: 4 * time.Second},
		}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		f.until("00:12:00")
		cancel()
		noErr(t, <-ended)
		d := f.ledger.all("a")
		if len(d) != 2 || d[1].Attempt != 2 || d[1].ID() != d[0].ID() || d[1].From.Sub(d[0].Until) < 2*time.Second {
			t.Errorf("%v", d)
		}
	})
}

// A tick that waits for its next attempt delays no other if runs may overlap, and a clock
// that is set back does not make it wait longer.
func TestPassthroughRetryAndOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		var back atomic.Int64
		s, err := sched.New(without(t), sched.Config{Group: "default", Now: func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }})
		noErr(t, err)
		noErr(t, s.Add(sched.Job{
			Name: "a", Schedule: minutely, Overlap: sched.Allow{}, Retry: sched.Retry{Max: 1, Backoff: 4 * time.Minute},
			Handler: l.record("local", func(_ context.Context, tick sched.Tick) error {
				if tick.Nominal.Minute() == 1 && tick.Attempt == 1 {
					return errNoDisk
				}
				return nil
			}),
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute+time.Second)
		defer cancel()
		go func() {
			time.Sleep(90 * time.Second)
			back.Store(int64(time.Hour))
		}()
		noErr(t, s.Run(ctx))
		all := l.all("a")
		i := slices.IndexFunc(all, func(d deed) bool { return d.Attempt == 2 })
		if len(all) < 2 || i < 0 || all[i].From.After(all[0].Until.Add(5*time.Minute)) {
			t.Errorf("%v", all)
		}
	})
}

func TestRetryIsChecked(t *testing.T) {
	s, err := sched.New(without(t), sched.Config{Group: "default"})
	noErr(t, err)
	for _, r := range []sched.Retry{{Max: -1}, {Max: 101}, {Max: 1, Backoff: -1}} {
		if s.Add(sched.Job{Name: "a", Schedule: minutely, Handler: failing(0, 0), Retry: r}) == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
}

func ExampleRetry() {
	job := sched.Job{
		Name: "invoices", Schedule: calendar.Must(calendar.Every(time.Second, 0)),
		Retry: sched.Retry{
			Max: 2, Backoff: 20 * time.Millisecond,
			On: func(err error) bool { return errors.Is(err, errNoDisk) },
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	job.Handler = func(_ context.Context, tick sched.Tick) error {
		fmt.Println("attempt", tick.Attempt)
		if tick.Attempt < 3 {
			return errNoDisk
		}
		stop()
		return nil
	}
	claims, err := etcdclaims.NewPassthrough(etcdclaims.Config{}) // without etcd, to be short
	if err != nil {
		panic(err)
	}
	scheduler, err := sched.New(claims, sched.Config{Group: "default"})
	if err == nil {
		err = scheduler.Add(job)
	}
	if err == nil {
		err = scheduler.Run(ctx)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
}

// A tick that waits for its next attempt holds up ticks behind it, but no longer than it
// is there, and none that go before it.
func TestRetryRestsAlone(t *testing.T) {
	job := func(wait time.Duration) sched.Job {
		return sched.Job{
			Name: "a", Schedule: minutely, Overlap: sched.BufferAll{}, Handler: failing(1, time.Second),
			Retry: sched.Retry{Max: 1, Backoff: wait},
		}
	}
	t.Run("replaced", func(t *testing.T) {
		for i := range 10 {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.cfg.Spread = i%2 == 1
				j := job(20 * time.Minute)
				j.Overlap = sched.CancelRunning{}
				f.do(j, 0)
				f.start(0)
				f.until("00:06:30")
				if got := f.ledger.all("a"); len(got) != 6 {
					t.Errorf("%v", got)
				}
			})
		}
	})
	t.Run("a backfill", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			j := job(4 * time.Hour)
			j.Schedule = tenMinutely
			f.do(j, 0)
			f.start(0)
			f.until("00:01:00")
			_, err := f.console().Backfill(t.Context(), "a", clock("00:00:00"), clock("00:00:00").Add(1), nil)
			noErr(t, err)
			f.until("00:10:30")
			f.ledger.want(t, "a", "00:00:00", "00:10:00")
		})
	})
}

// The longest Backoff cannot be doubled. Its ticks wait for years all the same.
func TestRetryWithALongBackoff(t *testing.T) {
	for _, backoff := range []time.Duration{math.MaxInt64, 1 << 62, 10 * 365 * 24 * time.Hour} {
		for retries := range 10 {
			if d := (sched.Retry{Max: 100, Backoff: backoff}).WaitAfter(retries); d < 4*365*24*time.Hour {
				t.Errorf("Backoff %v after %d retries: %v", backoff, retries, d)
			}
		}
	}
}
