package simulation

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
)

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
	p.w.count(countHot)
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

// holdHot holds the key for a moment, and notes how long its release takes.
func (p *process) holdHot(rng *rand.Rand, cl *etcdclaims.Claim) {
	p.holds(cl.Token(), cl.Check)
	p.pause(between(rng, 0, 500*time.Millisecond))
	if p.dead.Load() {
		return
	}
	p.w.trace.ended(cl.Token(), p)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r := releasing{p: p, token: cl.Token(), from: time.Now()}
	err := cl.Release(ctx)
	p.class("release", err)
	if r.to = time.Now(); err == nil {
		p.w.trace.note(func(t *trace) { t.released = append(t.released, r) })
	}
}

func pauseIn(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// releasing is a release of a hot key that was done.
type releasing struct {
	p        *process
	token    fencing.Token
	from, to time.Time
}

// trips is how many round trips a release may take: it may find that who was to
// be handed the key has left.
const trips = 8

// judgeReleases checks that no release waited for those who ask for the key.
func (r *replay) judgeReleases() {
	for _, rel := range r.t.released {
		if rel.p.dead.Load() || !r.t.w.ledger.healthy(rel.p, rel.from, rel.to) || r.t.w.ledger.full(rel.from, rel.to) {
			continue
		}
		r.t.w.count(countHotEnds)
		trip := hotTrip + rel.p.far
		if took := rel.to.Sub(rel.from); took > trips*trip {
			r.fault("%s took %v to release %v, at a round trip of %v", rel.p.name, took, rel.token, trip)
		}
	}
}
