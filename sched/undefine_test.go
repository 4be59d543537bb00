package sched_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
)

// late calls the operation in a process whose requests of changes are held until send is
// called. The operation has read the state when late returns. send returns its error.
func (f *fleet) late(operation func(*sched.Scheduler) error) (send func() error) {
	f.Helper()
	host := f.server.Host(f.T)
	s, err := sched.New(claimtest.NewClient(f.T, host, etcdclaims.Config{Prefix: prefix, Owner: "late", TTL: ttl}), f.cfg)
	noErr(f.T, err)
	hold, result := make(chan struct{}), make(chan error, 1)
	host.Inject(claimtest.Fault{On: claimtest.Acquire, Hold: hold})
	go func() { result <- operation(s) }()
	time.Sleep(100 * time.Millisecond)
	return func() error {
		close(hold)
		return <-result
	}
}

func undefine(s *sched.Scheduler) error {
	return s.Undefine(context.Background(), "a", sched.AnyVersion)
}

// An owner takes the definition up while Undefine is on its way.
func TestUndefineRace(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.define(report("a"))
		f.until("00:00:10")
		send := f.late(undefine)
		f.start(0)
		f.until("00:00:11")
		noErr(t, send())
		f.until("00:00:20")
		if i := f.inspect("a"); !strings.Contains(i.Problem, "was removed by") {
			t.Errorf("%+v", i)
		}
		f.until("00:03:30")
		f.define(report("a"))
		f.until("00:04:30")
		f.ledger.want(t, "a", "00:04:00")
	})
}

// A removed job takes no requests.
func TestUndefinedRefuses(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.define(report("a"))
		f.start(0)
		f.until("00:00:30")
		at := func(minute int) time.Time { return time.Date(2000, 1, 1, 0, minute, 0, 0, time.UTC) }
		ctx := context.Background()
		requests := []func(*sched.Scheduler) error{
			func(s *sched.Scheduler) error { _, err := s.RunNow(ctx, "a"); return err },
			func(s *sched.Scheduler) error { _, err := s.Backfill(ctx, "a", at(-9), at(0), nil); return err },
			func(s *sched.Scheduler) error { return s.Pause(ctx, "a", "why") },
		}
		var sends []func() error
		for _, request := range requests {
			sends = append(sends, f.late(request))
		}
		noErr(t, undefine(f.console()))
		for i, request := range requests {
			wantIs(t, request(f.console()), sched.ErrUnknownJob)
			wantIs(t, sends[i](), sched.ErrUnknownJob)
		}
		f.until("03:00:30")
		f.define(report("a"))
		f.until("03:00:40")
		f.ledger.want(t, "a")
	})
}

// Undefine of a job that is always busy succeeds.
func TestUndefineBusy(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.start(0)
		d := report("a")
		d.Schedule, d.Overlap = "@every 20ms", sched.Allow{}
		f.define(d)
		f.until("00:00:02")
		host := f.server.Host(t)
		s, err := sched.New(claimtest.NewClient(t, host, etcdclaims.Config{Prefix: prefix, Owner: "slow", TTL: ttl}), f.cfg)
		noErr(t, err)
		host.Inject(claimtest.Fault{On: claimtest.Acquire, Times: -1, DelayRequest: 30 * time.Millisecond})
		noErr(t, undefine(s))
		runs := len(f.ledger.all("a"))
		f.until("00:00:20")
		if more := len(f.ledger.all("a")); more != runs {
			t.Errorf("%d runs after %d", more-runs, runs)
		}
		f.define(report("a"))
		f.until("00:01:10")
		f.ledger.want(t, "a", append(f.ledger.nominals("a")[:runs:runs], "00:01:00")...)
	})
}

// The record of the ticks that wait counts those that came while Undefine was on its way.
func TestUndefineCountsNewTicks(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(time.Hour)
		f.start(0)
		d := report("a")
		d.Overlap = sched.BufferAll{}
		f.define(d)
		f.until("00:04:30") // the first runs, three wait
		send := f.late(undefine)
		noErr(t, second(f.console().RunNow(t.Context(), "a")))
		f.until("00:04:40")
		noErr(t, send())
		if e := f.entries("a"); len(e) != 1 || e[0].Outcome != sched.OutcomeCancelled || e[0].Missed != 3 {
			t.Errorf("%+v", e)
		}
	})
}

// A run that began before the removal does not pause the job that is defined afterwards.
func TestUndefinedRunFails(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.kinds = map[string]kindHandler{"report": func(context.Context, sched.Tick, json.RawMessage) error {
			time.Sleep(30 * time.Second)
			return errors.New("no disk")
		}}
		d := report("a")
		d.PauseOnFailure = 1
		f.define(d)
		f.start(0)
		f.until("00:01:05")
		noErr(t, undefine(f.console()))
		f.define(d)
		f.until("00:01:50")
		if i := f.inspect("a"); i.Paused != nil || i.Last == nil {
			t.Errorf("%+v", i)
		}
		f.until("00:02:50")
		if i := f.inspect("a"); i.Paused == nil {
			t.Errorf("%+v", i)
		}
	})
}

// A Forget that is on its way does not touch what is defined meanwhile.
func TestForgetLate(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.define(report("a"))
		wantErr(t, f.console().Forget(t.Context(), "a"), "remove its definition first")
		f.start(0)
		f.until("00:00:30")
		noErr(t, undefine(f.console()))
		send := f.late(func(s *sched.Scheduler) error { return s.Forget(context.Background(), "a") })
		f.define(report("a"))
		f.until("00:00:31")
		noErr(t, f.console().Pause(t.Context(), "a", "do not run"))
		wantErr(t, send(), "remove its definition first")
		f.until("00:02:30")
		f.ledger.want(t, "a")
	})
}

// An owner registers a job while its definition is removed: nothing of the job is left.
func TestUndefineWhileOwnerRegisters(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		n := f.start(0)
		f.until("00:00:30")
		hold := make(chan struct{})
		held := n.host.Inject(claimtest.Fault{On: claimtest.Other, Hold: hold})
		f.define(report("a"))
		f.until("00:00:31")
		if held.Hits() != 1 {
			t.Errorf("%d requests of the owner are held", held.Hits())
		}
		noErr(t, undefine(f.console()))
		close(hold)
		f.until("00:02:30")
		f.ledger.want(t, "a")
		if left := f.under(""); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// Processes do not remember all jobs that were removed.
func TestUndefinedIsForgotten(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.start(0)
		f.start(0)
		for i := range 20 {
			name := fmt.Sprint("a", i)
			d := report(name)
			d.RunOnStart = true
			f.define(following(name+" after", name))
			time.Sleep(time.Second)
			f.define(d)
			time.Sleep(9 * time.Second)
			for _, job := range []string{name + " after", name} {
				if len(f.ledger.all(job)) == 0 {
					t.Errorf("%s did not run", job)
				}
				noErr(t, f.console().Undefine(t.Context(), job, sched.AnyVersion))
				time.Sleep(time.Second)
				noErr(t, f.console().Forget(t.Context(), job))
			}
		}
		time.Sleep(10 * time.Second)
		for _, n := range f.nodes {
			// A transaction that is on its way at the removal can leave one.
			if left := n.sched.Remembered(); left > 3 {
				t.Errorf("%s remembers %d jobs", n.name, left)
			}
		}
		if left := f.under(""); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}
