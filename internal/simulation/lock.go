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

// locking is a call that was told that an owner has a lock.
type locking struct {
	p        *process
	token    fencing.Token
	owner    string
	ttl      time.Duration
	from, to time.Time // of the call
	era      int
}

// asking is a call that may put a lock.
type asking struct {
	p          *process
	key, owner string
	from, to   time.Time // to is zero while it lasts
	open       bool      // it ended without knowing what became of it
}

// mayPart notes that a lock may be ended from now on.
func (p *process) mayPart(key, owner string) {
	p.w.trace.note(func(t *trace) { t.partings = append(t.partings, parting{key: key, owner: owner, from: time.Now()}) })
}

// unlocking is a release of a lock that was done.
type unlocking struct {
	p          *process
	key, owner string
	from, to   time.Time
}

// partingTakes is more than such a call may.
const partingTakes = 10 * time.Second

// parting is a call that may have ended a lock: by its owner, or by force.
type parting struct {
	key   string
	owner string // "": whoever has it
	from  time.Time
}

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

// lockFor locks the key, and does not give up soon.
func (p *process) lockFor(rng *rand.Rand, key, owner string) {
	ctx, cancel := context.WithTimeout(p.ctx, between(rng, 5*time.Second, 20*time.Second))
	defer cancel()
	end := p.w.trace.asks(p, key, owner)
	_, _, err := locks.New(p.client).TryAcquire(ctx, key, owner, longTTL)
	end(err)
	p.class("lock", err)
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
	l := &locking{p: p, owner: owner, ttl: ttl, from: time.Now()}
	p.w.trace.note(func(t *trace) { l.era = t.era })
	end := p.w.trace.asks(p, key, owner)
	fence, ok, err := call(ctx, key, owner, ttl)
	end(err)
	p.class("lock", err)
	if ok != (fence > 0) || ok && err != nil {
		p.w.fault("%s: a lock is said to be had: %v, with fence %d, and error %v", p.name, ok, fence, err)
	}
	if ok {
		p.w.count("locked")
		l.token, l.to = fencing.Token{Key: key, Fence: fence}, time.Now()
		p.w.trace.note(func(t *trace) { t.lockings = append(t.lockings, l) })
	}
}

func (p *process) unlock(rng *rand.Rand, key, owner string) {
	ctx, cancel := p.within(rng, 8*time.Second)
	defer cancel()
	p.mayPart(key, owner)
	from := time.Now()
	ok, err := locks.New(p.client).Release(ctx, key, owner)
	p.class("unlock", err)
	if ok && err == nil {
		u := unlocking{p: p, key: key, owner: owner, from: from, to: time.Now()}
		p.w.trace.note(func(t *trace) { t.unlocked = append(t.unlocked, u) })
	}
	if ok && err != nil {
		p.w.fault("%s: a lock is said to be released, with error %v", p.name, err)
	}
}

// asks notes that a call begins that may put a lock; the returned function notes
// its end.
func (t *trace) asks(p *process, key, owner string) (end func(err error)) {
	a := &asking{p: p, key: key, owner: owner, from: time.Now()}
	t.note(func(t *trace) { t.asked = append(t.asked, a) })
	return func(err error) { t.note(func(*trace) { a.to, a.open = time.Now(), err != nil }) }
}

// lockEnds notes when a lock was gone, and whether that was meant.
func (r *replay) lockEnds(token fencing.Token, before, by change, taken bool) {
	l := r.locks[token]
	if l == nil || l.lease != before.lease {
		return
	}
	l.to, l.over = by.at, l.over || taken || !by.deleted
	for _, p := range r.t.partings {
		began := p.from.Add(partingTakes) // before the lock, maybe, which it met later
		if p.key == token.Key && (p.owner == "" || p.owner == l.owner) && !began.Before(l.from) && !p.from.After(by.at) {
			l.over = true
		}
	}
}

// seenLate is how much later the observer may see what clients see: etcd serves
// a watch that has begun in the past each 100 ms.
const seenLate = 200 * time.Millisecond

// judgeLocks checks that who was told of a lock had it then, and for as long as
// it was promised, unless it was ended.
func (r *replay) judgeLocks() {
	for _, told := range r.t.lockings {
		l := r.locks[told.token]
		switch {
		case l != nil && l.era != told.era: // a fence can be had twice
		case told.token.Fence>>47 < r.epochAt(told.era, told.from):
			r.fault("%s was told at %s that %s has the lock %v: the epoch was %d before", told.p.name, clockOf(told.from), told.owner, told.token, r.epochAt(told.era, told.from))
		case l == nil || l.owner != told.owner:
			r.fault("%s was told that %s has the lock %v, which is not in etcd", told.p.name, told.owner, told.token)
		case !r.t.w.ledger.healthy(nil, told.to, told.to): // the observer may have seen it late
		case l.from.Add(-seenLate).After(told.to) || !l.over && !l.to.IsZero() && l.to.Before(told.from):
			r.fault("%s was told between %s and %s that %s has the lock %v: it was there from %s to %s", told.p.name,
				clockOf(told.from), clockOf(told.to), told.owner, told.token, clockOf(l.from), clockOf(l.to))
		case !l.over && !l.to.IsZero() && l.to.Before(told.from.Add(told.ttl)):
			r.fault("%s was told at %s that %s has the lock %v for %v: it was gone at %s", told.p.name,
				clockOf(told.from), told.owner, told.token, told.ttl, clockOf(l.to))
		}
	}
}

// lockAgain checks that a lock that is put was not released before by a call that
// began after all that could ask for it had returned: then a request of theirs
// came late, and was carried out. What another process left open the releasing one
// cannot know of.
func (r *replay) lockAgain(c change, owner, key string) {
	asked := time.Time{}
	for _, a := range r.t.asked {
		if a.key != key || a.owner != owner || a.from.After(c.at) {
			continue
		}
		if a.to.IsZero() || !a.to.Before(c.at.Add(-seenLate)) {
			return // it is being asked for
		}
		if a.to.After(asked) {
			asked = a.to
		}
	}
	for _, u := range r.t.unlocked {
		unknown := slices.ContainsFunc(r.t.asked, func(a *asking) bool {
			return a.key == key && a.owner == owner && a.open && a.p != u.p && a.from.Before(c.at)
		})
		if u.key != key || u.owner != owner || unknown || !u.from.After(asked) || !u.to.Add(seenLate).Before(c.at) {
			continue
		}
		if r.t.w.ledger.hearing(nil, c.at, c.at) { // else the observer may have seen it late
			r.fault("a lock was put at %s that was released between %s and %s, when all who had asked for it had returned: %v", clockOf(c.at), clockOf(u.from), clockOf(u.to), c)
			return
		}
	}
}

// lockUnderFire lets a request for a lock arrive late, after the lock was had by
// another request, and released.
func (w *world) lockUnderFire(p *process) {
	i := p.inject(claimtest.Fault{On: steps.Take, Key: w.line, Hold: w.letGo(longTTL)})
	end := w.ledger.begin(span{who: p, injection: i})
	p.later(recovery, func() { i.Remove(); end() })
	rng := split(w.rng)
	p.wg.Go(func() {
		owner := fmt.Sprintf("late%d", rng.IntN(2))
		for range 2 {
			p.lockFor(rng, w.line, owner)
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
