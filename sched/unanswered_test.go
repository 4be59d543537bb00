package sched_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/sched"
)

// A process whose begin of a tick was refused reads why. If etcd does not answer that, the process
// still begins later ticks of the job.
func TestRefusedBeginIsNotExplained(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Spread = true
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		first := f.start(0)
		f.until("00:00:10")
		second := f.start(0)
		f.until("00:00:59")
		first.host.Inject(claimtest.Fault{On: steps.Take, DelayRequest: 10 * time.Millisecond}) // so that both send one
		begin := second.host.Inject(claimtest.Fault{On: steps.Take, DelayRequest: time.Second})
		f.until("00:01:00.5") // the run of the first has ended
		reads := second.host.Inject(claimtest.Fault{On: claimtest.Range, Times: -1, LoseRequest: true})
		f.until("00:01:08")
		if begin.Hits() != 1 || reads.Hits() == 0 {
			t.Errorf("%d begins were late, %d reads were lost", begin.Hits(), reads.Hits())
		}
		second.host.RemoveFaults()
		first.kill()
		f.until("00:04:30")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00", "00:04:00")
	})
}
