package sched_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"google.golang.org/grpc/codes"
)

// accounted fails the test unless each tick of the period, from one time to the
// other, was run once (or once per attempt), or a record says why not.
func (f *fleet) accounted(job string, period time.Duration, from, to time.Time) {
	f.Helper()
	f.ledger.once(f.T)
	why := map[time.Time]string{}
	for _, e := range f.entries(job) {
		why[e.Nominal] = string(e.Outcome)
		if e.Attempt > 0 && e.Outcome != sched.OutcomeOK {
			why[e.Nominal] = "not run again" // an attempt was lost
		}
		missed := e.Missed
		if e.Outcome == sched.OutcomeMissed {
			missed-- // it counts itself
		}
		for i := 1; i <= missed; i++ {
			if at := e.Nominal.Add(-time.Duration(i) * period); why[at] == "" {
				why[at] = "missed before " + e.Nominal.Format(time.TimeOnly)
			}
		}
	}
	i := f.inspect(job)
	for _, w := range i.Waiting {
		why[w.Nominal] = "waits"
	}
	for _, r := range i.Running {
		why[r.Nominal] = "runs"
	}
	runs := map[time.Time]int{}
	for _, d := range f.ledger.all(job) {
		runs[d.Nominal]++
		for i := 1; i <= d.Missed; i++ {
			if at := d.Nominal.Add(-time.Duration(i) * period); why[at] == "" {
				why[at] = "missed before " + d.Nominal.Format(time.TimeOnly)
			}
		}
	}
	for at := from.UTC().Truncate(period).Add(period); !at.After(to); at = at.Add(period) {
		if runs[at] == 0 && (why[at] == "" || why[at] == "ok" || why[at] == "failed") {
			f.Errorf("%s: the tick %s was not run, and nothing says why (%q)", job, at.Format(time.TimeOnly), why[at])
		}
		if runs[at] > 0 && (why[at] == "skipped" || why[at] == "late" || why[at] == "missed") {
			f.Errorf("%s: the tick %s was run, and is recorded as %s", job, at.Format(time.TimeOnly), why[at])
		}
	}
}

var (
	catchUps = map[string]func(sched.Overlap) sched.CatchUp{
		"SkipMissed": func(sched.Overlap) sched.CatchUp { return sched.SkipMissed{} },
		"Latest":     func(sched.Overlap) sched.CatchUp { return sched.Latest{} },
		"All":        caughtUp,
	}
	overlaps = []sched.Overlap{sched.Skip{}, sched.BufferOne{}, sched.BufferAll{}, sched.CancelRunning{}, sched.Allow{}}
)

// caughtUp returns All, or Latest for an overlap that leaves out missed ticks.
func caughtUp(overlap sched.Overlap) sched.CatchUp {
	switch overlap.(type) {
	case sched.BufferAll, sched.Allow:
		return sched.All{}
	}
	return sched.Latest{}
}

// Five processes whose clocks differ by up to four seconds, and the owner killed
// about each tick: each is run once, or there is a record.
func TestOwnerKilledAtEachTick(t *testing.T) {
	const period = 30 * time.Second
	for _, spread := range []bool{false, true} {
		for name, catchUp := range catchUps {
			t.Run(fmt.Sprintf("%s spread %v", name, spread), func(t *testing.T) {
				inFleet(t, func(t *testing.T, f *fleet) {
					f.cfg.Spread = spread
					skews := []time.Duration{0, 2 * time.Second, -2 * time.Second, time.Second, -time.Second}
					for i, overlap := range overlaps {
						for _, delivery := range []sched.Guarantee{sched.AtMostOnce, sched.AtLeastOnce} {
							f.do(sched.Job{
								Name: fmt.Sprintf("%T %v", overlaps[i], delivery), Schedule: calendar.Must(calendar.Every(period, 0)),
								CatchUp: catchUp(overlap), Overlap: overlap, Guarantee: delivery, History: 1000,
							}, 5*time.Millisecond)
						}
					}
					f.until("00:00:10")
					begin := time.Now()
					for _, skew := range skews {
						f.start(skew)
					}
					time.Sleep(5 * time.Second)
					for i := range 4 + someOf(5) {
						old := f.owner()
						if old == nil {
							t.Fatal("nobody is the owner")
						}
						tick := old.now().Truncate(period).Add(period)
						time.Sleep(tick.Sub(old.now()) + time.Duration(i%5-2)*time.Millisecond) // from 2 ms before to 2 ms after
						killed := time.Now()
						old.kill()
						f.start(skews[i%5])
						time.Sleep(ttl + time.Second)
						if f.owner() == nil {
							t.Errorf("nobody is the owner %v after a kill", time.Since(killed))
						}
						time.Sleep(period - ttl - time.Second - 5*time.Second)
					}
					time.Sleep(period)
					end := time.Now().Add(-5 * time.Second)
					for _, j := range f.jobs {
						f.accounted(j.Name, period, begin.Add(5*time.Second), end)
					}
				})
			})
		}
	}
}

// now is the process's wall clock.
func (n *node) now() time.Time { return time.Now().Add(time.Duration(n.skew.Load())) }

// The owner is frozen across take-overs, its lease is revoked, and its clock is
// stepped by hours: each tick is run once, or there is a record.
func TestOwnerFrozenAndStepped(t *testing.T) {
	const period = 20 * time.Second
	for name, disturb := range map[string]func(f *fleet, n *node, i int){
		"frozen": func(_ *fleet, n *node, _ int) {
			n.host.Cut()
			time.Sleep(40 * time.Second)
			n.host.Heal()
		},
		"lease revoked":  func(f *fleet, _ *node, _ int) { f.server.Revoke(f.T, testclaims.Key(prefix, "sched/default/owner")) },
		"owner deleted":  func(f *fleet, _ *node, _ int) { f.server.Delete(f.T, testclaims.Key(prefix, "sched/default/owner")) },
		"etcd restarted": func(f *fleet, _ *node, _ int) { f.server.Restart(f.T) },
		"asleep": func(_ *fleet, n *node, i int) {
			n.host.Suspend(time.Duration(i) * 10 * time.Second)
			n.skew.Add(int64(i) * int64(10*time.Second))
		},
		"clock forth and back": func(_ *fleet, n *node, i int) { n.skew.Add(int64(time.Hour) * int64(1-2*(i%2))) },
		"clock back and forth": func(_ *fleet, n *node, i int) { n.skew.Add(-int64(time.Hour) * int64(1-2*(i%2))) },
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				for caught, catchUp := range catchUps {
					for _, overlap := range overlaps {
						f.do(sched.Job{
							Name: fmt.Sprintf("%s %T", caught, overlap), Schedule: calendar.Must(calendar.Every(period, 0)),
							CatchUp: catchUp(overlap), Overlap: overlap, Guarantee: sched.AtLeastOnce, History: 1000, MaxStarts: 100,
						}, 5*time.Millisecond)
					}
				}
				f.until("00:00:10")
				begin := time.Now()
				for i := range 3 {
					f.start(time.Duration(i-1) * time.Second)
				}
				time.Sleep(5 * time.Second)
				for i := range 3 + someOf(5) {
					if n := f.owner(); n != nil {
						time.Sleep(max(0, n.now().Truncate(period).Add(period).Sub(n.now()))%period + time.Duration(i%3-1)*time.Millisecond)
						disturb(f, n, i)
					}
					time.Sleep(17 * time.Second)
				}
				time.Sleep(time.Minute)
				for _, j := range f.jobs {
					f.accounted(j.Name, period, begin.Add(5*time.Second), time.Now().Add(-30*time.Second))
				}
			})
		})
	}
}

// Each request on the way of a tick is lost, or its reply, or comes after a
// take-over, or is answered with each code there is.
func TestFaultsAtEachRequest(t *testing.T) {
	kinds := []claimtest.Kind{
		claimtest.Other, steps.Take, steps.Free, claimtest.Range, claimtest.Verify, claimtest.Grant, steps.Sentinel, claimtest.Watch,
	}
	faults := map[string]claimtest.Fault{"request lost": {LoseRequest: true}, "reply lost": {LoseReply: true}}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		often := []codes.Code{codes.Unknown, codes.DeadlineExceeded, codes.PermissionDenied, codes.Unavailable}
		if !slices.Contains(often, code) && !testetcd.Long() {
			continue
		}
		faults["request lost, "+code.String()] = claimtest.Fault{LoseRequest: true, Code: code}
		faults["reply lost, "+code.String()] = claimtest.Fault{LoseReply: true, Code: code}
	}
	if testing.Short() {
		kinds = kinds[:2]
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFleet(t, func(t *testing.T, f *fleet) {
				f.jobsForFaults()
				begin := time.Now()
				f.start(0)
				f.start(0)
				time.Sleep(5 * time.Second)
				hits := map[claimtest.Kind]int{}
				for _, kind := range kinds {
					for skip := range 2 {
						if skip > 0 && kind != claimtest.Other && kind != steps.Take {
							break
						}
						n := f.owner()
						if n == nil {
							time.Sleep(30 * time.Second)
							continue
						}
						fault := fault
						fault.On, fault.Skip, fault.Times = kind, skip, 3
						i := n.host.Inject(fault)
						time.Sleep(8 * time.Second)
						hits[kind] += i.Hits()
						n.host.RemoveFaults()
					}
				}
				time.Sleep(time.Minute)
				if hits[claimtest.Other] == 0 || hits[steps.Take] == 0 {
					t.Errorf("%v: this tests nothing", hits)
				}
				f.checkFaults(begin)
			})
		})
	}
	t.Run("late", func(t *testing.T) {
		for _, kind := range kinds {
			t.Run(string(kind), func(t *testing.T) {
				t.Parallel()
				inFleet(t, func(t *testing.T, f *fleet) {
					f.jobsForFaults()
					begin := time.Now()
					f.start(0)
					f.start(0)
					time.Sleep(5 * time.Second)
					for skip := range 4 {
						n := f.owner()
						if n == nil {
							time.Sleep(30 * time.Second)
							continue
						}
						hold := make(chan struct{})
						n.host.Inject(claimtest.Fault{On: kind, Skip: skip, Times: 4, Hold: hold})
						time.Sleep(7 * time.Second)
						f.server.Delete(t, testclaims.Key(prefix, "sched/default/owner"))
						time.Sleep(5 * time.Second)
						close(hold) // what was held arrives now
						n.host.RemoveFaults()
						time.Sleep(5 * time.Second)
					}
					time.Sleep(time.Minute)
					f.checkFaults(begin)
				})
			})
		}
	})
}

const faultPeriod = 4 * time.Second

func (f *fleet) jobsForFaults() {
	every := calendar.Must(calendar.Every(faultPeriod, 0))
	for i, overlap := range []sched.Overlap{sched.Skip{}, sched.BufferAll{}, sched.Allow{}, sched.CancelRunning{}} {
		delivery := sched.Guarantee(i % 2)
		f.do(sched.Job{
			Name: fmt.Sprintf("%T %v", overlap, delivery), Schedule: every, CatchUp: caughtUp(overlap), Overlap: overlap,
			Guarantee: delivery, History: 1000, MaxStarts: 100,
		}, 5*time.Millisecond)
	}
}

func (f *fleet) checkFaults(begin time.Time) {
	f.Helper()
	for _, n := range f.nodes {
		n.host.RemoveFaults()
	}
	for _, j := range f.jobs {
		f.accounted(j.Name, faultPeriod, begin.Add(4*time.Second), time.Now().Add(-20*time.Second))
		if last := f.inspect(j.Name).High; time.Since(last) > 2*faultPeriod {
			f.Errorf("%s: nothing was admitted since %v", j.Name, last)
		}
	}
}
