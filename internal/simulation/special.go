package simulation

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
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
