package sched_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
)

// panicky is due at every full minute, and panics after an instant.
type panicky struct{ last time.Time }

func (p panicky) Next(t time.Time) time.Time {
	if !t.Before(p.last) {
		panic("no calendar of next year")
	}
	return minutely.Next(t)
}

// A schedule or a calendar that panics ends the ticks of its own job. The others go on, in
// the same process.
func TestScheduleThatPanics(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		logs := f.logged()
		last := time.Date(2000, 1, 1, 0, 2, 0, 0, time.UTC)
		f.do(sched.Job{Name: "bad", Schedule: panicky{last}, Revision: "1"}, 0)
		f.do(sched.Job{Name: "worse", Schedule: calendar.Except(minutely, covers(func(at time.Time) bool { panic("no holidays") })), Revision: "1", Jitter: time.Second}, 0)
		f.do(sched.Job{Name: "good", Schedule: minutely}, 0)
		n := f.start(0)
		f.until("00:04:30")
		f.ledger.want(t, "bad", "00:01:00", "00:02:00")
		f.ledger.want(t, "worse")
		f.ledger.want(t, "good", "00:01:00", "00:02:00", "00:03:00", "00:04:00")
		for _, job := range []string{"bad", "worse"} {
			if i := f.inspect(job); !i.Next.After(last) && !i.Next.IsZero() {
				t.Errorf("%s is due at %v", job, i.Next)
			}
			if _, err := n.sched.Explain(t.Context(), job, last.Add(time.Minute)); err != nil {
				t.Error(err)
			}
			if n := logs.FilterMessage("schedule panicked; the job has no further tick").FilterField(zap.String("job", job)).Len(); n != 1 {
				t.Errorf("%s: logged %d times", job, n)
			}
		}
		if got := f.inspect("bad").Schedule; got != "sched_test.panicky" {
			t.Errorf("the schedule is called %q", got)
		}
	})
}

type covers func(time.Time) bool

func (c covers) Covers(at time.Time) (bool, time.Time) { return c(at), at.Add(time.Minute) }
