package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/steps"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// kinds of holders; see the claims' layout.
const (
	kindLock    = "lock"
	kindZombie  = "zombie"
	kindResting = "resting"
)

// keyCall is a call that may change whose key it is, other than by a release of a claim: it may put a
// lock, end one, or supersede a claim of its process.
type keyCall struct {
	verb     string
	p        *process
	key      string
	owner    string        // who holds or asks for the lock; "" if the call takes it from anybody by force
	ttl      time.Duration // of a lock that it may be told of
	from, to time.Time     // to is zero while it lasts
	era      int
	fence    int64 // of the lock that it was told of; 0: of none
	freed    bool  // it was told that it ended a lock
	open     bool  // it ended without knowing what became of it
}

// verbs of calls.
const (
	verbLock      = "lock"
	verbUnlock    = "unlock"
	verbSupersede = "supersede"
)

// calls notes that a call begins.
func (t *trace) calls(c keyCall) *keyCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.from, c.era = time.Now(), t.era
	t.keyCalls = append(t.keyCalls, &c)
	return &c
}

// returned notes its end.
func (c *keyCall) returned(fence int64, err error) {
	c.p.w.trace.note(func(*trace) {
		c.to, c.fence, c.open = time.Now(), fence, err != nil
	})
}

// partingTakes is more than a call that ends a lock may.
const partingTakes = 10 * time.Second

// lockTerm is a lock that was in etcd.
type lockTerm struct {
	owner    string
	lease    clientv3.LeaseID
	era      int
	from, to time.Time
	over     bool // ended for certain by what was meant to, or by a restore
}

// lock uses the owner-string view for a while, by a name that it shares with
// other processes.
func (p *process) lock(rng *rand.Rand) {
	key, owner := p.key(rng), fmt.Sprintf("name%d", rng.IntN(2))
	ttl := time.Duration(1+rng.IntN(3)) * shortTTL
	for range 1 + rng.IntN(5) {
		if p.ctx.Err() != nil {
			return
		}
		p.lockOnce(rng, key, owner, ttl)
		p.pause(between(rng, 0, ttl))
	}
	p.unlock(rng, key, owner)
}

func (p *process) lockOnce(rng *rand.Rand, key, owner string, ttl time.Duration) {
	ctx, cancel := p.within(rng, 8*time.Second)
	defer cancel()
	call := locks.New(p.client).TryAcquire
	switch rng.IntN(5) {
	case 0:
		p.unlock(rng, key, owner)
		return
	case 1:
		_, _, err := locks.New(p.client).Owner(ctx, key)
		p.class("lock owner", err)
		return
	case 2:
		call = locks.New(p.client).Renew
	}
	if rng.IntN(8) == 0 {
		ttl += time.Second // which raises the fence
	}
	p.lockBy(ctx, call, key, owner, ttl)
}

// lockBy makes a call that may put a lock.
func (p *process) lockBy(
	ctx context.Context, call func(context.Context, string, string, time.Duration) (int64, bool, error), key, owner string, ttl time.Duration,
) {
	c := p.w.trace.calls(keyCall{verb: verbLock, p: p, key: key, owner: owner, ttl: ttl})
	fence, ok, err := call(ctx, key, owner, ttl)
	c.returned(fence, err)
	p.class("lock", err)
	p.w.faultIf(ok != (fence > 0) || ok && err != nil,
		"%s: the call for a lock returned %v with fence %d and error %v", p.name, ok, fence, err)
	if ok {
		p.w.count("locked")
	}
}

func (p *process) unlock(rng *rand.Rand, key, owner string) {
	ctx, cancel := p.within(rng, 8*time.Second)
	defer cancel()
	c := p.w.trace.calls(keyCall{verb: verbUnlock, p: p, key: key, owner: owner})
	ok, err := locks.New(p.client).Release(ctx, key, owner)
	c.freed = ok && err == nil
	c.returned(0, err)
	p.class("unlock", err)
	p.w.faultIf(ok && err != nil, "%s: a lock is said to be released, with error %v", p.name, err)
}

// lockEnds notes when a lock was gone, and whether that was meant.
func (r *replay) lockEnds(token fencing.Token, before, by change, taken bool) {
	l := r.locks[token]
	if l == nil || l.lease != before.lease {
		return
	}
	l.to, l.over = by.at, l.over || taken || !by.deleted
	for _, c := range r.t.keyCalls {
		began := c.from.Add(partingTakes) // before the lock, maybe, which it met later
		ends := c.verb == verbUnlock && c.key == token.Key && (c.owner == "" || c.owner == l.owner)
		l.over = l.over || ends && !began.Before(l.from) && !c.from.After(by.at)
	}
}

// seenLate is how much later the observer may see what clients see: etcd serves
// a watch that has begun in the past each 100 ms.
const seenLate = 200 * time.Millisecond

// judgeLocks checks that who was told of a lock had it then, and for as long as
// it was promised, unless it was ended.
func (r *replay) judgeLocks() {
	for _, told := range r.t.keyCalls {
		token := fencing.Token{Key: told.key, Fence: told.fence}
		l := r.locks[token]
		switch {
		case told.fence == 0:
		case l != nil && l.era != told.era: // a fence can be had twice
		case told.fence>>47 < r.epochAt(told.era, told.from):
			r.fault("%s was told at %s that %s has the lock %v: the epoch was %d before",
				told.p.name, clockOf(told.from), told.owner, token, r.epochAt(told.era, told.from))
		case l == nil || l.owner != told.owner:
			r.fault("%s was told that %s has the lock %v, which is not in etcd", told.p.name, told.owner, token)
		case !r.ledger.healthy(nil, told.to, told.to): // the observer may have seen it late
		case l.from.Add(-seenLate).After(told.to) || !l.over && !l.to.IsZero() && l.to.Before(told.from):
			r.fault("%s was told between %s and %s that %s has the lock %v: it was there from %s to %s", told.p.name,
				clockOf(told.from), clockOf(told.to), told.owner, token, clockOf(l.from), clockOf(l.to))
		case !l.over && !l.to.IsZero() && l.to.Before(told.from.Add(told.ttl)):
			r.fault("%s was told at %s that %s has the lock %v for %v: it was gone at %s", told.p.name,
				clockOf(told.from), told.owner, token, told.ttl, clockOf(l.to))
		}
	}
}

// lockAgain checks that a lock that is put was not released before by a call that
// began after all that could ask for it had returned: then a request of theirs
// came late, and was carried out. What another process left open the releasing one
// cannot know of.
func (r *replay) lockAgain(c change, owner, key string) {
	asked := time.Time{}
	asks := func(a *keyCall) bool { return a.verb == verbLock && a.key == key && a.owner == owner }
	for _, a := range r.t.keyCalls {
		if !asks(a) || a.from.After(c.at) {
			continue
		}
		if a.to.IsZero() || !a.to.Before(c.at.Add(-seenLate)) {
			return // it is being asked for
		}
		if a.to.After(asked) {
			asked = a.to
		}
	}
	for _, u := range r.t.keyCalls {
		unknown := func(a *keyCall) bool { return asks(a) && a.open && a.p != u.p && a.from.Before(c.at) }
		if !u.freed || u.key != key || u.owner != owner || !u.from.After(asked) || !u.to.Add(seenLate).Before(c.at) ||
			slices.ContainsFunc(r.t.keyCalls, unknown) {
			continue
		}
		if r.ledger.hearing(nil, c.at, c.at) { // else the observer may have seen it late
			r.fault("a lock was put at %s that was released between %s and %s, when all who had asked for it had returned: %v", clockOf(c.at), clockOf(u.from), clockOf(u.to), c)
			return
		}
	}
}

// lockUnderFire lets a request for a lock arrive late, after the lock was had by
// another request, and released.
func (w *world) lockUnderFire(p *process) {
	w.disturb(p, claimtest.Fault{On: steps.Take, Key: w.line, Hold: letGo(w.rng, longTTL)}, recovery)
	rng := split(w.rng)
	p.wg.Go(func() {
		owner := fmt.Sprintf("late%d", rng.IntN(2))
		for range 2 {
			ctx, cancel := context.WithTimeout(p.ctx, between(rng, 5*time.Second, 20*time.Second)) // it does not give up soon
			p.lockBy(ctx, locks.New(p.client).TryAcquire, w.line, owner, longTTL)
			cancel()
			p.pause(between(rng, 0, time.Second))
			p.unlock(rng, w.line, owner)
		}
	})
}

// gateKey is what claims on a condition must not find.
const gateKey = "/gate"

// whileOpen is that condition.
func whileOpen() etcdclaims.AcquireOption {
	return etcdclaims.If(clientv3.Compare(clientv3.CreateRevision(gateKey), "=", 0))
}

// turnGate opens or shuts the gate, from a machine that nothing happens to.
func (p *process) turnGate(rng *rand.Rand) {
	ctx, cancel := p.within(rng, 5*time.Second)
	defer cancel()
	op := clientv3.OpDelete(gateKey)
	if rng.IntN(3) == 0 {
		op = clientv3.OpPut(gateKey, "")
	}
	_, _ = p.w.server.Admin().Do(ctx, op) // what it did is seen
}
