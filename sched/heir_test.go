package sched_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// minutes returns the full minutes from one to another one of the first hour.
func minutes(from, to int) (all []string) {
	for m := from; m <= to; m++ {
		all = append(all, fmt.Sprintf("00:%02d:00", m))
	}
	return all
}

// terms returns how many ownerships there have been.
func (f *fleet) terms() (n int) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	now, err := f.etcd.Get(ctx, "x")
	noErr(f.T, err)
	key := f.nodes[0].claims.OwnKey("sched/default/owner")
	for resp := range f.etcd.Watch(ctx, key, clientv3.WithRev(1), clientv3.WithProgressNotify()) {
		noErr(f.T, resp.Err())
		for _, ev := range resp.Events {
			if ev.Type == clientv3.EventTypePut {
				n++
			}
		}
		if resp.Header.Revision >= now.Header.Revision {
			break
		}
	}
	return n
}

// wantHeir fails the test unless the process is the owner, after so many ownerships, and no request is left.
func (f *fleet) wantHeir(n *node, terms int) {
	f.Helper()
	if is := f.owner(); is != n {
		f.Errorf("the owner is %v", is)
	}
	if got := f.terms(); got != terms {
		f.Errorf("%d ownerships, want %d", got, terms)
	}
	if left := f.under("/now/heir/"); len(left) != 0 {
		f.Errorf("left: %v", left)
	}
}

// In a deployment a new job runs although all old processes are there. No tick of another one is missed or
// doubled, and a run in progress goes on in the process that was the owner.
func TestHandOverInADeployment(t *testing.T) {
	for _, spread := range []bool{false, true} {
		caseInFleet(t, fmt.Sprint("spread ", spread), func(t *testing.T, f *fleet) {
			f.cfg.Spread = spread
			f.do(sched.Job{Name: "old", Schedule: minutely}, 0)
			f.do(sched.Job{Name: "busy", Schedule: minutely}, 30*time.Second)
			var olds []*node
			for range 3 {
				olds = append(olds, f.start(0))
			}
			f.until("00:01:10")
			first := f.owner()
			f.do(sched.Job{Name: "new", Schedule: minutely}, 0)
			var news []*node
			for range 3 {
				news = append(news, f.start(0))
			}
			f.until("00:01:14")
			second := f.owner()
			if second == nil || second == first || !slices.Contains(news, second) {
				t.Fatalf("the owner is %v", second)
			}
			f.wantHeir(second, 2)
			f.until("00:04:10")
			f.wantHeir(second, 2)
			for _, n := range olds {
				n.stop()
			}
			f.until("00:05:40")
			f.wantHeir(second, 2)
			f.ledger.want(t, "old", minutes(1, 5)...)
			f.ledger.want(t, "busy", minutes(1, 5)...)
			f.ledger.want(t, "new", minutes(2, 5)...)
			if d := f.ledger.all("busy")[0]; d.Err != nil || d.Until.Sub(d.From) != 30*time.Second {
				t.Errorf("the run of the hand-over: %+v", d)
			}
		})
	}
}

// Two services in one group never hand over, and each asks once.
func TestNoHandOverOfOtherJobs(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "both", Schedule: minutely}, 0)
		f.do(sched.Job{Name: "one", Schedule: minutely}, 0)
		one := f.start(0)
		f.until("00:00:10")
		f.jobs = f.jobs[:1]
		f.do(sched.Job{Name: "two", Schedule: minutely}, 0)
		f.do(sched.Job{Name: "three", Schedule: minutely}, 0)
		f.start(0)
		f.until("00:59:30")
		f.wantHeir(one, 1)
		if n := f.puts("/now/heir/"); n != 1 {
			t.Errorf("asked %d times", n)
		}
		f.ledger.want(t, "one", minutes(1, 59)...)
	})
}

// A process that dies when it has asked costs the others its lease, once.
func TestHandOverToTheDead(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "old", Schedule: minutely, Overlap: sched.Allow{}, CatchUp: sched.All{Max: 9}}, 0)
		owner := f.start(0)
		owner.deafens().Store(true) // it hears of the request seconds later
		f.until("00:00:10")
		f.start(0)
		f.until("00:00:50")
		f.do(sched.Job{Name: "new", Schedule: minutely}, 0)
		dead := f.start(0)
		for f.puts("/now/heir/") == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		dead.kill()
		if is := f.owner(); is != owner {
			t.Fatalf("the owner is %v already", is)
		}
		f.until("00:10:30")
		f.wantHeir(f.owner(), 3)
		f.ledger.want(t, "old", minutes(1, 10)...)
	})
}

// A process whose request is lost, or the reply, or whose owner answers late, gets the ownership at the next look.
func TestHandOverAfterFaults(t *testing.T) {
	for name, fault := range map[string]struct{ owner, asker claimtest.Fault }{
		"request lost":   {asker: claimtest.Fault{On: claimtest.Acquire, Times: 1, LoseRequest: true}},
		"request failed": {asker: claimtest.Fault{On: claimtest.Acquire, Times: 1, LoseRequest: true, Code: codes.Unavailable}},
		"reply lost":     {asker: claimtest.Fault{On: claimtest.Acquire, Times: 1, LoseReply: true}},
		"owner busy":     {owner: claimtest.Fault{On: claimtest.Other, Times: -1, DelayRequest: 400 * time.Millisecond}},
		"release lost":   {owner: claimtest.Fault{On: claimtest.Release, Times: 1, Key: "sched/default/owner", LoseRequest: true}},
		"its reply lost": {owner: claimtest.Fault{On: claimtest.Release, Times: 1, Key: "sched/default/owner", LoseReply: true}},
	} {
		caseInFleet(t, name, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "old", Schedule: minutely, Overlap: sched.Allow{}, CatchUp: sched.All{Max: 9}}, 0)
			owner := f.start(0)
			f.until("00:00:10")
			f.start(0)
			f.do(sched.Job{Name: "new", Schedule: minutely}, 0)
			heir := f.start(0)
			f.until("00:00:10.9")
			at, is := owner, fault.owner
			if is.Times == 0 {
				at, is = heir, fault.asker
			}
			happens := at.host.Inject(is)
			f.until("00:01:40")
			if happens.Hits() == 0 {
				t.Error("no fault has happened")
			}
			f.wantHeir(heir, 2)
			f.until("00:05:30")
			f.wantHeir(heir, 2)
			f.ledger.want(t, "old", minutes(1, 5)...)
		})
	}
}
