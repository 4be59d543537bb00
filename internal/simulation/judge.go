package simulation

import (
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
)

// judge holds what processes took for true against what happened.
func (t *trace) judge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := newReplay(t)
	era := 0
	for i, c := range t.changes {
		if c.era != era {
			era = c.era
			r.restored(i, era)
		}
		if r.queue != nil && (i == 0 || c.point != t.changes[i-1].point) {
			n := i + 1
			for n < len(t.changes) && c.point == t.changes[n].point {
				n++
			}
			r.queue.transaction(t.changes[i:n])
		}
		switch {
		case strings.HasPrefix(c.key, prefix+"own/"):
			r.owner(c)
		case strings.HasPrefix(c.key, effectPrefix), strings.HasPrefix(c.key, thenPrefix):
			r.wrote(c)
		case strings.HasPrefix(c.key, donePrefix) && !c.deleted && !c.undone:
			if r.done[c.key]++; r.done[c.key] > 1 {
				r.fault("work was completed %d times: %v", r.done[c.key], c)
			}
		default:
			r.settle(c)
		}
	}
	for token, m := range t.terms {
		r.faultIf(!m.seen, "%s was granted %v, which is not in etcd", m.p.name, token)
	}
	for _, c := range r.own {
		r.ghost(c, t.changes[len(t.changes)-1].at)
	}
	r.judgeLocks()
	r.judgeIntents()
	for _, s := range t.sights {
		s.judge(r)
	}
	if r.queue != nil {
		r.queue.end()
	}
}

// owner goes through a change of a claim's key.
func (r *replay) owner(c change) {
	before, held := r.own[c.key]
	if held {
		if how, _ := r.taken(before, c); how == suspected {
			r.suspicion(before, c)
		}
		r.ghost(before, c.at)
		r.ends(before, c)
		r.recordEnds(before, c)
		r.rested(before, c)
	}
	if c.deleted {
		r.last[c.key] = farewell{was: before, rev: c.rev}
		delete(r.own, c.key)
	} else {
		r.begins(before, held, c)
		r.own[c.key] = c
	}
	if l := r.lineFor(strings.TrimPrefix(c.key, prefix+"own/")); l != nil {
		l.look(r, c.at)
	}
}

// begins checks that whose term begins with a put was the one to have the key.
func (r *replay) begins(before change, held bool, c change) {
	h, token := c.holder(), c.token()
	if r.sharedBegins(before, held, c) || h.Claim == "" {
		return // that is all; or by somebody's hand
	}
	r.faultIf(held && !mayFollow(before, c, r.lineFor(token.Key)), "a key was taken over from its owner: %v; before: %v", c, before)
	if h.Kind == kindZombie || h.Kind == kindResting {
		return // whatever the epoch, and nobody's turn
	}
	r.slotBegins(c, token.Key)
	r.faultIf(h.Epoch != r.epoch, "a key was claimed under epoch %d, when it was %d: %v", h.Epoch, r.epoch, c)
	if h.Kind == kindLock {
		r.lockAgain(c, h.Owner, token.Key)
		r.locks[token] = &lockTerm{owner: h.Owner, lease: c.lease, era: c.era, from: c.at}
		if !held {
			r.inTurn(c, h, token)
		}
		return
	}
	// A waiter that was handed the key and has not heard of it may take it again
	// once it was taken away; one that was told of its claim may not.
	first, twice := r.claim[h.Claim+c.key]
	r.faultIf(twice && r.t.terms[fencing.Token{Key: token.Key, Fence: keyspace.Fence(h.Epoch, first)}] != nil,
		"one claim was put twice: %s at revisions %d and %d", h.Claim, first, c.rev)
	r.claim[h.Claim+c.key] = c.rev
	m := r.t.terms[token]
	if m == nil || m.p.client.Instance() != h.Instance {
		return // nobody was told of it
	}
	m.seen = true
	if least, ok := m.p.rests.Load(token); ok {
		r.rests[h.Claim] = rest{term: m, from: c.at, least: least.(time.Duration)}
	}
	if held && before.holder().Claim != h.Claim {
		r.count("keys handed over")
	}
	if !m.told {
		return // what was asked for went with it
	}
	if _, conditional := m.p.gated.Load(token); conditional && r.shut {
		r.fault("%s was granted %v on a condition that was not met: %v", m.p.name, token, c)
	}
	if token.Key == preferKey && held {
		r.inPreference(before, c, h, token)
	} else {
		r.inTurn(c, h, token)
	}
}

// mayFollow reports whether one holder may come right after another, with
// nothing between them.
func mayFollow(before, c change, l *line) bool {
	old := before.holder()
	h := c.holder()
	switch {
	case old.Claim == "": // somebody's hand, which only a hand clears up
		return false
	case old.Kind == kindLock:
		return h.Kind == kindLock && h.Owner == old.Owner // with another TTL
	case old.Kind != "":
		return false // it has to lapse
	case h.Kind == kindZombie, h.Kind == kindResting:
		return h.Claim == old.Claim
	case h.Kind == kindLock:
		return false
	}
	// Superseded by its own process, or handed over to one in line.
	return h.Instance == old.Instance || l != nil && l.of(h.Claim) >= 0
}

// ends checks that whose term ends by the change knew of it.
func (r *replay) ends(before, by change) {
	h, token := before.holder(), before.token()
	how, taken := r.taken(before, by)
	// A forced release has no notice while etcd is full.
	taken = taken || by.deleted && r.ledger.full(by.at.Add(-10*time.Second), by.at)
	switch h.Kind {
	case kindLock:
		r.lockEnds(token, before, by, taken)
		return
	case kindZombie:
		r.lapses(h, before, by, taken)
		return
	}
	m := r.t.terms[token]
	if h.Kind != "" || m == nil || m.p.client.Instance() != h.Instance {
		return
	}
	if believed := m.end.IsZero() || by.at.Before(m.end); believed && !taken && r.replacedBy(m.p, token.Key, by) {
		how, taken = replaced, true // it learns of that with the reply, or by renewing
	}
	if taken {
		delete(r.t.overlaps, token) // also if a restore brings it back, to end otherwise
	} else {
		r.alone(token, by)
	}
	// etcd says that a lease is gone when all that was on it is.
	r.faultIf(!m.lost.IsZero() && m.why == etcdclaims.ReasonRevoked && by.at.Sub(m.lost) > time.Second && r.ledger.healthy(nil, m.lost, by.at),
		"%s lost %v at %s with its lease, for it was revoked: it was not: %v", m.p.name, token, clockOf(m.lost), by)
	late := by.at.Sub(m.end)
	if !m.end.IsZero() && late >= 0 {
		r.lingered(m, before, by)
		return
	}
	if !taken {
		r.fault("%s took %v for its own until %s, but: %v", m.p.name, token, clockOf(m.end), by)
		return
	}
	// It was taken away behind its back: how long may it not have known?
	limit := m.ttl() + time.Second // its deadline comes in any case
	_, manual := m.p.manuals.Load(token)
	switch {
	case manual && how != forced: // it learns of that when it renews
	case !r.ledger.healthy(m.p, by.at, by.at.Add(limit)):
	case how == forced, how == suspected:
		limit = 250*time.Millisecond + 2*m.p.far
		r.count("judged: told of a loss at once")
	default:
		limit = m.p.longest()/3 + m.p.longest()/6 + 4*m.p.far
		r.count("judged: finds out by renewing")
	}
	r.faultIf(m.end.IsZero() || -late > limit,
		"%s took %v for its own until %s, which is more than %v after it was %s: %v", m.p.name, token, clockOf(m.end), limit, how, by)
}

// ghost checks that a claim that stayed in etcd until then was known to the
// client whose lease it is on: soon, unless something was in the way of that.
func (r *replay) ghost(c change, until time.Time) {
	h, token := c.holder(), c.token()
	p := r.procs[h.Instance]
	if h.Kind != "" || h.Claim == "" || p == nil || strings.HasPrefix(token.Key, queueTokens) {
		return
	}
	if m := r.t.terms[token]; m != nil && m.p == p && m.from.Before(until) {
		until = m.from
	} else {
		r.count("judged: claims that nobody was told of")
	}
	// By the verification that follows the next renewal.
	limit := p.longest()/3 + p.longest()/6 + time.Second
	due := c.at.Add(limit)
	if until.Sub(c.at) <= limit || !p.gone.IsZero() && !p.gone.After(due) || !r.ledger.healthy(p, c.at, due) || r.ledger.full(c.at, due) {
		return
	}
	r.fault("%s was not told for %v, until %s, that it has: %v", p.name, until.Sub(c.at), clockOf(until), c)
}

// lapses checks that the key of a zombie stays held until its lease is over,
// which began when it was put, if nothing was in the way of that.
func (r *replay) lapses(h holder, before, by change, taken bool) {
	const least = shortTTL - time.Second
	p := r.procs[h.Instance]
	if taken || !by.deleted || by.at.Sub(before.at) >= least || p == nil || !r.ledger.healthy(p, before.at, before.at) {
		return
	}
	r.fault("the key of a zombie of %s was freed after %v: %v; it was: %v", p.name, by.at.Sub(before.at), by, before)
}

func clockOf(at time.Time) string {
	if at.IsZero() {
		return "the end"
	}
	return at.Format("15:04:05.000")
}

// taken says whether and how a key was taken away by this very change.
func (r *replay) taken(before, by change) (how, bool) {
	if at, ok := r.t.revoked[before.lease]; ok && !by.at.Before(at) && by.deleted {
		return forced, true
	}
	if slices.Contains(r.notices[by.point], before.holder().Claim) {
		if by.deleted {
			return forced, true
		}
		return suspected, true
	}
	k, ok := r.t.taken[by.point]
	if ok && k.key == by.name {
		return k.how, true
	}
	return "", false
}

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
		!r.ledger.healthy(rest.p, rest.from, by.at) || r.ledger.full(rest.from, by.at) {
		return
	}
	r.count("judged: keys that were to be held for a while")
	if held := by.at.Sub(rest.from); held+seenLate < rest.least { // its put may have been seen late
		r.fault("%v of %s was to be held for %v at least, and was given up after %v: %v", rest.token, rest.p.name, rest.least, held, by)
	}
}
