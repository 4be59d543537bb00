package main

import (
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
	o        options
	r        *rand.Rand // of the one goroutine
	members  *members
	workers  *workers
	observer *observer
	log      *faultLog

	lasting sync.WaitGroup
	giveUp  context.CancelFunc // ends run's context
	mu      sync.Mutex
	busy    map[string]bool // what a fault that lasts has to itself
	lives   []int           // of the workers in each slot; the n-th has the n-th name
	err     error           // something that could not be healed
}

func newNemesis(o options, m *members, c *workers, obs *observer, log *faultLog) *nemesis {
	n := &nemesis{
		o: o, r: rand.New(rand.NewPCG(o.seed, 0)), members: m, workers: c, observer: obs, log: log,
		busy: map[string]bool{}, lives: make([]int, o.workers),
	}
	for slot := range n.lives {
		n.lives[slot] = 1
	}
	return n
}

// A plannedFault is a fault that was chosen and not yet made. Its functions run on a
// goroutine of their own, so all random choices are made before, in its fields.
type plannedFault struct {
	kind   faultKind
	needs  string // what no other fault may have at the same time
	slot   int    // of the worker
	worker string
	note   string
	begin  func(context.Context) error
	lasts  time.Duration
	heal   func() error // nil if there is nothing to heal
}

// run makes faults until ctx ends, and returns when all are healed. It gives up when one cannot
// be healed: with a member gone for good, the faults that follow would show nothing.
func (n *nemesis) run(ctx context.Context) error {
	ctx, n.giveUp = context.WithCancel(ctx)
	defer n.giveUp()
	for ctx.Err() == nil {
		for until := time.Now().Add(between(n.r, 2*n.o.ttl, 4*n.o.ttl)); time.Now().Before(until) && ctx.Err() == nil; {
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
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// inject makes a fault, unless what it needs is taken.
func (n *nemesis) inject(ctx context.Context, s plannedFault) {
	if ctx.Err() != nil || !n.take(s.needs) {
		return
	}
	if s.needs != "" && s.worker != "" && n.workers.at(s.slot).name != s.worker {
		n.give(s.needs) // there is a new one since it was chosen
		return
	}
	n.lasting.Go(func() {
		defer n.give(s.needs)
		f := n.log.begin(s.kind, s.worker, s.note)
		if err := s.begin(ctx); err != nil {
			// Such as a leader that cannot be moved while members are down.
			n.log.end(f, err)
			if s.heal != nil {
				n.healed(s, s.heal())
			}
			return
		}
		if s.kind == killWorker {
			n.log.end(f, nil) // that another worker starts later ends nothing
		}
		retry.Sleep(ctx, s.lasts)
		if s.heal != nil {
			n.healed(s, s.heal())
		}
		if s.kind != killWorker {
			n.log.end(f, nil)
		}
	})
}

func (n *nemesis) healed(s plannedFault, err error) {
	if err == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil {
		n.err = fmt.Errorf("healing %q %s %s: %w", s.kind, s.worker, s.note, err)
		n.giveUp()
	}
}

func (n *nemesis) take(what string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if what != "" && n.busy[what] {
		return false
	}
	n.busy[what] = true
	return true
}

func (n *nemesis) give(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.busy, what)
}

// orphan takes one worker away while nothing else is wrong, half of the times
// etcd's leader with it, and waits until its keys have other owners, or for as
// long as that may take.
func (n *nemesis) orphan(ctx context.Context) {
	slot := n.slotWithKeys()
	withLeader := n.r.IntN(2) == 0
	bound := plainBound(n.o.ttl)
	if withLeader {
		bound = leaderBound(n.o.ttl)
	}
	began := time.Now()
	s := n.killWorker(slot)
	if n.r.IntN(3) == 0 {
		s = n.stopWorker(slot, bound+settling)
	}
	// The next worker of that slot would put itself in line, not in the way.
	n.inject(ctx, s)
	if withLeader {
		retry.Sleep(ctx, between(n.r, 0, n.o.ttl*4/5))
		if leader := n.members.leader(ctx); leader >= 0 {
			n.inject(ctx, n.leaderFault(leader))
		}
	}
	for ctx.Err() == nil && time.Since(began) < bound {
		if its, _ := n.observer.owned(s.worker); len(its) == 0 {
			break
		}
		retry.Sleep(ctx, 50*time.Millisecond)
	}
	n.lasting.Wait()
	retry.Sleep(ctx, settling)
}

// slotWithKeys picks a worker, one that owns keys if there is one.
func (n *nemesis) slotWithKeys() int {
	slots := n.r.Perm(n.o.workers)
	for _, slot := range slots {
		if its, _ := n.observer.owned(n.workers.at(slot).name); len(its) > 0 {
			return slot
		}
	}
	return slots[0]
}
