package sched_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
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

// An operation has taken effect when its claim is acquired. Its caller's context bounds the wait
// for the release.
func TestOperationWithoutAnswerToItsRelease(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.start(0)
		f.until("00:00:10")
		host := f.server.Host(t)
		operator, err := sched.New(claimtest.NewClient(t, host, etcdclaims.Config{Prefix: prefix, TTL: ttl}), f.cfg)
		noErr(t, err)
		lost := host.Inject(claimtest.Fault{On: claimtest.Release, Times: -1, LoseRequest: true})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		noErr(t, operator.Pause(ctx, "a", ""))
		if took := time.Since(began); took > 600*time.Millisecond {
			t.Errorf("Pause took %v", took)
		}
		if f.inspect("a").Paused == nil || lost.Hits() == 0 {
			t.Errorf("%+v, %d releases were lost", f.inspect("a"), lost.Hits())
		}
		host.RemoveFaults()
		time.Sleep(5 * time.Second) // a request without an answer is sent again
		if left := f.claimed("/op/"); len(left) > 0 {
			t.Errorf("the claims %q are left", left)
		}
	})
}

// claimed returns the keys in etcd of claims of the group, by a part of the key.
func (f *fleet) claimed(part string) (keys []string) {
	f.Helper()
	resp, err := f.etcd.Get(f.Context(), prefix+"own/sched/", clientv3.WithPrefix())
	noErr(f.T, err)
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Key), part) {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}

// Run returns within one drain of its handlers if it is stopped while a tick begins and etcd stops
// answering: the tick cannot be given back. The next owner settles it.
func TestStopBeforeABeginIsGivenBack(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		n := f.start(0)
		f.until("00:00:30")
		f.start(0)
		f.until("00:00:59.9")
		n.host.Inject(claimtest.Fault{On: steps.Take, DelayReply: 50 * time.Millisecond})
		lost := n.host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, LoseRequest: true})
		f.until("00:01:00.02")
		stopped := time.Now()
		go n.stop()
		f.until("00:01:00.06")
		n.host.Cut()
		<-n.ended
		if took, drain := time.Since(stopped), ttl/5; took < drain || took > drain+200*time.Millisecond {
			t.Errorf("Run returned after %v", took)
		}
		noErr(t, n.err)
		if lost.Hits() == 0 {
			t.Error("the tick was not given back")
		}
		n.host.RemoveFaults()
		n.host.Heal()
		f.until("00:01:20")
		f.wantHistory("a", "lost 00:01:00")
		f.until("00:02:30")
		f.ledger.want(t, "a", "00:02:00")
	})
}

// A tick that waits does not begin after its StartDeadline, although its begin was sent in time.
func TestBeginIsAnsweredTooLate(t *testing.T) {
	for _, spread := range []bool{false, true} {
		caseInFleet(t, fmt.Sprint("spread ", spread), func(t *testing.T, f *fleet) {
			f.cfg.Spread, f.cfg.Limit = spread, 1
			f.do(sched.Job{Name: "a", Schedule: minutely, StartDeadline: time.Second}, 0)
			n := f.start(0)
			f.until("00:00:59")
			n.host.Inject(claimtest.Fault{On: steps.Take, DelayReply: 2500 * time.Millisecond})
			f.until("00:02:30")
			f.ledger.want(t, "a", "00:02:00")
			f.wantHistory("a", "late 00:01:00", "ok 00:02:00")
		})
	}
}

// A tick that waits for the begins of others until its StartDeadline is over is not begun, although
// the owner is not there to give it up.
func TestBeginWaitsForOthersTooLong(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Spread = true
		f.crowded(0, sched.Job{StartDeadline: time.Second, Overlap: sched.Allow{}})
		owner := f.start(0)
		f.until("00:00:30")
		other := f.start(0)
		f.until("00:00:59")
		owner.host.Inject(claimtest.Fault{On: steps.Take, Times: -1, LoseRequest: true})
		other.host.Inject(claimtest.Fault{On: steps.Take, Times: -1, DelayReply: 1500 * time.Millisecond})
		f.until("00:01:00.5")
		owner.kill()
		waiting := map[string]int64{}
		for _, k := range f.under("/now/ready/") {
			waiting[k.name] = k.rev
		}
		f.until("00:01:10")
		other.host.RemoveFaults()
		begun := 0
		for _, k := range f.under("/now/ready/") {
			if k.rev != waiting[k.name] { // it was given back
				begun++
			}
		}
		if begun == 0 || begun > 64 {
			t.Errorf("%d of %d ticks were begun, want those of 64 attempts at most", begun, crowd)
		}
		f.until("00:02:30")
		for _, j := range f.jobs {
			f.ledger.want(t, j.Name, "00:02:00")
			f.wantHistory(j.Name, "late 00:01:00", "ok 00:02:00")
		}
	})
}
