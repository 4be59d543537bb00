package simulation

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
)

// line is who waits for a key, in the order in which they came.
type line struct {
	key    string
	places []place
	gone   time.Time // when the last place was removed

	first place     // in line while the key is free; zero: nobody
	since time.Time // when that began
}

// place is one in line, named by its claim.
type place struct {
	key      string
	claim    string
	instance string
	shared   bool
	left     bool // before a restore that brought it back: nobody waits in it

	preference int
	since      time.Time
}

// of returns where in line a claim stands, or -1.
func (l *line) of(claim string) int {
	return slices.IndexFunc(l.places, func(p place) bool { return p.claim == claim })
}

// place goes through a change of a place in line.
func (r *replay) place(c change) {
	whose, claim, _ := strings.Cut(strings.TrimPrefix(c.key, prefix+"wait/"), "/")
	claim, shared := strings.CutPrefix(claim, "~")
	l := r.lines[whose]
	if l == nil {
		return // of no key that is wanted often
	}
	at := slices.IndexFunc(l.places, func(p place) bool { return p.key == c.key })
	switch {
	case c.deleted && at >= 0:
		l.places, l.gone = slices.Delete(l.places, at, at+1), c.at
	case c.deleted:
	case at >= 0 && l.places[at].left: // its client uses the name again, and has not noticed the restore
		var h holder
		_ = json.Unmarshal([]byte(c.value), &h)
		l.places[at] = place{key: c.key, claim: h.Claim, instance: h.Instance, shared: shared, preference: h.Preference, since: c.at}
	case at >= 0:
		r.fault("a place in line was put twice: %v", c)
	default:
		var h holder
		_ = json.Unmarshal([]byte(c.value), &h)
		l.places = append(l.places, place{key: c.key, claim: claim, instance: h.Instance, shared: shared, preference: h.Preference, since: c.at})
	}
	l.look(r, c.at)
}

// inTurn checks that nobody was passed who stood before a new owner: first come,
// first served.
func (r *replay) inTurn(c change, h holder, token fencing.Token) {
	l := r.lineFor(token.Key)
	if l == nil {
		return
	}
	before := l.of(h.Claim)
	if before < 0 { // not in line
		before = len(l.places)
	}
	if len(l.places) > 0 {
		r.count("judged: whose turn it was")
	}
	if old, held := r.own[c.key]; held && old.holder().Instance == h.Instance && l.of(h.Claim) < 0 && !r.releasedLazily(old.token()) {
		return // superseded by its own process, which passes nobody
	}
	sharing := strings.HasPrefix(c.key, sharedPrefix) // which passes others of its kind
	passed := slices.DeleteFunc(slices.Clone(l.places[:before]), func(p place) bool { return p.left || sharing && p.shared })
	r.faultIf(len(passed) > 0, "%d in line were passed: %v; they are %v", len(passed), c, passed)
}

// turnTakes is how long a free key may be left to the first in line, by whose
// machine nothing is wrong: it watches for that.
const turnTakes = 5 * time.Second

// judgeTurn checks how long the key was left to the first in line.
func (l *line) judgeTurn(r *replay, now time.Time) {
	p, took := r.procs[l.first.instance], now.Sub(l.since)
	if p == nil || !p.gone.IsZero() && !p.gone.After(now) || r.ledger.full(l.since, now) || !r.ledger.hearing(p, l.since, now) {
		return
	}
	limit := turnTakes
	if !r.ledger.healthy(p, l.since, now) {
		// Whose watches are deaf asks when it renews.
		limit = time.Second + p.longest()/3 + p.longest()/6
		r.count("judged: turns of the deaf")
	}
	r.faultIf(took > limit, "%s stood first in line for %q, which was free, from %s for %v", p.name, l.key, clockOf(l.since), took)
}

// look checks, when anything about a line has changed, that the first in it was
// not left waiting before that.
func (l *line) look(r *replay, now time.Time) {
	var first place
	if len(l.places) > 0 && !r.busy(l) {
		first = l.places[0]
	}
	if first.claim == l.first.claim {
		return
	}
	if l.first.claim != "" {
		l.judgeTurn(r, now)
	}
	l.first, l.since = first, now
}

// preferKey is a key whose callers have preferences. The trace judges the claims as others,
// and whose turn it was by preference.
const preferKey = "preferred"

// overlooked is for how long a caller must have been in line before a release to one that is less
// preferred: the releaser reads the line before that.
const overlooked = 12 * time.Second

// claimPreferred claims the key, at once or in line, holds it for a while, and releases it.
func (p *process) claimPreferred(rng *rand.Rand) {
	prefer, prefers := etcdclaims.Prefer(rng.IntN(4)), rng.IntN(8) > 0
	if !prefers {
		prefer = etcdclaims.Option(nil)
	}
	cl, err := p.claimSome(rng, preferKey, 2, (*etcdclaims.Claim).Token, prefer)
	if err != nil || p.dead.Load() {
		return
	}
	if prefers {
		p.prefers.Store(cl.Token(), true)
	}
	for rng.IntN(3) > 0 {
		p.writeUnder(rng, cl, cl.Token(), 4*time.Second, time.Second)
	}
	p.useSome(rng, cl, cl.Token(), 4*time.Second, time.Second)
}

// inPreference checks that a key that was handed over went to the one whose turn it was: the most
// preferred, and of equals the first. A caller that is not in line passes nobody.
func (r *replay) inPreference(before, c change, h holder, token fencing.Token) {
	l := r.lineFor(token.Key)
	was := before.token()
	m, at := r.t.terms[was], l.of(h.Claim)
	if m == nil || at < 0 {
		r.inTurn(c, h, token)
		return
	}
	if _, prefers := m.p.prefers.Load(was); !prefers {
		r.inTurn(c, h, token)
		return
	}
	if at > 0 {
		r.count("judged: keys handed past the line by preference")
	}
	next := l.places[at]
	for i, other := range l.places {
		passed := i < at && other.preference >= next.preference
		unseen := c.at.Sub(other.since) > overlooked && r.ledger.healthy(m.p, c.at.Add(-overlooked), c.at)
		r.faultIf(passed || i > at && other.preference > next.preference && unseen,
			"one that is preferred, or as much and was there before, was passed: %v; it is %v", c, other)
	}
}
