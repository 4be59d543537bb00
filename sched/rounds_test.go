package sched_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// within fails the test unless it holds within a second.
func (f *fleet) within(what string, holds func() bool) {
	f.Helper()
	for from := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(from) > time.Second {
			f.Errorf("%s: not within a second", what)
			return
		}
	}
}

// However much is due, each duty of the owner has its turn: requests take 10 ms, and
// ticks come due faster than that.
func TestDutiesUnderLoad(t *testing.T) {
	loads := map[string]func(f *fleet){
		"a job every 5 ms": func(f *fleet) {
			f.do(sched.Job{Name: "busy", Schedule: calendar.Must(calendar.Every(5*time.Millisecond, 0))}, 0)
		},
		"two hundred jobs a second": func(f *fleet) {
			for i := range 200 {
				f.do(sched.Job{Name: fmt.Sprint("busy", i), Schedule: calendar.Must(calendar.Every(time.Second, time.Duration(i)*5*time.Millisecond))}, 0)
			}
		},
		"a backlog": func(f *fleet) {
			f.do(sched.Job{
				Name: "busy", Schedule: calendar.Must(calendar.Every(time.Millisecond, 0)), CatchUp: sched.All{Max: 100_000}, Overlap: sched.Allow{}, StartDeadline: time.Millisecond,
			}, 0)
		},
		"foreign schedules": func(f *fleet) {
			for i := range 20 {
				f.do(sched.Job{Name: fmt.Sprint("busy", i), Schedule: slow{}, Revision: "1"}, 0)
			}
		},
	}
	if !testetcd.Long() {
		delete(loads, "two hundred jobs a second")
		delete(loads, "foreign schedules")
		delete(loads, "a backlog")
	}
	for name, load := range loads {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				var jumped, elected atomic.Int64
				f.cfg.Hooks.ClockJumped = func(time.Duration) { jumped.Add(1) }
				f.cfg.Hooks.Elected = func(int64) { elected.Add(1) }
				load(f)
				f.do(sched.Job{Name: "asked", Schedule: rarely}, 0)
				f.do(sched.Job{Name: "filled", Schedule: minutely}, 0)
				f.do(sched.Job{Name: "orphan", Schedule: rarely, Guarantee: sched.AtLeastOnce, Handler: func(ctx context.Context, tick sched.Tick) error {
					if tick.Attempt == 1 {
						<-ctx.Done()
					}
					return nil
				}}, 0)
				often := calendar.Must(calendar.Every(100*time.Millisecond, 0))
				f.do(sched.Job{Name: "paused", Schedule: often}, 0)
				f.until("00:00:10")
				n := f.start(0)
				f.until("00:00:12")
				n.host.Inject(claimtest.Fault{Times: -1, DelayRequest: 5 * time.Millisecond, DelayReply: 5 * time.Millisecond})
				f.until("00:00:15")
				s, ran := f.console(), func(job string) int { return len(f.ledger.all(job)) }

				noErr(t, second(s.RunNow(t.Context(), "asked")))
				f.within("RunNow", func() bool { return ran("asked") == 1 })
				noErr(t, second(s.Backfill(t.Context(), "filled", time.Now().Add(-10*time.Minute), time.Now(), sched.Allow{})))
				f.within("Backfill", func() bool { return ran("filled") >= 10 })
				noErr(t, second(s.RunNow(t.Context(), "orphan")))
				f.within("RunNow", func() bool { return ran("orphan") == 1 })
				noErr(t, admin.ForceRelease(t.Context(), claimtest.NewClient(t, f.server, etcdclaims.Config{Prefix: prefix}), "sched/default/job/orphan", ""))
				f.within("orphans", func() bool { return ran("orphan") == 2 })
				noErr(t, s.Pause(t.Context(), "paused", ""))
				time.Sleep(time.Second)
				before := ran("paused")
				time.Sleep(time.Second)
				if now := ran("paused"); before == 0 || now != before {
					t.Errorf("Pause: %d runs, then %d", before, now)
				}
				noErr(t, s.Resume(t.Context(), "paused"))
				f.within("Resume", func() bool { return ran("paused") > before })
				noErr(t, n.sched.Add(sched.Job{Name: "added", Schedule: often, Handler: f.ledger.record(n.name, nothing)}))
				f.within("Add", func() bool { return ran("added") > 0 })
				n.skew.Add(int64(3 * time.Second))
				f.within("clock", func() bool { return jumped.Load() == 1 })
				if elected.Load() != 1 {
					t.Errorf("elected %d times", elected.Load())
				}
				n.host.RemoveFaults()
			})
		})
	}
}

// An orphan is settled soon also while the owner has more to admit after each round.
func TestOrphanWhileNothingRests(t *testing.T) {
	testetcd.SkipUnlessLong(t, "many thousand ticks")
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{
			Name: "busy", Schedule: calendar.Must(calendar.Every(time.Millisecond, 0)), CatchUp: sched.All{Max: 100_000}, Overlap: sched.Allow{}, StartDeadline: time.Millisecond,
		}, 0)
		f.do(sched.Job{Name: "orphan", Schedule: rarely, Guarantee: sched.AtLeastOnce, Handler: func(ctx context.Context, tick sched.Tick) error {
			if tick.Attempt == 1 {
				<-ctx.Done()
			}
			return nil
		}}, 0)
		n := f.start(0)
		f.until("00:00:10")
		noErr(t, f.console().Pause(t.Context(), "busy", ""))
		noErr(t, second(f.console().RunNow(t.Context(), "orphan")))
		time.Sleep(8 * time.Second)
		n.host.Inject(claimtest.Fault{Times: -1, DelayRequest: 20 * time.Millisecond, DelayReply: 20 * time.Millisecond})
		noErr(t, second(f.etcd.Delete(t.Context(), f.under("/paused/")[0].name)))
		time.Sleep(500 * time.Millisecond)
		noErr(t, admin.ForceRelease(t.Context(), claimtest.NewClient(t, f.server, etcdclaims.Config{Prefix: prefix}), "sched/default/job/orphan", ""))
		f.within("orphans", func() bool { return len(f.ledger.all("orphan")) == 2 })
		if behind := time.Since(f.inspect("busy").High); behind < 2*time.Second {
			t.Errorf("the owner is %v behind: it had time to rest", behind)
		}
		n.host.RemoveFaults()
	})
}

// slow is a schedule of somebody else's that takes long to say what is due.
type slow struct{}

func (slow) Next(t time.Time) time.Time {
	time.Sleep(time.Millisecond)
	return t.Truncate(100 * time.Millisecond).Add(100 * time.Millisecond)
}

// counting is a schedule that counts how often it is asked.
type counting struct {
	calendar.Schedule
	asked *atomic.Int64
}

func (c counting) Next(t time.Time) time.Time {
	c.asked.Add(1)
	return c.Schedule.Next(t)
}

// What one job costs does not depend on how many others there are: neither its
// ticks, nor that it is paused, resumed, or not as it was thought to be.
func TestCostFollowsWhatIsDue(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var asked atomic.Int64
		for i := range 300 {
			f.do(sched.Job{Name: fmt.Sprint("idle", i), Schedule: counting{rarely, &asked}, Revision: "1"}, 0)
		}
		f.do(sched.Job{Name: "busy", Schedule: calendar.Must(calendar.Every(time.Second, 0)), Overlap: sched.Allow{}}, 0)
		n := f.start(0)
		f.until("00:00:30")
		asked.Store(0)
		before := len(n.host.Sent(claimtest.Range))
		f.until("00:01:00")
		for range 10 {
			noErr(t, f.console().Pause(t.Context(), "busy", ""))
			time.Sleep(time.Second)
			noErr(t, f.console().Resume(t.Context(), "busy"))
			time.Sleep(time.Second)
		}
		if n := asked.Load(); n != 0 {
			t.Errorf("the schedules of idle jobs were asked %d times", n)
		}
		if n := len(n.host.Sent(claimtest.Range)) - before; n == 0 || n > 40 {
			t.Errorf("%d reads in 50 seconds", n)
		}
	})
}

// Many missed ticks are admitted by few transactions.
func TestBacklogInFewRequests(t *testing.T) {
	sizes := []int{2000}
	if testetcd.Long() {
		sizes = []int{8000, 10_000}
	}
	for _, missed := range sizes {
		t.Run(fmt.Sprint(missed), func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.do(sched.Job{
					Name: "a", Schedule: calendar.Must(calendar.Every(time.Second, 0)), CatchUp: sched.All{Max: 10_000},
					Overlap: sched.BufferAll{Max: 10_000},
				}, 24*time.Hour)
				n := f.start(0)
				f.until("00:00:10")
				noErr(t, f.console().Pause(t.Context(), "a", ""))
				time.Sleep(time.Second)
				n.stop()
				noErr(t, second(f.etcd.Delete(t.Context(), f.under("/paused/")[0].name)))
				time.Sleep(time.Duration(missed) * time.Second)
				n = f.start(0)
				time.Sleep(100 * time.Millisecond)
				before := len(n.host.Sent(claimtest.Other))
				time.Sleep(2 * time.Second)
				if got := len(f.inspect("a").Waiting); got < missed-20 || got > missed+20 {
					t.Errorf("%d wait, want %d", got, missed)
				}
				if n := len(n.host.Sent(claimtest.Other)); n > missed/20 || before == 0 {
					t.Errorf("%d transactions for %d ticks", n, missed)
				}
				noErr(t, f.console().Cancel(t.Context(), "a", ""))
				time.Sleep(2 * time.Second)
			})
		})
	}
}
