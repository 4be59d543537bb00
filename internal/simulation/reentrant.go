package simulation

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
)

// reentrantKey is a key whose claims the callers of a process share. The trace judges the
// claims as others, from the first handle of a process to its last.
const reentrantKey = "reentrant"

// handles are what the callers of a process have of the key.
type handles struct {
	mu      sync.Mutex
	of      map[fencing.Token]*handle
	callers sync.Map // since when each waits to share a claim
}

// handle is a claim of a process.
type handle struct {
	n     int // how many handles of it there are
	since time.Time
}

// entering claims the key, and maybe once more while it is held.
func (p *process) entering(rng *rand.Rand) {
	if cl := p.enter(rng); cl != nil {
		p.writeUnder(rng, cl, cl.Token(), 6*time.Second, time.Second)
		if rng.IntN(2) == 0 {
			p.enterAgain(rng, cl)
		}
		p.leave(rng, cl)
	}
}

// enter makes one acquisition; nil if it was not granted. One in eight excludes the others.
func (p *process) enter(rng *rand.Rand) *etcdclaims.Claim {
	opts := []etcdclaims.AcquireOption{}
	if rng.IntN(8) > 0 {
		opts = append(opts, etcdclaims.Reentrant())
		since := time.Now()
		p.handles.callers.Store(&since, true)
		defer p.handles.callers.Delete(&since)
	}
	opt, _ := p.extra(rng, 3)
	cl, err := p.acquireSome(rng, reentrantKey, append(opts, opt)...)
	if err != nil || p.dead.Load() {
		return nil
	}
	p.handles.enter(p, cl)
	return cl
}

// enterAgain acquires the key while the caller has it: that waits for nobody.
func (p *process) enterAgain(rng *rand.Rand, outer *etcdclaims.Claim) {
	if outer.Context().Err() != nil || p.dead.Load() {
		return
	}
	ctx, cancel := p.within(rng, 40*time.Second)
	defer cancel()
	begin := time.Now()
	inner, err := p.client.Acquire(ctx, reentrantKey, etcdclaims.Reentrant())
	switch {
	case p.dead.Load():
	case err == nil:
		p.w.count("keys had again by their holders")
		p.handles.enter(p, inner)
		p.leave(rng, inner)
	case time.Since(begin) > time.Second && outer.Context().Err() == nil && p.w.ledger.healthy(p, begin, time.Now()):
		p.w.fault("%s has %v, and did not get it again in %v: %v", p.name, outer.Token(), time.Since(begin), err)
	default:
		p.class("acquire", err)
	}
}

// leave releases one handle.
func (p *process) leave(rng *rand.Rand, cl *etcdclaims.Claim) {
	if p.dead.Load() {
		return
	}
	p.handles.leave(p, cl)
	p.class("release", soon(between(rng, 0, 10*time.Second), cl.Release))
}

// enter notes that the process has one handle more.
func (h *handles) enter(p *process, cl *etcdclaims.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	token := cl.Token()
	if one := h.of[token]; one != nil {
		one.n++
		return
	}
	h.of[token] = &handle{n: 1, since: time.Now()}
	known, good := false, cl.Check() == nil
	p.w.trace.note(func(t *trace) {
		m := t.terms[token]
		if known = m != nil; known && good && m.lost.IsZero() {
			m.end = time.Time{} // this handle was there before the last one was released
		}
	})
	if !known {
		p.holds(token, cl.Check)
	}
}

// leave notes that the process is about to release a handle. By then other callers of the
// process share the claim: all that a renewal must have told that they may.
func (h *handles) leave(p *process, cl *etcdclaims.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	token, now := cl.Token(), time.Now()
	one := h.of[token]
	for c := range h.callers.Range {
		since := *c.(*time.Time)
		if one.since.After(since) {
			since = one.since
		}
		if now.Sub(since) > p.longest()/2+time.Second && cl.Context().Err() == nil && p.cleared.Load() == 0 && p.w.ledger.healthy(p, since, now) {
			p.w.fault("%s has %v, and another of its callers has waited for %v to share it", p.name, token, now.Sub(since))
		}
	}
	if one.n--; one.n == 0 {
		delete(h.of, token)
		p.w.trace.ended(token, p)
	}
}
