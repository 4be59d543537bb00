package sched_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
)

// The ticks of a backfill begin oldest first, also if a process dies during one of them.
func TestBackfillInOrder(t *testing.T) {
	for _, spread := range []bool{false, true} {
		caseInFleet(t, fmt.Sprint("spread ", spread), func(t *testing.T, f *fleet) {
			f.cfg.Spread = spread
			f.do(sched.Job{Name: "a", Schedule: tenMinutely, Guarantee: sched.AtLeastOnce, CatchUp: sched.SkipMissed{}}, 20*time.Second)
			f.start(0)
			f.start(0)
			f.until("00:01:00")
			from := clock("00:00:00").Add(-time.Hour)
			noErr(t, second(f.console().Backfill(t.Context(), "a", from, from.Add(50*time.Minute), nil)))
			f.until("00:01:30")
			all := f.ledger.all("a")
			for _, n := range f.nodes {
				if n.name == all[len(all)-1].By {
					n.kill()
				}
			}
			f.until("00:05:00")
			order := f.ledger.nominals("a")
			if !slices.IsSorted(order) || len(order) != 6 {
				t.Errorf("the backfill ran in the order %v", order)
			}
		})
	}
}

// With CancelRunning, a new tick ends the run of a backfill that it would wait for, and not
// those of a backfill with Allow, which are beside all other runs.
func TestCancelRunningAndBackfill(t *testing.T) {
	for _, tt := range []struct {
		overlap sched.Overlap
		ends    string
	}{{sched.BufferAll{}, "00:01:00"}, {sched.Allow{}, "00:10:10"}} {
		caseInFleet(t, fmt.Sprintf("%T", tt.overlap), func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.CancelRunning{}}, 10*time.Minute)
			f.start(0)
			f.until("00:00:10")
			from := clock("00:00:00").Add(-time.Hour)
			noErr(t, second(f.console().Backfill(t.Context(), "a", from, from.Add(time.Minute), tt.overlap)))
			f.until("00:11:30")
			all := f.ledger.all("a")
			if got := all[0].Until.Format(time.TimeOnly); !all[0].Manual || got != tt.ends {
				t.Errorf("the run of the backfill ended at %s, want %s", got, tt.ends)
			}
			if got := f.ledger.nominals("a")[1:]; len(got) != 11 || got[0] != "00:01:00" {
				t.Errorf("the schedule ran at %v", got)
			}
		})
	}
}
