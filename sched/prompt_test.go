package sched_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/sched"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A tick that has nothing to wait for begins one round trip after it is due, and takes three
// in all. If runs are bounded or spread, it takes four.
func TestTickBeginsAsItIsAdmitted(t *testing.T) {
	for name, test := range map[string]struct {
		cfg         sched.Config
		late, trips int
	}{
		"one process": {sched.Config{Group: "default"}, 1, 3},
		"Limit":       {sched.Config{Group: "default", Limit: 1}, 2, 4},
	} {
		caseInFleet(t, name, func(t *testing.T, f *fleet) {
			const rtt = 20 * time.Millisecond
			f.cfg = test.cfg
			f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
			n := f.start(0)
			requests := n.host.Inject(claimtest.Fault{On: claimtest.Acquire, Times: -1, DelayRequest: rtt})
			others := n.host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, DelayRequest: rtt})
			releases := n.host.Inject(claimtest.Fault{On: claimtest.Release, Times: -1, DelayRequest: rtt})
			f.until("00:00:59")
			before := requests.Hits() + others.Hits() + releases.Hits()
			f.until("00:01:02")
			if trips := requests.Hits() + others.Hits() + releases.Hits() - before; trips != test.trips {
				t.Errorf("%d round trips, want %d", trips, test.trips)
			}
			d := f.ledger.all("a")
			if len(d) != 1 {
				t.Fatal(d)
			}
			if late := d[0].From.Sub(d[0].Nominal).Round(rtt / 2); late != time.Duration(test.late)*rtt {
				t.Errorf("it began %v late, want %d round trips of %v", late, test.late, rtt)
			}
		})
	}
}

// Whatever becomes of the request that admits and begins a tick, the tick is run once.
func TestBeginOfATickLost(t *testing.T) {
	for name, fault := range map[string]claimtest.Fault{
		"request":    {LoseRequest: true},
		"reply":      {LoseReply: true},
		"both":       {LoseRequest: true, LoseReply: true, Times: 3},
		"late":       {DelayRequest: 30 * time.Second},
		"late reply": {DelayReply: 30 * time.Second},
		"refused":    {Err: rpctypes.ErrGRPCRequestTooManyRequests},
	} {
		caseInFleet(t, name, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
			f.do(sched.Job{Name: "b", Schedule: minutely, Overlap: sched.Allow{}, Guarantee: sched.AtLeastOnce}, 0)
			n := f.start(0)
			f.until("00:01:59")
			fault.On = claimtest.Acquire
			hit := n.host.Inject(fault)
			f.until("00:02:45")
			if hit.Hits() == 0 {
				t.Error("nothing was lost")
			}
			for _, job := range []string{"a", "b"} {
				f.ledger.want(t, job, "00:01:00", "00:02:00")
				for _, e := range f.history(job) {
					if e[:3] != "ok " {
						t.Errorf("%s: %s", job, e)
					}
				}
			}
		})
	}
}

// An owner that has not heard yet that its job was paused, or that an earlier run must be
// settled first, does not begin the next tick.
func TestDeafOwnerBeginsNothing(t *testing.T) {
	for name, happens := range map[string]func(f *fleet, earlier key){
		"paused": func(f *fleet, _ key) { noErr(f.T, f.console().Pause(f.Context(), "a", "")) },
		"run":    func(f *fleet, earlier key) { noErr(f.T, second(f.etcd.Put(f.Context(), earlier.name, earlier.value))) },
	} {
		caseInFleet(t, name, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely}, time.Second)
			f.console()
			n := f.start(0)
			deaf := n.deafens()
			f.until("00:01:00.5")
			earlier := f.under("/now/run/")
			if len(earlier) != 1 {
				t.Fatal(earlier)
			}
			f.until("00:01:59.990")
			deaf.Store(true)
			n.host.Inject(claimtest.Fault{On: claimtest.Range, Times: -1, DelayRequest: 2 * time.Second})
			happens(f, earlier[0])
			f.until("00:02:01")
			f.ledger.want(t, "a", "00:01:00")
			deaf.Store(false)
			n.host.RemoveFaults()
			f.until("00:02:30")
		})
	}
}

// An owner whose claim is gone begins nothing, although it has not heard of that and nothing
// else has changed. It must be elected again first.
func TestOwnerOfBeforeBeginsNothing(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var terms atomic.Int64
		f.cfg.Hooks.Elected = func(int64) { terms.Add(1) }
		f.do(sched.Job{Name: "a", Schedule: minutely, Handler: func(_ context.Context, tick sched.Tick) error {
			if want := int64(tick.Nominal.Minute()); terms.Load() != want {
				t.Errorf("%v was begun in term %d of an owner, want %d", tick.Nominal, terms.Load(), want)
			}
			return nil
		}}, 0)
		n := f.start(0)
		deaf := n.deafens()
		f.until("00:01:59.990")
		deaf.Store(true)
		noErr(t, second(f.etcd.Delete(t.Context(), testclaims.Key(prefix, "sched/default/owner"))))
		f.until("00:02:30")
		f.ledger.want(t, "a", "00:01:00", "00:02:00")
	})
}

// A tick that cannot begin in time does not begin late, however often it is tried: etcd refuses
// it for three seconds, and it should have begun within one or two.
func TestBeginIsNotTriedForTooLong(t *testing.T) {
	for name, job := range map[string]sched.Job{
		"late":   {StartDeadline: 2 * time.Second},
		"missed": {CatchUp: sched.SkipMissed{}}, // within Config.Grace
	} {
		caseInFleet(t, name, func(t *testing.T, f *fleet) {
			f.cfg.Grace = time.Second
			job.Name, job.Schedule = "a", minutely
			f.do(job, 0)
			n := f.start(0)
			f.until("00:01:59")
			for _, kind := range []claimtest.Kind{claimtest.Acquire, claimtest.Other} {
				n.host.Inject(claimtest.Fault{On: kind, Times: -1, Err: rpctypes.ErrGRPCRequestTooManyRequests})
			}
			f.until("00:02:03")
			n.host.RemoveFaults()
			f.until("00:03:30")
			f.ledger.want(t, "a", "00:01:00", "00:03:00")
			if got := f.history("a"); len(got) != 3 || got[1] != name+" 00:02:00" {
				t.Errorf("%v, want the second to be %s", got, name)
			}
		})
	}
}
