package sched_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// After etcd was restored from a backup, with lower revisions than before, a process does
// not believe what it knew from the time after the backup: a pause that etcd no longer has
// does not hold ticks, a request causes no transactions, and waiting ticks do not fill a
// buffer.
func TestRestoreTakesBack(t *testing.T) {
	rest := func(ctx context.Context, tick sched.Tick) error {
		if tick.Manual {
			time.Sleep(2 * time.Minute)
		}
		return nil
	}
	for name, lost := range map[string]func(t *testing.T, s *sched.Scheduler){
		"nothing": func(*testing.T, *sched.Scheduler) {},
		"pause":   func(t *testing.T, s *sched.Scheduler) { noErr(t, s.Pause(t.Context(), "a", "maintenance")) },
		"request": func(t *testing.T, s *sched.Scheduler) {
			from := clock("00:00:00").Add(-240 * time.Hour)
			noErr(t, second(s.Backfill(t.Context(), "a", from, from.Add(200*time.Hour), nil)))
		},
		"waiting": func(t *testing.T, s *sched.Scheduler) {
			for range 3 { // one runs, and two wait
				noErr(t, second(s.RunNow(t.Context(), "a")))
			}
		},
	} {
		caseInFleet(t, name, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.BufferAll{}, Handler: rest}, 0)
			f.do(sched.Job{Name: "b", Schedule: minutely}, 0) // the owner has something to do
			n := f.start(0)
			f.until("00:01:30")
			backup := f.server.Snapshot(t)
			for range 300 {
				noErr(t, second(f.etcd.Put(t.Context(), "/other", "")))
			}
			lost(t, f.console())
			f.until("00:02:30")
			f.server.Restore(t, backup, 0)
			time.Sleep(5 * time.Second)
			f.server.RaiseEpoch(t, prefix)
			f.until("00:05:00")
			before := len(n.host.Sent(claimtest.Other))
			f.until("00:05:10")
			if sent := len(n.host.Sent(claimtest.Other)) - before; sent == 0 || sent > 100 {
				t.Errorf("%d transactions in 10 s", sent)
			}
			f.until("00:08:30")
			all := f.ledger.all("a")
			if last := all[len(all)-1].Nominal; last.Before(clock("00:08:00")) {
				t.Errorf("the last tick that ran is %v", last)
			}
			f.ledger.deeds = nil // ticks may run again after a restore
		})
	}
}

// A reply that arrives after newer events does not undo them: the owner knows that the job
// was resumed.
func TestResumeBesideLateReply(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(time.Minute, 57500*time.Millisecond)), CatchUp: sched.SkipMissed{}}, 0)
		n := f.start(0)
		f.until("00:00:30")
		noErr(t, f.console().Pause(t.Context(), "a", ""))
		f.until("00:01:55.500")
		slow := n.host.Inject(claimtest.Fault{On: claimtest.Verify, Times: 1, DelayReply: 1500 * time.Millisecond})
		noErr(t, second(f.etcd.Put(t.Context(), f.keyOf("a", "now/reset/J"), `{"v":1}`))) // the owner reads the job again
		f.until("00:01:56")
		noErr(t, f.console().Resume(t.Context(), "a"))
		f.until("00:02:30")
		if slow.Hits() != 1 {
			t.Fatal("no reply was late")
		}
		f.ledger.want(t, "a", "00:01:57")
	})
}
