package sched_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
)

// crowd is how many jobs are due at the same instant.
const crowd = 200

// crowded adds that many jobs, whose runs take so long.
func (f *fleet) crowded(takes time.Duration, of sched.Job) {
	of.Schedule = minutely
	for i := range crowd {
		of.Name = fmt.Sprint("job", i)
		f.do(of, takes)
	}
}

// Ticks of many jobs that are due at the same instant share the round trips in which they
// are admitted, begin, end, and give up their claims.
func TestTicksShareRoundTrips(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.crowded(0, sched.Job{})
		n := f.start(0)
		n.host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayRequest: 2 * time.Millisecond})
		f.until("00:00:59")
		before := len(n.host.Sent(claimtest.Every))
		time.Sleep(3 * time.Second)
		sent := len(n.host.Sent(claimtest.Every)) - before
		for _, j := range f.jobs {
			if got := f.history(j.Name); len(got) != 1 || got[0] != "ok 00:01:00" {
				t.Errorf("%s: %v", j.Name, got)
			}
		}
		if limit := crowd * 3 / 10; sent > limit {
			t.Errorf("%d requests for %d ticks, want at most %d", sent, crowd, limit)
		}
	})
}

// Runs that began in one round trip have one revision. When their process dies, the next
// owner settles each of them.
func TestRunsThatBeganTogether(t *testing.T) {
	for _, delivery := range []sched.Delivery{sched.AtMostOnce, sched.AtLeastOnce} {
		caseInFleet(t, delivery.String(), func(t *testing.T, f *fleet) {
			f.crowded(20*time.Second, sched.Job{Delivery: delivery})
			dies := f.start(0)
			dies.host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayRequest: 2 * time.Millisecond})
			f.until("00:00:55")
			f.start(0)
			f.until("00:01:05")
			at := map[int64]int{}
			for _, run := range f.under("/now/run/") {
				at[run.rev]++
			}
			if len(at) == 0 || len(at) > crowd/8 {
				t.Fatalf("the runs began at %d revisions", len(at))
			}
			dies.kill()
			f.until("00:01:55")
			for _, j := range f.jobs {
				got := f.history(j.Name)
				want := []string{"lost 00:01:00"}
				if delivery == sched.AtLeastOnce {
					want = []string{"ok 00:01:00"}
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: %v, want %v", j.Name, got, want)
				}
			}
			if left := f.under("/now/run/"); len(left) > 0 {
				t.Errorf("%d runs are left", len(left))
			}
		})
	}
}
