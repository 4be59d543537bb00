package simulation

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
)

// replay is etcd's state while its changes are gone through again.
type replay struct {
	t     *trace
	own   map[string]change   // by key in etcd
	last  map[string]farewell // by key in etcd
	claim map[string]int64    // revision at which each claim id was put to each key
	done  map[string]int
}

// farewell is a claim that was deleted.
type farewell struct {
	was change
	rev int64 // of its deletion
}

// judge holds what processes took for true against what happened.
func (t *trace) judge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &replay{t: t, own: map[string]change{}, last: map[string]farewell{}, claim: map[string]int64{}, done: map[string]int{}}
	era := 0
	for i, c := range t.changes {
		if c.era != era {
			era = c.era
			r.restored(i, era)
		}
		switch {
		case strings.HasPrefix(c.key, prefix+"own/"):
			r.owner(c)
		case strings.HasPrefix(c.key, effectPrefix):
			r.effect(c)
		case strings.HasPrefix(c.key, donePrefix) && !c.deleted && !c.undone:
			if r.done[c.key]++; r.done[c.key] > 1 {
				r.fault("work was completed %d times: %v", r.done[c.key], c)
			}
		}
	}
	for _, e := range t.intents {
		switch {
		case e.outcome == "accepted" && e.applied == 0:
			r.fault("%s was told that its write under %v was done: it is not in etcd", e.p.name, e.token)
		case e.outcome == "" && e.applied > 0:
			r.fault("%s was told that its write under %v was not done: it is in etcd", e.p.name, e.token)
		case e.applied > 1:
			r.fault("the write of %s under %v was done %d times", e.p.name, e.token, e.applied)
		}
	}
	for token, m := range t.terms {
		if !m.seen && m.end.IsZero() {
			r.fault("%s was granted %v, which is not in etcd", m.p.name, token)
		}
	}
	for _, s := range t.sights {
		s.judge(r)
	}
}

func (r *replay) fault(format string, args ...any) { r.t.w.fault(format, args...) }

// restored begins with what an etcd has that was restored.
func (r *replay) restored(i, era int) {
	clear(r.own)
	clear(r.last)
	clear(r.claim)
	for _, c := range r.t.changes[:i] {
		if c.undone || !strings.HasPrefix(c.key, prefix+"own/") || c.era > era {
			continue
		}
		if c.deleted {
			delete(r.own, c.key)
		} else {
			r.own[c.key] = c
		}
	}
}

// owner goes through a change of a claim's key.
func (r *replay) owner(c change) {
	before, held := r.own[c.key]
	if held {
		r.ends(before, c)
	}
	if c.deleted {
		r.last[c.key] = farewell{was: before, rev: c.rev}
		delete(r.own, c.key)
		return
	}
	r.own[c.key] = c
	h, token := c.holder()
	if h.Kind != "" || h.Claim == "" {
		return // of a zombie, or by somebody's hand
	}
	// A waiter that was handed the key and has not heard of it may take it again
	// once it was taken away; one that was told of its claim may not.
	first, twice := r.claim[h.Claim+c.key]
	if twice && r.t.terms[fencing.Token{Key: token.Key, Fence: h.Epoch<<47 + first}] != nil {
		r.fault("one claim was put twice: %s at revisions %d and %d", h.Claim, first, c.rev)
	}
	r.claim[h.Claim+c.key] = c.rev
	if m := r.t.terms[token]; m != nil && m.p.client.Instance() == h.Instance {
		m.seen = true
	}
}

// ends checks that whose term ends by the change knew of it.
func (r *replay) ends(before, by change) {
	h, token := before.holder()
	m := r.t.terms[token]
	if h.Kind != "" || m == nil || m.p.client.Instance() != h.Instance {
		return
	}
	late := by.at.Sub(m.end)
	if !m.end.IsZero() && late >= 0 {
		return
	}
	how, taken := r.taken(token.Key, before, by)
	if !taken {
		r.fault("%s took %v for its own until %s, but: %v", m.p.name, token, clockOf(m.end), by)
		return
	}
	// It was taken away behind its back: how long may it not have known?
	limit := m.p.ttl + time.Second // its deadline comes in any case
	_, manual := m.p.manuals.Load(token)
	switch {
	case how == restored:
		return
	case manual && how != forced: // it learns of that when it renews
	case !r.t.w.ledger.healthy(m.p, by.at, by.at.Add(limit)):
	case how == forced:
		limit = 250 * time.Millisecond
	default:
		limit = m.p.ttl/3 + m.p.ttl/6
	}
	if m.end.IsZero() || -late > limit {
		r.fault("%s took %v for its own until %s, which is more than %v after it was %s: %v", m.p.name, token, clockOf(m.end), limit, how, by)
	}
}

func clockOf(at time.Time) string {
	if at.IsZero() {
		return "the end"
	}
	return at.Format("15:04:05.000")
}

// taken says whether and how a key was taken away by the change.
func (r *replay) taken(key string, before, by change) (how, bool) {
	if at, ok := r.t.revoked[before.lease]; ok && !by.at.Before(at) && by.deleted {
		return forced, true
	}
	for _, k := range slices.Backward(r.t.taken[key]) { // the last first
		since := by.at.Sub(k.at)
		if since >= 0 && (since < 10*time.Second || k.how == restored && since < quiet) {
			return k.how, true
		}
	}
	return "", false
}

// effect checks that a write was its owner's.
func (r *replay) effect(c change) {
	var m mark
	if err := json.Unmarshal([]byte(c.value), &m); err != nil || m.N >= len(r.t.intents) {
		r.fault("a write that nobody made: %v", c)
		return
	}
	e := r.t.intents[m.N]
	e.applied++
	own := prefix + "own/" + e.token.Key
	now, held := r.own[own]
	if last, ok := r.last[own]; ok && !held && last.rev == c.rev {
		now = last.was // the write came with the end of the claim
	}
	h, token := now.holder()
	if token != (fencing.Token{Key: e.token.Key, Fence: m.Fence}) || h.Instance != m.Instance || h.Kind != "" {
		r.fault("a stale write of %s under %v was accepted at revision %d; the owner was: %v", e.p.name, e.token, c.rev, now)
	}
}

// judge checks that a Watch told all there was, in order, other than in gaps
// that it owned up to.
func (s *sight) judge(r *replay) {
	var puts []change // of claims, in this era
	for _, c := range r.t.changes {
		if c.era == s.era && strings.HasPrefix(c.key, prefix+"own/") {
			puts = append(puts, c)
		}
	}
	cursor := int64(-1) // told up to; -1: not begun
	for _, ev := range s.events {
		switch {
		case ev.Kind == etcdclaims.Synced, ev.Kind == etcdclaims.Resynced:
			cursor = ev.Revision
			continue
		case cursor < 0 || ev.Revision <= cursor:
			continue
		}
		for len(puts) > 0 && puts[0].rev <= cursor {
			puts = puts[1:]
		}
		key := prefix + "own/" + ev.Info.Key
		for len(puts) > 0 && puts[0].rev < ev.Revision {
			r.fault("a Watch told of %s at revision %d, but not before of: %v", key, ev.Revision, puts[0])
			puts = puts[1:]
		}
		// Several keys can change at one revision: in any order.
		cursor = ev.Revision - 1
		for i, c := range puts {
			if c.rev == ev.Revision && c.key == key {
				puts = append(puts[:i:i], puts[i+1:]...)
				break
			}
		}
		if len(puts) == 0 || puts[0].rev > ev.Revision {
			cursor = ev.Revision
		}
	}
}
