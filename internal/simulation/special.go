package simulation

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
)

// special is a key that some runs have. Its calls are not in the history, whose check knows
// one owner of a key, who releases it once: the trace judges its claims.
type special struct {
	key       string
	every, at uint64 // in runs whose seed is at modulo every
	slots     int    // it is claimed by the processes of the first slots
	callers   uint64 // in each process
	pause     time.Duration
	claim     func(p *process, rng *rand.Rand) // claims it once
}

const everybody = math.MaxInt

var specials = []special{
	{slottedKey, 3, 0, everybody, 1, 8 * time.Second, (*process).slotted},
	{sharedKey, 3, 1, everybody, 1, 6 * time.Second, (*process).sharing},
	{suspectKey, 4, 2, 4, 1, 8 * time.Second, (*process).claimSuspectable},
	{preferKey, 4, 0, 4, 1, 8 * time.Second, (*process).claimPreferred},
	{reentrantKey, 4, 3, 4, 2, 8 * time.Second, (*process).entering},
	{lazyKey, 4, 1, 4, 1, 6 * time.Second, (*process).claimLazily},
}

// has reports whether the run has a special key.
func (w *world) has(key string) bool {
	return slices.ContainsFunc(specials, func(s special) bool { return s.key == key && w.plan.Seed%s.every == s.at })
}

// claimSpecials lets the process claim the special keys of the run until it ends.
func (p *process) claimSpecials() {
	for i, s := range specials {
		if !p.w.has(s.key) || p.slot >= s.slots {
			continue
		}
		for n := range s.callers {
			rng := p.random(uint64(1000*(i+1)) + n)
			p.wg.Go(func() {
				for p.ctx.Err() == nil {
					p.pause(between(rng, 10*time.Millisecond, s.pause))
					s.claim(p, rng)
				}
			})
		}
	}
}

// extra returns one of the first n options that say how a claim is held, or none, and how to
// note whose claim has it.
func (p *process) extra(rng *rand.Rand, n int) (opt etcdclaims.AcquireOption, note func(fencing.Token)) {
	note = func(fencing.Token) {}
	choice := rng.IntN(2 * n)
	switch {
	case choice >= n:
		return etcdclaims.Option(nil), note
	case choice == 0:
		opt = etcdclaims.MaxHold(between(rng, longTTL/5+time.Millisecond, 2*longTTL))
		if rng.IntN(2) == 0 { // whose handler never beats
			opt = etcdclaims.Progress(between(rng, time.Second, 2*longTTL))
		}
	case choice == 1:
		opt = etcdclaims.TTL(p.second)
	case choice == 2:
		opt = etcdclaims.Note([]byte("note"))
	case choice == 3:
		least := between(rng, time.Second, 8*time.Second)
		if rng.IntN(3) == 0 {
			least *= 10
		}
		opt, note = etcdclaims.MinHold(least), func(t fencing.Token) { p.rests.Store(t, least) }
	default:
		opt, note = whileOpen(), func(t fencing.Token) {
			p.gated.Store(t, true)
			p.w.count("granted on a condition")
		}
	}
	return opt, note
}

// claimSome acquires a special key, at once or in line, with one of the first n options that
// say how it is held. It notes the claim by the token that the trace knows it by.
func (p *process) claimSome(
	rng *rand.Rand, key string, n int, tokenOf func(*etcdclaims.Claim) fencing.Token, opts ...etcdclaims.AcquireOption,
) (*etcdclaims.Claim, error) {
	opt, note := p.extra(rng, n)
	cl, err := p.acquireSome(rng, key, append(opts, opt)...)
	if err == nil {
		token := tokenOf(cl)
		note(token)
		p.holds(token, cl.Check)
	}
	return cl, err
}

// acquireSome acquires a special key, at once or in line.
func (p *process) acquireSome(rng *rand.Rand, key string, opts ...etcdclaims.AcquireOption) (*etcdclaims.Claim, error) {
	method, most := p.client.TryAcquire, 8*time.Second
	if rng.IntN(3) > 0 {
		method, most = p.client.Acquire, 40*time.Second
	}
	ctx, cancel := p.within(rng, most)
	defer cancel()
	cl, err := method(ctx, key, opts...)
	p.class("acquire", err)
	return cl, err
}

// ask makes a call in time, which may be too short for it, and judges its error.
func (p *process) ask(rng *rand.Rand, most time.Duration, what string, call func(context.Context) error) error {
	ctx, cancel := p.within(rng, most)
	defer cancel()
	err := call(ctx)
	p.class(what, err)
	return err
}

// holds notes that the process was granted a claim.
func (p *process) holds(token fencing.Token, check func() error) {
	p.w.trace.granted(token, p)
	p.w.trace.believe(belief{p, token, check})
	p.w.count("granted")
}

// useSome writes under a claim that is not in the history, and releases it.
func (p *process) useSome(rng *rand.Rand, cl *etcdclaims.Claim, token fencing.Token, most, pause time.Duration) {
	p.writeUnder(rng, cl, token, most, pause)
	if p.dead.Load() {
		return
	}
	p.w.trace.ended(token, p)
	p.class("release", soon(between(rng, 0, 10*time.Second), cl.Release))
}

// writeUnder writes under the claim for a while, mostly shorter than most, with pauses. The
// trace knows the claim by the token.
func (p *process) writeUnder(rng *rand.Rand, cl *etcdclaims.Claim, token fencing.Token, most, pause time.Duration) {
	lasts := between(rng, 0, most)
	if rng.IntN(8) == 0 {
		lasts = between(rng, 0, 3*longTTL)
	}
	for until := time.Now().Add(lasts); time.Now().Before(until) && p.ctx.Err() == nil && cl.Err() == nil; {
		if !p.pause(min(between(rng, 10*time.Millisecond, pause), time.Until(until))) {
			return
		}
		ctx, cancel := p.within(rng, 6*time.Second)
		e := p.w.trace.intend(token, p)
		_, err := cl.Txn(ctx).Then(e.put()).Commit()
		cancel()
		p.class("effect", err)
		e.returned(err)
	}
}

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
	r.count("suspicions")
	question, asked := r.questions[prefix+"session/"+old.Instance+"/ask/"+next.Instance]
	if stood := by.at.Sub(question.at); !asked || stood < suspicionTakes && r.ledger.healthy(nil, question.at, by.at) {
		r.fault("a holder was suspected that was asked for %v (%v): %v; it was: %v", stood, asked, by, before)
	}
	p := r.procs[old.Instance]
	from := by.at.Add(-2 * time.Second)
	if p != nil && p.far > 0 && question.at.Before(from) {
		from = question.at // it may take longer until a question has come to it, or until one of its client's requests has
	}
	if p != nil && (p.gone.IsZero() || p.gone.After(by.at)) && r.ledger.healthy(p, from, by.at) {
		r.fault("%s was suspected, and nothing was wrong with it: %v; it was: %v", p.name, by, before)
	}
}
