package sched_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/sched"
)

// hours is a schedule of another package. Its instants are in a zone of its own.
type hours struct{ zone *time.Location }

func (h hours) String() string { return "hourly in " + h.zone.String() }

func (h hours) Next(t time.Time) time.Time {
	t = t.In(h.zone)
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour()+1, 0, 0, 0, h.zone)
}

// Ticks and records are in UTC, whatever the zone of the schedule's instants.
func TestTicksAreInUTC(t *testing.T) {
	zone := time.FixedZone("X", 5400)
	inUTC := func(_ context.Context, tick sched.Tick) error {
		if tick.Nominal.Location() != time.UTC || tick.Actual.Location() != time.UTC {
			t.Errorf("the tick is of %v, at %v", tick.Nominal, tick.Actual)
		}
		return nil
	}
	job := sched.Job{Name: "a", Schedule: hours{zone}, Jitter: time.Second, Handler: inUTC}
	caseInFleet(t, "etcd", func(t *testing.T, f *fleet) {
		f.do(job, 0)
		f.start(0)
		f.until("00:40:00")
		all := f.entries("a")
		if len(all) != 1 {
			t.Errorf("%v", all)
		}
		for _, e := range all {
			_ = inUTC(t.Context(), sched.Tick{Nominal: e.Nominal, Actual: e.Actual})
		}
	})
	t.Run("passthrough", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, err := sched.New(without(t), sched.Config{Group: "default"})
			noErr(t, err)
			noErr(t, s.Add(job))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			noErr(t, s.Run(ctx))
		})
	})
}
