package sched_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The thirty semantics, one to eight: what a tick is.

// The identity of a tick is its job and its nominal instant, whoever runs it and
// whatever their clocks say.
func TestSemantic01TickIdentity(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, Handler: func(ctx context.Context, tick sched.Tick) error {
			if on, ok := sched.FromContext(ctx); !ok || !reflect.DeepEqual(on, tick) {
				t.Errorf("on the context: %v, %v", on, ok)
			}
			return nil
		}}, 0)
		f.until("00:00:10")
		f.start(-2 * time.Second)
		f.start(2 * time.Second)
		f.until("00:03:30")
		first := f.owner()
		first.stop()
		f.until("00:05:30")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00")
		for i, d := range f.ledger.all("a") {
			want := time.Date(2000, 1, 1, 0, i+1, 0, 0, time.UTC)
			if d.Nominal != want || d.ID() != "default/a/"+want.Format(time.RFC3339) || d.Manual || d.Attempt != 1 {
				t.Errorf("tick %d: %+v", i, d.Tick)
			}
		}
		if d := f.ledger.all("a"); d[0].By == d[4].By {
			t.Error("one process ran all: this tests nothing")
		}
	})
}

// Nominal, actual and admitted are three things, each in the record and on the
// context.
func TestSemantic02NominalActualAdmitted(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, Jitter: 30 * time.Second}, time.Second)
		f.start(0)
		f.until("00:04:59")
		deeds, entries := f.ledger.all("a"), f.entries("a")
		if len(deeds) != 4 || len(entries) != 4 {
			t.Fatalf("%v; %v", deeds, entries)
		}
		for i, d := range deeds {
			late := d.Actual.Sub(d.Nominal)
			if late < 0 || late >= 30*time.Second || d.From.Sub(d.Actual).Abs() > 50*time.Millisecond {
				t.Errorf("%v was to start at %v", d, d.Actual)
			}
			e := entries[i]
			if e.Nominal != d.Nominal || e.Actual != d.Actual || e.Admitted != d.Admitted || e.Fence != d.Fence || d.Admitted == 0 || d.Fence < d.Admitted {
				t.Errorf("%v is recorded as %+v", d, e)
			}
		}
	})
}

// However many believe to be the owner, a tick is admitted once.
func TestSemantic03AtMostOnceAdmission(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(time.Second, 0)), History: 1000}, 5*time.Millisecond)
		for i := range 5 {
			f.start(time.Duration(i-2) * 30 * time.Millisecond)
		}
		f.until("00:00:20.900")
		for i := range 40 { // the owner is not told, and its successor is at once
			f.server.Delete(t, testclaims.Key(prefix, "sched/default/owner"))
			time.Sleep(997*time.Millisecond + time.Duration(i)*time.Millisecond)
		}
		f.until("00:01:20.900")
		f.ledger.once(t)
		counted := map[string]int{}
		for _, d := range f.ledger.all("a") {
			counted[d.Nominal.Format(time.TimeOnly)]++
		}
		for s := 4; s <= 80; s++ {
			at := time.Date(2000, 1, 1, 0, 0, s, 0, time.UTC).Format(time.TimeOnly)
			if counted[at] > 1 {
				t.Errorf("%s was run %d times", at, counted[at])
			}
			if counted[at] == 0 && !f.explained("a", at) {
				t.Errorf("%s was not run, and nothing says why", at)
			}
		}
	})
}

// explained reports whether a record says why a tick was not run: its own, or the
// count of missed ones of the next.
func (f *fleet) explained(job, nominal string) bool {
	f.Helper()
	for _, e := range f.entries(job) {
		at := e.Nominal.Format(time.TimeOnly)
		if at == nominal && e.Outcome != sched.OutcomeOK || at > nominal && e.Missed > 0 && e.Nominal.Add(-time.Duration(e.Missed)*time.Second).Format(time.TimeOnly) <= nominal {
			return true
		}
	}
	return false
}

// A new job begins when it is registered: nothing before is due.
func TestSemantic04Seeding(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.until("00:03:00")
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(5*time.Minute, 0)), CatchUp: sched.All{Max: 100}, Overlap: sched.Allow{}}, 0)
		f.start(0)
		f.until("00:04:00")
		if high := f.inspect("a").High; high.Before(time.Date(2000, 1, 1, 0, 3, 0, 0, time.UTC)) || high.After(time.Now()) {
			t.Errorf("the mark is %v", high)
		}
		f.until("00:05:30")
		f.ledger.want(t, "a", "00:05:00")
	})
}

// Only the owner moves the mark, and only forward: an owner that was cut off
// across a take-over changes nothing when its requests arrive.
func TestSemantic05MarkIsFenced(t *testing.T) {
	for name, kind := range map[string]claimtest.Kind{"begins as it is admitted": claimtest.Acquire, "waits": claimtest.Other} {
		caseInFleet(t, name, func(t *testing.T, f *fleet) {
			if kind == claimtest.Other {
				f.cfg.Limit = 10 // then no tick begins as it is admitted
			}
			f.do(sched.Job{Name: "a", Schedule: minutely}, 5*time.Millisecond)
			f.start(0)
			f.start(0)
			f.until("00:01:59.900")
			old := f.owner()
			hold := make(chan struct{})
			refused := make(chan error, 16)
			held := old.host.Inject(claimtest.Fault{On: kind, Times: -1, Hold: hold, Ended: func(_ any, err error) { refused <- err }})
			f.until("00:02:00.100")
			if held.Hits() == 0 {
				t.Fatal("no admission was held: this tests nothing")
			}
			old.host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, LoseRequest: true})
			f.until("00:02:30")
			f.ledger.want(t, "a", "00:01:00", "00:02:00")
			before := f.under("/high/")
			close(hold) // the admission of 00:02:00 arrives under the old fence
			time.Sleep(time.Second)
			if after := f.under("/high/"); !slices.Equal(before, after) {
				t.Errorf("the mark was moved: %v, %v", before, after)
			}
			f.until("00:03:30")
			f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00")
			for _, d := range f.ledger.all("a")[1:] {
				if d.By == old.name {
					t.Errorf("run by the old owner: %v", d)
				}
			}
		})
	}
}

// A job says whether a run whose process died is lost, or run again.
func TestSemantic06Delivery(t *testing.T) {
	for _, delivery := range []sched.Guarantee{sched.AtMostOnce, sched.AtLeastOnce} {
		t.Run(delivery.String(), func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(5*time.Minute, 0)), Guarantee: delivery}, 10*time.Second)
				f.start(0)
				f.start(0)
				f.until("00:05:05")
				f.owner().kill()
				f.until("00:06:00")
				f.ledger.once(t)
				deeds, history := f.ledger.all("a"), f.history("a")
				switch delivery {
				case sched.AtMostOnce:
					if len(deeds) != 1 || !slices.Equal(history, []string{"lost 00:05:00"}) {
						t.Errorf("%v, %v", deeds, history)
					}
				default:
					if len(deeds) != 2 || deeds[1].Attempt != 2 || deeds[1].ID() != deeds[0].ID() || deeds[1].Fence <= deeds[0].Fence {
						t.Fatalf("%v", deeds)
					}
					if late := deeds[1].From.Sub(time.Date(2000, 1, 1, 0, 5, 5, 0, time.UTC)); late > ttl+time.Second {
						t.Errorf("run again %v after the kill", late)
					}
					if !slices.Equal(history, []string{"ok 00:05:00"}) {
						t.Errorf("%v", history)
					}
				}
			})
		})
	}
	t.Run("a tick that kills everybody", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(5*time.Minute, 0)), Guarantee: sched.AtLeastOnce, MaxStarts: 2}, time.Minute)
			for range 3 {
				f.start(0)
			}
			f.until("00:05:05")
			f.owner().kill()
			f.until("00:05:35")
			f.owner().kill()
			f.until("00:07:00")
			if deeds, history := f.ledger.all("a"), f.history("a"); len(deeds) != 2 || !slices.Equal(history, []string{"lost 00:05:00"}) {
				t.Errorf("%v, %v", deeds, history)
			}
		})
	})
}

// What a run did is recorded under its claim: a run whose claim is gone is
// abandoned, and never a success.
func TestSemantic07CompletionIsFenced(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var mu sync.Mutex
		var finished []sched.Entry
		f.cfg.Hooks.Finished = func(e sched.Entry) { mu.Lock(); defer mu.Unlock(); finished = append(finished, e) }
		f.do(sched.Job{Name: "a", Schedule: minutely, Handler: func(context.Context, sched.Tick) error {
			time.Sleep(time.Second)
			return nil // whatever happened meanwhile
		}}, 0)
		f.start(0)
		f.until("00:01:00.500")
		f.server.Delete(t, testclaims.Key(prefix, "sched/default/job/a"))
		f.until("00:01:30")
		mu.Lock()
		if len(finished) != 1 || finished[0].Outcome != sched.OutcomeAbandoned {
			t.Errorf("%v", finished)
		}
		mu.Unlock()
		f.until("00:02:30")
		if got := f.history("a"); !slices.Equal(got, []string{"lost 00:01:00", "ok 00:02:00"}) {
			t.Errorf("%v", got)
		}
	})
}

// A handler's context ends before its claim does, with the loss as its cause.
func TestSemantic08OwnershipContext(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		ended := make(chan error, 4)
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(5*time.Minute, 0)), Guarantee: sched.AtLeastOnce, Handler: func(ctx context.Context, tick sched.Tick) error {
			if tick.Attempt > 1 {
				return nil
			}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return context.Cause(ctx)
		}}, 0)
		f.start(0)
		f.start(0)
		f.until("00:05:01")
		cut := time.Now()
		f.owner().host.Cut()
		f.until("00:06:00")
		cause := <-ended
		deeds := f.ledger.all("a")
		if !errors.Is(cause, etcdclaims.ErrLost) || !errors.Is(cause, context.Canceled) {
			t.Errorf("its cause is %v", cause)
		}
		if len(deeds) != 2 || deeds[0].Until.After(deeds[1].From) || deeds[0].Until.Sub(cut) > ttl {
			t.Errorf("%v until %v, then %v", deeds[0], deeds[0].Until, deeds[1:])
		}
	})
}

// A write under the fence of an earlier run of the job is refused.
func TestFencesOrderRuns(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		n := f.start(0)
		f.until("00:03:30")
		deeds := f.ledger.all("a")
		for i, d := range deeds {
			if d.Token.Key != "sched/default/job/a" || d.Token.Fence != d.Fence || i > 0 && d.Fence <= deeds[i-1].Fence {
				t.Errorf("%v has the token %v", d, d.Token)
			}
			if ok, err := n.claims.Owns(t.Context(), d.Token); ok || err != nil {
				t.Errorf("%v owns yet: %v", d, err)
			}
		}
	})
}

// What stands in etcd can be read by people, and is where it is said to be.
func TestKeysInEtcd(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "reports/daily @ten", Schedule: minutely, Overlap: sched.BufferOne{}}, 90*time.Second)
		f.start(0)
		f.until("00:02:20")
		resp, err := f.etcd.Get(t.Context(), prefix, clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, kv := range resp.Kvs {
			k := string(kv.Key)
			for _, part := range []string{"/spec/", "/high/", "/now/ready/", "/now/run/"} {
				if strings.Contains(k, part) {
					seen[part] = true
					if part != "/high/" && !strings.HasPrefix(string(kv.Value), `{"v":1,`) {
						t.Errorf("%s: %s", k, kv.Value)
					}
				}
			}
			if strings.HasPrefix(k, prefix+"sched/") && kv.Lease != 0 {
				t.Errorf("%s is on a lease", k)
			}
			if strings.Contains(k, "reports") && k != prefix+"own/sched/default/job/reports/daily @ten" {
				t.Errorf("the name stands in %s", k)
			}
		}
		if len(seen) != 4 {
			t.Error(fmt.Sprint("there is only ", seen))
		}
	})
}

// A request of the owner's own that comes late, when the owner has long tried
// again, admits nothing.
func TestLateAdmissionOfTheSameOwner(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.BufferAll{}}, 0)
		n := f.start(0)
		f.until("00:01:59")
		hold := make(chan struct{})
		arrived := make(chan error, 1)
		n.host.Inject(claimtest.Fault{On: claimtest.Other, Hold: hold, Ended: func(_ any, err error) { arrived <- err }})
		f.until("00:02:30")
		f.ledger.want(t, "a", "00:01:00", "00:02:00") // by another request
		close(hold)
		noErr(t, <-arrived)
		f.until("00:02:50")
		if !n.sched.IsOwner() {
			t.Error("it is not the owner any more: this tests nothing")
		}
		f.ledger.want(t, "a", "00:01:00", "00:02:00")
	})
}

// The record of a lost run has the fence that the run had, in later epochs too.
func TestFenceOfALostRun(t *testing.T) {
	for _, spread := range []bool{false, true} {
		caseInFleet(t, fmt.Sprintf("spread %v", spread), func(t *testing.T, f *fleet) {
			noErr(t, second(admin.RaiseEpoch(t.Context(), f.etcd, prefix, 6)))
			f.cfg.Spread = spread
			f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(5*time.Minute, 0))}, 10*time.Second)
			for range 3 {
				f.start(0)
			}
			f.until("00:05:05")
			deed := f.ledger.all("a")[0]
			for _, n := range f.nodes {
				if n.name == deed.By {
					n.kill()
				}
			}
			f.until("00:06:00")
			if got := f.entries("a"); len(got) != 1 || got[0].Outcome != sched.OutcomeLost || got[0].Fence != deed.Fence || deed.Fence>>47 != 7 {
				t.Errorf("%v, want fence %d", got, deed.Fence)
			}
		})
	}
}
