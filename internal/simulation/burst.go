package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/history"
)

// poolSize is how many keys there are that are claimed many at once.
const poolSize = 48

func pool() []string {
	keys := make([]string, poolSize)
	for i := range keys {
		keys[i] = fmt.Sprintf("b%d", i)
	}
	return keys
}

// temper is how a burst is carried out.
type temper struct {
	hasty bool // half of the callers give up soon
	mixed bool // on two sessions for certain
}

// burst claims many keys at once, so that the requests share round trips, and
// gives them up at once.
func (p *process) burst(rng *rand.Rand, how temper) {
	p.w.count("bursts")
	keys := pool()
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:8+rng.IntN(33)]
	b := &burst{p: p, temper: how}
	b.mixed = b.mixed || rng.IntN(2) == 0
	style := rng.IntN(4) // all by TryAcquireEach, all by themselves, or mixed
	if how.hasty || how.mixed {
		style = 1 + rng.IntN(3)
	}
	for len(keys) > 0 {
		kind, n := style, len(keys)
		if style > 1 {
			kind = rng.IntN(3)
		}
		switch kind {
		case 0:
			if style > 1 {
				n = 4 + rng.IntN(12)
			}
		case 1:
			n = 1
		case 2:
			n = 2 + rng.IntN(3)
		}
		part := keys[:min(n, len(keys))]
		keys = keys[len(part):]
		its := split(rng)
		b.wg.Go(func() { b.acquire(its, part, kind) })
	}
	b.wg.Wait()
	p.pause(between(rng, 0, 2*time.Second))
	claims := b.claims
	switch rng.IntN(4) {
	case 0:
		p.releaseAll(rng)
	case 1: // some work goes on
		n := min(len(claims), 1+rng.IntN(3))
		for _, cl := range claims[:n] {
			its := split(rng)
			b.wg.Go(func() { p.hold(its, cl) })
		}
		claims = claims[n:]
	}
	for _, cl := range claims {
		its := split(rng)
		b.wg.Go(func() { p.release(its, cl) })
	}
	b.wg.Wait()
}

// burst is one that goes on.
type burst struct {
	temper
	p      *process
	wg     sync.WaitGroup
	mu     sync.Mutex
	claims []*etcdclaims.Claim
}

// acquire claims some of the keys by one call.
func (b *burst) acquire(rng *rand.Rand, keys []string, kind int) {
	p := b.p
	ttl, note := etcdclaims.TTL(0), etcdclaims.Option(nil) // neither changes anything
	if b.mixed && rng.IntN(2) == 0 {
		ttl = etcdclaims.TTL(p.second)
	}
	if rng.IntN(4) == 0 {
		note = etcdclaims.Note([]byte("burst"))
	}
	most := 8 * time.Second
	if b.hasty && rng.IntN(2) == 0 || rng.IntN(6) == 0 {
		most = 300 * time.Millisecond
	}
	ctx, cancel := p.within(rng, most)
	defer cancel()
	claims := []*etcdclaims.Claim{nil}
	switch {
	case kind != 1:
		claims = p.acquireMany(ctx, keys, kind == 2, ttl, note)
	case rng.IntN(3) > 0:
		claims[0], _ = p.acquireIn(ctx, keys[0], false, ttl, note)
	default:
		claims[0] = p.acquireThen(ctx, rng, keys[0], false, ttl, note)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims = slices.DeleteFunc(append(b.claims, claims...), func(cl *etcdclaims.Claim) bool { return cl == nil })
}

// releaseAll gives up whatever the process has.
func (p *process) releaseAll(rng *rand.Rand) {
	if p.dead.Load() {
		return
	}
	p.w.count("released all")
	p.clear(func() {
		p.class("release all", soon(between(rng, time.Millisecond, 10*time.Second), func(ctx context.Context) error {
			_, err := p.client.ReleaseAll(ctx)
			return err
		}))
	})
	p.w.trace.clearing(p, -1)
}

// clear records that the process gives up all that it has.
func (p *process) clear(giveUp func()) {
	var calls []*history.Call
	for _, token := range p.w.trace.clearing(p, 1) {
		calls = append(calls, p.w.history.Release(p.name, token))
	}
	giveUp()
	for _, call := range calls {
		call.Unknown() // it may be that its worker gave it up
	}
}

// crowd lets several workers of the process contend for one key, some of whom
// give up.
func (p *process) crowd(rng *rand.Rand, key string) {
	p.w.count("crowds")
	var wg sync.WaitGroup
	for range 2 + rng.IntN(5) {
		its := split(rng)
		wg.Go(func() {
			p.pause(between(its, 0, 50*time.Millisecond))
			most := 30 * time.Second
			if its.IntN(3) == 0 {
				most = 2 * time.Second
			}
			ctx, cancel := p.within(its, most)
			defer cancel()
			cl, _ := p.acquireIn(ctx, key, true)
			if cl == nil {
				return
			}
			if its.IntN(4) == 0 {
				p.hold(its, cl)
				return
			}
			p.pause(between(its, 0, 200*time.Millisecond))
			p.release(its, cl)
		})
	}
	wg.Wait()
}

// contend lets workers of the process and of another one contend for a key that few want
// otherwise.
func (w *world) contend(p *process) {
	wanted := pool()[w.rng.IntN(poolSize)]
	for _, who := range []*process{p, w.slots[w.rng.IntN(len(w.slots))]} {
		rng := split(w.rng)
		who.wg.Go(func() { who.crowd(rng, wanted) })
	}
}

// split returns numbers for another goroutine.
func split(rng *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())) }

// waits lists a call that waits in line, so that it can be made to give up; end ends that.
func (p *process) waits(ctx context.Context, key string) (_ context.Context, end func()) {
	ctx, stop := context.WithCancel(ctx)
	p.waiting.Store(&stop, key)
	return ctx, func() {
		stop()
		p.waiting.Delete(&stop)
	}
}

// giveUp ends all calls that wait for the key.
func (p *process) giveUp(key string) {
	for stop, wanted := range p.waiting.Range {
		if wanted == key {
			(*stop.(*context.CancelFunc))()
		}
	}
}

// hotKey is what hundreds of callers of one process ask for. Those calls are not
// in the history, whose check would take too long: the trace judges them.
const hotKey = "hot"

// hotTrip is how long a request takes meanwhile.
const hotTrip = 20 * time.Millisecond

// heat lets hundreds of callers of a process ask for one key, for some seconds, of
// which now the process has a holder and now another.
func (w *world) heat(p *process) {
	q := w.slots[w.rng.IntN(len(w.slots))]
	slow := p.inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: hotTrip})
	rng, lasts := split(w.rng), between(w.rng, 2*time.Second, 6*time.Second)
	w.later.Go(func() {
		p.hot(rng, lasts, 100+rng.IntN(200))
		slow.Remove()
	})
	if q != p {
		its := split(w.rng)
		w.later.Go(func() { q.hot(its, lasts, 3) })
	}
}

// hot lets callers ask for the key for a while, each again and again.
func (p *process) hot(rng *rand.Rand, lasts time.Duration, callers int) {
	p.w.count("hot keys")
	ctx, cancel := context.WithTimeout(p.ctx, lasts)
	defer cancel()
	patient := rng.IntN(4) // none to most of them wait in line
	var wg sync.WaitGroup
	for range callers {
		its := split(rng)
		wg.Go(func() {
			for ctx.Err() == nil {
				method, most := p.client.TryAcquire, time.Second
				if its.IntN(4) < patient {
					method, most = p.client.Acquire, 2*time.Second
				}
				if its.IntN(4) == 0 {
					most = 3 * hotTrip
				}
				asking, cancel := context.WithTimeout(ctx, between(its, hotTrip, most))
				cl, err := method(asking, hotKey)
				cancel()
				p.class("acquire", err)
				if err == nil {
					p.holdHot(its, cl)
				}
				pauseIn(ctx, between(its, 200*time.Millisecond, time.Second))
			}
		})
	}
	wg.Wait()
}

// trips is how many round trips a release may take. The caller that is next in line may have left by
// the time it is handed the key.
const trips = 8

// holdHot holds the key for a moment, and checks how long its release takes.
func (p *process) holdHot(rng *rand.Rand, cl *etcdclaims.Claim) {
	p.holds(cl.Token(), cl.Check)
	if !p.pause(between(rng, 0, 500*time.Millisecond)) {
		return
	}
	p.w.trace.ended(cl.Token(), p)
	began := time.Now()
	err := soon(10*time.Second, cl.Release)
	p.class("release", err)
	now := time.Now()
	if err != nil || p.dead.Load() || !p.w.ledger.healthy(p, began, now) || p.w.ledger.full(began, now) {
		return
	}
	p.w.count("judged: releases of hot keys")
	trip := hotTrip + p.far
	if took := now.Sub(began); took > trips*trip { // it waited for those who ask for the key
		p.w.fault("%s took %v to release %v, at a round trip of %v", p.name, took, cl.Token(), trip)
	}
}
