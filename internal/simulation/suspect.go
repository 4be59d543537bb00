package simulation

import (
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// suspectKey is a key whose holders can be suspected. The trace judges the claims as
// others, and each suspicion: whether it was the first in line's, whether
// the holder was asked and did not answer for long enough, and that nothing happens to a holder
// to whom nothing has happened.
const suspectKey = "suspect"

// farRuns is of how many runs one has clients at any distance from etcd. It has that key.
const farRuns = 8

// moveAway puts a process at a distance of its own from etcd, with a longer way in one
// direction than in the other.
func (p *process) moveAway() {
	if p.w.plan.Seed%farRuns != 6 {
		return
	}
	rng := p.random(20)
	rtt := between(rng, time.Millisecond, 100*time.Millisecond) << rng.IntN(4)
	out := between(rng, 0, rtt)
	jitter := between(rng, 0, rtt/4)
	p.far = rtt + 2*jitter
	p.host.SetLatency(out, rtt-out, jitter)
	// An attempt to renew may take a sixth of the TTL, so it must be longer than six round trips.
	p.ttl, p.second, p.short = longTTL, 12*time.Second, 8*time.Second
	p.w.count("processes far from etcd")
}

// suspicionTakes is the least time for which a question must stand, less what the
// observer may see later of the question than of the take-over. After a restart of etcd it
// may see both at once.
const suspicionTakes = 450*time.Millisecond - seenLate

// suspected says that the holder did not answer.
const suspected how = "suspected"

// claimSuspectable claims the key, at once or in line, and holds it for a while. One claim
// in ten does not have the option.
func (p *process) claimSuspectable(rng *rand.Rand) {
	suspectable := etcdclaims.Suspectable()
	if rng.IntN(10) == 0 {
		suspectable = etcdclaims.Option(nil)
	}
	if cl, err := p.claimSome(rng, suspectKey, 3, (*etcdclaims.Claim).Token, suspectable); err == nil {
		p.useSome(rng, cl, cl.Token(), 10*time.Second, time.Second)
	}
}

// suspicion checks that a holder was rightly taken for one that does not answer.
func (r *replay) suspicion(before, by change) {
	old, token := before.holder(), before.token()
	next := by.holder()
	var option struct{ Suspectable bool }
	_ = json.Unmarshal([]byte(before.value), &option)
	r.faultIf(!option.Suspectable || old.Kind != "", "a holder was suspected that cannot be: %v; it was: %v", by, before)
	if l := r.lineFor(token.Key); l == nil || l.of(next.Claim) != 0 {
		r.fault("a holder was suspected by another than the first in line: %v; it was: %v", by, before)
	}
	r.t.w.count("suspicions")
	question, asked := r.questions[prefix+"session/"+old.Instance+"/ask/"+next.Instance]
	if stood := by.at.Sub(question.at); !asked || stood < suspicionTakes && r.t.w.ledger.healthy(nil, question.at, by.at) {
		r.fault("a holder was suspected that was asked for %v (%v): %v; it was: %v", stood, asked, by, before)
	}
	p := r.procs[old.Instance]
	from := by.at.Add(-2 * time.Second)
	if p != nil && p.far > 0 && question.at.Before(from) {
		from = question.at // it may take longer until a question has come to it, or until one of its client's requests has
	}
	if p != nil && (p.gone.IsZero() || p.gone.After(by.at)) && r.t.w.ledger.healthy(p, from, by.at) {
		r.fault("%s was suspected, and nothing was wrong with it: %v; it was: %v", p.name, by, before)
	}
}
