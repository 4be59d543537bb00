package simulation

import (
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
)

// belief is a claim that a process may take for its own, and how it asks.
type belief struct {
	p     *process
	token fencing.Token
	check func() error
}

// key is the key that the process may believe to have, alone or with others.
func (b belief) key() string {
	if isSharedToken(b.token) {
		return sharedKey
	}
	return b.token.Key
}

// holds reports whether the process would go on at this instant. A machine that
// sleeps asks nothing.
func (b belief) holds() bool {
	return !b.p.dead.Load() && !b.p.asleep.Load() && b.check() == nil
}

// overlap is an instant at which the owner of a key passed Check, and its
// successor did.
type overlap struct {
	p, by *process
	next  fencing.Token
	at    time.Time
}

// believe notes who was granted a key, at this very instant, and who still takes
// that key for its own.
func (t *trace) believe(now belief) {
	t.mu.Lock()
	others := t.beliefs[now.key()]
	t.mu.Unlock()
	kept := []belief{now}
	over := map[fencing.Token]overlap{}
	current := now.holds()
	for _, b := range others {
		if b.token == now.token || !b.holds() {
			continue
		}
		kept = append(kept, b)
		if current && b.token.Fence < now.token.Fence && !(isSharedToken(b.token) && isSharedToken(now.token)) {
			over[b.token] = overlap{p: b.p, by: now.p, next: now.token, at: time.Now()}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beliefs[now.key()] = kept
	for token, o := range over {
		t.overlaps[token] = o
	}
	t.w.counts1("judged: owners beside the one before", len(others))
}

// alone checks that nobody else passed Check while a claim did, up to the change that ends
// it, unless the claim was taken away behind its holder's back.
func (r *replay) alone(token fencing.Token, by change) {
	if o, both := r.t.overlaps[token]; both && !r.takenFromItself(o, by) {
		r.fault("%s passed Check with %v at %s, when %s had been granted %v and passed it, too", o.p.name, token, clockOf(o.at), o.by.name, o.next)
	}
}

// takenFromItself reports whether a claim was superseded by its own process, whose new claim
// was taken away before the overlap. The process may have heard of neither yet.
func (r *replay) takenFromItself(o overlap, by change) bool {
	if by.deleted || by.holder().Instance != o.p.client.Instance() {
		return false
	}
	for _, c := range r.t.changes {
		if c.key != by.key || c.era != by.era || c.rev <= by.rev || c.at.After(o.at) {
			continue
		}
		if _, taken := r.taken(by, c); taken {
			return true
		}
		by = c
	}
	return false
}

// rest is a claim whose key must stay held for a while, whenever it is released.
type rest struct {
	*term
	from  time.Time // when it was put
	least time.Duration
}

// rested checks that the key of a claim that was to rest is not had by another, or
// free, before that time is over.
func (r *replay) rested(before, by change) {
	h := before.holder()
	rest, ok := r.rests[h.Claim]
	if !ok {
		return
	}
	if !by.deleted && by.holder().Claim == h.Claim {
		return // it goes on, on another lease
	}
	delete(r.rests, h.Claim)
	_, taken := r.taken(before, by)
	if taken || rest.p.dead.Load() || !rest.lost.IsZero() && rest.why != etcdclaims.ReasonShutdown && rest.why != etcdclaims.ReasonOutlived ||
		!r.t.w.ledger.healthy(rest.p, rest.from, by.at) || r.t.w.ledger.full(rest.from, by.at) {
		return
	}
	r.t.w.count("judged: keys that were to be held for a while")
	if held := by.at.Sub(rest.from); held+seenLate < rest.least { // its put may have been seen late
		r.fault("%v of %s was to be held for %v at least, and was given up after %v: %v", rest.token, rest.p.name, rest.least, held, by)
	}
}
