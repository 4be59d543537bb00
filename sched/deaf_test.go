package sched_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The group's owner is an Acquire of the core, so a process whose watches hear
// nothing owns the group within TTL + 1 s + one renewal interval of the death of
// the owner, and goes on admitting ticks.
func TestDeafProcessTakesOver(t *testing.T) {
	t.Parallel()
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "j", Schedule: sched.Must(sched.Every(time.Second, 0))}, 0)
		first := f.start(0)
		time.Sleep(5 * time.Second)
		second := f.start(0)
		second.host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, Edit: func(reply any) { reply.(*pb.WatchResponse).Events = nil }})
		time.Sleep(20 * time.Second)
		first.kill()
		died := time.Now()
		for f.owner() != second {
			time.Sleep(100 * time.Millisecond)
			if time.Since(died) > 5*time.Minute {
				t.Fatal("nobody owns the group")
			}
		}
		if d := time.Since(died); d > ttl+time.Second+ttl/3+200*time.Millisecond {
			t.Errorf("taken over after %v", d)
		}
		owned := time.Now()
		time.Sleep(20 * time.Second)
		ran := 0
		for _, d := range f.ledger.all("j") {
			if d.By == second.name && d.Nominal.After(owned) {
				ran++
			}
		}
		if ran < 10 {
			t.Errorf("%d ticks ran in the 20 s after", ran)
		}
	})
}
