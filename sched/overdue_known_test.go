package sched_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"google.golang.org/grpc/codes"
)

// unreachable makes etcd unreachable for all processes.
func (f *fleet) unreachable() {
	for _, n := range f.nodes {
		n.host.Inject(claimtest.Fault{Times: -1, Code: codes.Unavailable})
	}
}

// While etcd cannot be read, a process raises no alarm for a tick whose end it has recorded
// itself, and one for each other tick.
func TestOverdueKnownToHaveEnded(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var got alarms
		f.cfg.Hooks.Overdue = got.hook
		f.do(sched.Job{Name: "a", Schedule: tenMinutely, Overdue: 6 * time.Minute}, time.Second)
		f.do(sched.Job{Name: "dense", Schedule: minutely, Overdue: 6 * time.Minute, Overlap: sched.Allow{}}, time.Second)
		f.do(sched.Job{Name: "retried", Schedule: tenMinutely, Overdue: 8 * time.Minute, Handler: failing(1, time.Second), Retry: sched.Retry{Max: 1, Backoff: 5 * time.Minute}}, 0)
		f.start(0)
		f.until("00:12:30")
		f.unreachable()
		f.until("00:17:30")
		got.want(t, "the ticks ended before the outage", "")
		f.until("00:18:30")
		got.want(t, "another attempt was to come", "00:10 unknown")
		f.until("00:19:30")
		got.want(t, "due in the outage", "00:13 unknown")
	})
}
