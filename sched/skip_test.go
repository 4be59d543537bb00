package sched_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// clock returns a time of the bubble's first day.
func clock(text string) time.Time {
	at, err := time.Parse("15:04:05", text)
	if err != nil {
		panic(err)
	}
	return time.Date(2000, 1, 1, at.Hour(), at.Minute(), at.Second(), 0, time.UTC)
}

// wantHistory fails the test unless the job has these records, the oldest first.
func (f *fleet) wantHistory(job string, want ...string) {
	f.Helper()
	if got := f.history(job); !slices.Equal(got, want) {
		f.Errorf("records of %s: %v, want %v", job, got, want)
	}
}

// A skipped tick does not run, is recorded with who and why, and can be taken back.
func TestSkipTick(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.start(0)
		f.start(0)
		f.until("00:01:30")
		op := f.console()
		noErr(t, op.SkipTick(t.Context(), "a", clock("00:03:00"), "a holiday"))
		noErr(t, op.SkipTick(t.Context(), "a", clock("00:04:00"), "by mistake"))
		wantIs(t, op.SkipTick(t.Context(), "a", clock("00:03:00"), ""), sched.ErrSkipped)
		wantIs(t, op.SkipTick(t.Context(), "a", clock("00:03:30"), ""), sched.ErrNotDue)
		wantIs(t, op.SkipTick(t.Context(), "a", clock("00:01:00"), ""), sched.ErrDecided)
		wantIs(t, op.SkipTick(t.Context(), "b", clock("00:03:00"), ""), sched.ErrUnknownJob)
		wantIs(t, op.UnskipTick(t.Context(), "a", clock("00:05:00")), sched.ErrNotSkipped)
		wantIs(t, op.UnskipTick(t.Context(), "b", clock("00:05:00")), sched.ErrUnknownJob)
		if i := f.inspect("a"); len(i.Skips) != 2 || i.Skips[0].By != "operator" || i.Skips[0].Note != "a holiday" || i.Skips[0].Nominal != clock("00:03:00") {
			t.Errorf("%+v", i.Skips)
		}
		noErr(t, op.UnskipTick(t.Context(), "a", clock("00:04:00")))
		f.owner().stop() // a skip outlives the owner
		f.until("00:02:30")
		if i := f.inspect("a"); i.Next != clock("00:04:00") {
			t.Errorf("next is %v", i.Next)
		}
		f.until("00:03:30")
		wantIs(t, op.UnskipTick(t.Context(), "a", clock("00:03:00")), sched.ErrDecided)
		f.until("00:05:30")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:04:00", "00:05:00")
		f.wantHistory("a", "ok 00:01:00", "ok 00:02:00", "skipped 00:03:00", "ok 00:04:00", "ok 00:05:00")
		if e := f.entries("a")[2]; e.Error != "skipped by operator: a holiday" || e.Missed != 0 {
			t.Errorf("%+v", e)
		}
		if n := len(f.under("/skip/")); n != 0 {
			t.Errorf("%d skips are left", n)
		}
	})
}

// A skipped tick counts as neither missed nor caught up with, whatever the policy.
func TestSkipTickAndCatchUp(t *testing.T) {
	for _, c := range []struct {
		policy sched.CatchUp
		runs   []string
		missed int
	}{
		{sched.SkipMissed{}, []string{"00:01:00"}, 0},
		{sched.Latest{}, []string{"00:01:00", "00:04:00"}, 2},
		{sched.All{}, []string{"00:01:00", "00:02:00", "00:03:00", "00:04:00"}, 0},
	} {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, CatchUp: c.policy, Overlap: sched.BufferAll{}}, 0)
			n := f.start(0)
			f.until("00:01:30")
			n.stop()
			noErr(t, f.console().SkipTick(t.Context(), "a", clock("00:05:00"), ""))
			noErr(t, f.console().SkipTick(t.Context(), "a", clock("00:06:00"), ""))
			f.until("00:06:30")
			f.start(0)
			f.until("00:06:50")
			f.ledger.want(t, "a", c.runs...)
			skipped, missed := 0, 0
			for _, e := range f.entries("a") {
				if e.Outcome == sched.OutcomeSkipped {
					skipped++
				}
				if e.Outcome != sched.OutcomeMissed {
					missed += e.Missed
				}
			}
			if skipped != 2 || missed != c.missed || len(f.under("/skip/")) != 0 {
				t.Errorf("%T: %v", c.policy, f.entries("a"))
			}
		})
	}
}

// A tick that waits is taken back at once.
func TestSkipTickThatWaits(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.BufferAll{}}, 150*time.Second)
		f.start(0)
		f.until("00:02:30")
		noErr(t, f.console().SkipTick(t.Context(), "a", clock("00:02:00"), "not needed"))
		wantIs(t, f.console().SkipTick(t.Context(), "a", clock("00:01:00"), "it runs"), sched.ErrDecided)
		f.until("00:04:00")
		f.ledger.want(t, "a", "00:01:00", "00:03:00")
		f.wantHistory("a", "skipped 00:02:00", "ok 00:01:00")
	})
}

// A skip at the time of the admission either takes effect or reports that the tick is
// decided, also if the owner or the operator is slow, or replies are lost.
func TestSkipTickInTime(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, History: 100}, 0)
		owner := f.start(0)
		host := f.server.Host(t)
		op, err := sched.New(claimtest.NewClient(t, host, etcdclaims.Config{Prefix: prefix, Owner: "console", TTL: ttl}), sched.Config{Group: "default"})
		noErr(t, err)
		want := map[string]bool{}
		for m := 1; m <= 40; m++ {
			due := clock("00:00:00").Add(time.Duration(m) * time.Minute)
			time.Sleep(time.Until(due) - 3*time.Millisecond + time.Duration(m%12)*500*time.Microsecond)
			switch m % 4 {
			case 1:
				host.Inject(claimtest.Fault{On: claimtest.Acquire, LoseReply: true})
			case 2:
				host.Inject(claimtest.Fault{On: claimtest.Acquire, LoseRequest: true})
			case 3:
				owner.host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, DelayReply: 20 * time.Millisecond})
			}
			err := op.SkipTick(t.Context(), "a", due, "")
			host.RemoveFaults()
			switch {
			case errors.Is(err, etcdclaims.ErrUnknown): // either
			case err != nil && !errors.Is(err, sched.ErrDecided):
				t.Errorf("%v: %v", due, err)
			case m%5 == 0 && err == nil:
				want[due.Format(time.TimeOnly)] = op.UnskipTick(t.Context(), "a", due) == nil
			default:
				want[due.Format(time.TimeOnly)] = err != nil
			}
			time.Sleep(20 * time.Second)
			owner.host.RemoveFaults()
		}
		ran, skipped := f.ledger.nominals("a"), 0
		for at, runs := range want {
			if slices.Contains(ran, at) != runs {
				t.Errorf("%s ran: %v, want %v", at, !runs, runs)
			}
			if !runs {
				skipped++
			}
		}
		if skipped == 0 || len(ran) == 0 || len(f.entries("a")) != 40 {
			t.Errorf("%d skipped, %d ran, %d records", skipped, len(ran), len(f.entries("a")))
		}
	})
}

// exampleClient returns a client for an example, and a function that closes it.
func exampleClient(prefix string) (claims *etcdclaims.Client, stop func(), err error) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints()})
	if err != nil {
		return nil, nil, err
	}
	claims, err = etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, Owner: "ada"})
	return claims, func() { _ = errors.Join(claims.Close(context.Background()), etcd.Close()) }, err
}

func ExampleScheduler_SkipTick() {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	claims, closeAll, err := exampleClient("/example-skip/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeAll()
	registered := make(chan struct{}, 1)
	scheduler, err := sched.New(claims, sched.Config{Group: "default"})
	if err == nil {
		err = scheduler.Add(sched.Job{
			Name: "invoices", Schedule: calendar.Must(calendar.Cron("30 2 * * *")), RunOnStart: true,
			Handler: func(context.Context, sched.Tick) error { registered <- struct{}{}; return nil },
		})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- scheduler.Run(ctx) }()
	<-registered
	// From here on, as any process of the group can do it.
	job, err := scheduler.Inspect(ctx, "invoices")
	if err == nil {
		err = scheduler.SkipTick(ctx, "invoices", job.Next, "public holiday")
	}
	if err == nil {
		job, err = scheduler.Inspect(ctx, "invoices")
	}
	for _, skip := range job.Skips {
		fmt.Println(skip.By, skip.Note)
		fmt.Println(job.Next.Sub(skip.Nominal))
		err = errors.Join(err, scheduler.UnskipTick(ctx, "invoices", skip.Nominal))
	}
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		fmt.Println(err)
	}
	// Output:
	// ada public holiday
	// 24h0m0s
}

// slowPlan is a schedule that takes two seconds to plan what came due before 00:10.
type slowPlan struct{ begun atomic.Bool }

func (*slowPlan) String() string { return "slow" }

func (s *slowPlan) Next(t time.Time) time.Time {
	if !time.Now().Before(clock("00:10:00")) && strings.Contains(string(debug.Stack()), "planner") && s.begun.CompareAndSwap(false, true) {
		time.Sleep(2 * time.Second)
	}
	return minutely.Next(t)
}

// A plan that was begun before a tick was skipped, or a skip undone, is not carried out.
func TestSkipTickWhilePlanning(t *testing.T) {
	for _, undo := range []bool{false, true} {
		t.Run(fmt.Sprint("undo=", undo), func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				plan := new(slowPlan)
				f.do(sched.Job{Name: "a", Schedule: plan, CatchUp: sched.All{}, Overlap: sched.BufferAll{}}, 0)
				f.start(0)
				f.until("00:01:30")
				if undo {
					noErr(t, f.console().SkipTick(t.Context(), "a", clock("00:05:00"), "no"))
				}
				f.owner().stop()
				f.until("00:10:30")
				f.start(0)
				f.until("00:10:31")
				if !plan.begun.Load() {
					t.Fatal("no plan is being made")
				}
				if undo {
					noErr(t, f.console().UnskipTick(t.Context(), "a", clock("00:05:00")))
				} else {
					noErr(t, f.console().SkipTick(t.Context(), "a", clock("00:05:00"), "no"))
				}
				f.until("00:10:50")
				ran := slices.ContainsFunc(f.ledger.all("a"), func(d deed) bool { return d.Nominal.Equal(clock("00:05:00")) })
				if ran != undo {
					t.Errorf("the tick ran: %v, history %v", ran, f.history("a"))
				}
			})
		})
	}
}

// A skip that a newer version has put holds the ticks of its job, also those of the next
// owner, and is reported as a problem. Nothing runs that was to be left out.
func TestUnreadableSkipHoldsTicks(t *testing.T) {
	t.Parallel()
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "bad", Schedule: minutely, CatchUp: sched.All{Max: 10}, Overlap: sched.BufferAll{Max: 10}}, 0)
		f.do(sched.Job{Name: "good", Schedule: minutely}, 0)
		f.start(0)
		f.start(0)
		f.until("00:01:30")
		key := f.keyOf("bad", "now/skip/J/1-of-a-later-version")
		noErr(t, second(f.etcd.Put(t.Context(), key, `{"v":2,"ticks":["00:03:00"]}`)))
		f.until("00:02:30")
		f.owner().stop()
		f.until("00:03:30")
		f.ledger.want(t, "bad", "00:01:00")
		f.ledger.want(t, "good", "00:01:00", "00:02:00", "00:03:00")
		if i := f.inspect("bad"); !strings.Contains(i.Problem, "skip cannot be read") || !strings.Contains(i.Problem, key) {
			t.Errorf("problem %q", i.Problem)
		}
		if e, err := f.console().Explain(t.Context(), "bad", clock("00:02:00")); err != nil || !strings.Contains(e.String(), "skip cannot be read") {
			t.Errorf("%v, %v", e, err)
		}
		for _, err := range []error{f.console().SkipTick(t.Context(), "bad", clock("00:09:00"), ""), f.console().UnskipTick(t.Context(), "bad", clock("00:09:00"))} {
			if err == nil || errors.Is(err, sched.ErrNotSkipped) {
				t.Errorf("%v", err)
			}
		}
		noErr(t, second(f.etcd.Delete(t.Context(), key)))
		f.until("00:04:30")
		f.ledger.want(t, "bad", "00:01:00", "00:02:00", "00:03:00", "00:04:00")
		if i := f.inspect("bad"); i.Problem != "" {
			t.Errorf("problem %q", i.Problem)
		}
	})
}

// A tick is skipped centuries ahead, by a mistake in its year. The owner sleeps all the same.
func TestSkipFarAhead(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var calls atomic.Int64
		now := func() time.Time {
			if calls.Add(1) > 10_000 {
				time.Sleep(time.Second) // otherwise an owner that never sleeps stops the time
			}
			return time.Now()
		}
		s, err := sched.New(claimtest.NewClient(t, f.server, etcdclaims.Config{Prefix: prefix, TTL: ttl}), sched.Config{Group: "default", Now: now})
		noErr(t, err)
		noErr(t, s.Add(sched.Job{Name: "a", Schedule: minutely, Handler: nothing}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		f.until("00:01:30")
		noErr(t, s.SkipTick(t.Context(), "a", time.Date(2350, 1, 1, 0, 0, 0, 0, time.UTC), "not meant"))
		f.until("00:05:30")
		cancel()
		noErr(t, <-done)
		if n := calls.Load(); n > 1000 {
			t.Errorf("the clock was read %d times in five minutes", n)
		}
	})
}
