package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
)

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
	_, was := before.holder()
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
		r.t.w.count(countPreferred)
	}
	next := l.places[at]
	for i, other := range l.places {
		passed := i < at && other.preference >= next.preference
		unseen := c.at.Sub(other.since) > overlooked && r.t.w.ledger.healthy(m.p, c.at.Add(-overlooked), c.at)
		if passed || i > at && other.preference > next.preference && unseen {
			r.fault("one that is preferred, or as much and was there before, was passed: %v; it is %v", c, other)
		}
	}
}
