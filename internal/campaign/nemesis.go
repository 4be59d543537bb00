package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
)

// The nemesis alternates between storms and single faults. In a storm, faults of all
// kinds begin every second or so and overlap. A single fault kills or stops one
// worker, sometimes together with etcd's leader, while nothing else is wrong. Only
// single faults show how fast keys are picked up. The nemesis is one goroutine, and
// one more for each fault that lasts.
type nemesis struct {
	ttl      time.Duration
	r        *rand.Rand // of the one goroutine
	members  *members
	workers  *workers
	observer *observer
	line     func(format string, args ...any) // prints each fault as it begins and ends

	lasting sync.WaitGroup
	giveUp  context.CancelFunc // ends run's context
	mu      sync.Mutex
	faults  []*fault // so far
	err     error    // something that could not be healed

	// What a fault has to itself while it lasts.
	processes, links [workerCount]sync.Mutex
	anyMember        sync.Mutex
}

// run makes faults until ctx ends, and returns when all are healed. It gives up when one cannot
// be healed: with a member gone for good, the faults that follow would show nothing.
func (n *nemesis) run(ctx context.Context) ([]*fault, error) {
	ctx, n.giveUp = context.WithCancel(ctx)
	defer n.giveUp()
	for ctx.Err() == nil {
		for until := time.Now().Add(between(n.r, 2*n.ttl, 4*n.ttl)); time.Now().Before(until) && ctx.Err() == nil; {
			n.inject(ctx, n.choose(ctx))
			retry.Sleep(ctx, between(n.r, 200*time.Millisecond, 2*time.Second))
		}
		n.lasting.Wait() // the longest takes two TTLs
		retry.Sleep(ctx, settling)
		for range 1 + n.r.IntN(2) {
			n.orphan(ctx)
		}
	}
	n.lasting.Wait()
	return n.faults, n.err
}

// inject makes a fault, unless another has what it needs, or it concerns a worker that was
// replaced since it was chosen.
func (n *nemesis) inject(ctx context.Context, p plannedFault) {
	needs := cmp.Or(p.needs, new(sync.Mutex))
	if ctx.Err() != nil || !needs.TryLock() {
		return
	}
	if p.needs != nil && p.worker != "" && n.workers.at(p.slot).name != p.worker {
		needs.Unlock()
		return
	}
	n.lasting.Go(func() {
		defer needs.Unlock()
		f := &p.fault
		n.began(f)
		if err := p.begin(ctx); err != nil {
			n.ended(f, err) // such as a leader that cannot be moved while members are down
		} else {
			if p.kind == killWorker {
				n.ended(f, nil) // that another worker starts later ends nothing
			}
			retry.Sleep(ctx, p.lasts)
		}
		if p.heal != nil {
			n.healed(f, p.heal())
		}
		if f.to.IsZero() {
			n.ended(f, nil)
		}
	})
}

func (n *nemesis) began(f *fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f.from = time.Now()
	n.faults = append(n.faults, f)
	n.line("%s %s %s", f.kind, f.worker, f.note)
}

// ended notes that the fault is over, or could not be made.
func (n *nemesis) ended(f *fault, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f.to, f.failed = time.Now(), err != nil
	how := "is over"
	if err != nil {
		how = fmt.Sprintf("failed: %v", err)
	}
	n.line("%s %s %s %s after %v", f.kind, f.worker, f.note, how, f.to.Sub(f.from).Round(time.Millisecond))
}

func (n *nemesis) healed(f *fault, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && n.err == nil {
		n.err = fmt.Errorf("healing %q %s %s: %w", f.kind, f.worker, f.note, err)
		n.giveUp()
	}
}

// orphan takes one worker away while nothing else is wrong, half of the times
// etcd's leader with it, and waits until its keys have other owners, or for as
// long as that may take.
func (n *nemesis) orphan(ctx context.Context) {
	slot := n.slotWithKeys()
	withLeader := n.r.IntN(2) == 0
	bound := plainBound(n.ttl)
	if withLeader {
		bound = leaderBound(n.ttl)
	}
	began := time.Now()
	p := n.killWorker(slot)
	if n.r.IntN(3) == 0 {
		p = n.stopWorker(slot, bound+settling)
	}
	// The next worker of that slot would put itself in line, not in the way.
	n.inject(ctx, p)
	if withLeader {
		retry.Sleep(ctx, between(n.r, 0, n.ttl*4/5))
		if leader := n.members.leader(ctx); leader >= 0 {
			n.inject(ctx, n.leaderFault(leader))
		}
	}
	for ctx.Err() == nil && time.Since(began) < bound && len(n.observer.owned(p.worker)) > 0 {
		retry.Sleep(ctx, 50*time.Millisecond)
	}
	n.lasting.Wait()
	retry.Sleep(ctx, settling)
}

// slotWithKeys picks a worker, one that owns keys if there is one.
func (n *nemesis) slotWithKeys() int {
	slots := n.r.Perm(workerCount)
	for _, slot := range slots {
		if len(n.observer.owned(n.workers.at(slot).name)) > 0 {
			return slot
		}
	}
	return slots[0]
}

// A faultKind is what the nemesis can do.
type faultKind string

// The faults. Those of a worker's process and of its links name the worker.
const (
	killWorker   faultKind = "kill a worker"
	stopWorker   faultKind = "stop a worker"
	killLeader   faultKind = "kill the leader"
	killFollower faultKind = "kill a follower"
	stopLeader   faultKind = "stop the leader past the TTL"
	stopFollower faultKind = "stop a follower"
	moveLeader   faultKind = "move the leader"
	loseQuorum   faultKind = "stop two members"
	cutLinks     faultKind = "cut links"
	halfCutLinks faultKind = "cut links one way"
	breakLinks   faultKind = "break links"
	deleteClaim  faultKind = "delete a claim's key"
	revokeLease  faultKind = "revoke a lease"
	compactAll   faultKind = "compact"
)

// ofLeader reports whether the fault takes etcd's leader away.
func (k faultKind) ofLeader() bool { return k == killLeader || k == stopLeader || k == moveLeader }

// ofMembers reports whether the fault is one of etcd's members.
func (k faultKind) ofMembers() bool {
	return k.ofLeader() || k == killFollower || k == stopFollower || k == loseQuorum
}

// ofLinks reports whether the fault is one of a worker's links.
func (k faultKind) ofLinks() bool { return k == cutLinks || k == halfCutLinks || k == breakLinks }

// A fault is something the nemesis did. A worker that was killed stays dead, so
// the end of that fault is its beginning.
type fault struct {
	kind   faultKind
	worker string // whose process, links or lease; empty for those of members
	note   string
	from   time.Time
	to     time.Time // zero while it lasts
	failed bool      // it could not be made
}

// A plannedFault is a fault that was chosen and not yet made. Its functions run on a
// goroutine of their own, so all random choices are made before, in its fields.
type plannedFault struct {
	fault
	needs *sync.Mutex // what no other fault may have at the same time, or nil
	slot  int         // of the worker
	begin func(context.Context) error
	lasts time.Duration
	heal  func() error // nil if there is nothing to heal
}
