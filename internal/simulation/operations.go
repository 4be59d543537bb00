package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/history"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// handler runs under a claim by Run or TryRun. It may ignore that it is told to
// stop.
func (p *process) handler(rng *rand.Rand) {
	method := p.client.TryRun
	if rng.IntN(2) == 0 {
		method = p.client.Run
	}
	key := p.key(rng)
	stubborn := rng.IntN(3) == 0
	lasts := between(rng, 0, 6*time.Second)
	if stubborn {
		lasts = between(rng, 0, 2*longTTL)
	}
	ctx, cancel := p.within(rng, 30*time.Second)
	defer cancel()
	call := p.w.history.Acquire(p.name, key)
	var release *history.Call
	ran := false
	err := method(ctx, key, func(ctx context.Context) error {
		token, _ := fencing.FromContext(ctx)
		p.holds(token, func() error { return fencing.Check(ctx) })
		call.Granted(token.Fence)
		ran = true
		if stubborn {
			time.Sleep(lasts)
		} else {
			pauseIn(ctx, lasts)
		}
		if p.dead.Load() {
			return nil
		}
		p.w.trace.ended(token, p)
		release = p.w.history.Release(p.name, token)
		return nil
	})
	switch {
	case release != nil:
		p.returned(release, "run", err)
	case ran: // and was killed meanwhile
	default:
		p.w.faultIf(err == nil, "%s: Run returned nil without calling its handler", p.name)
		p.returned(call, "run", err)
	}
}

// worksOf returns the runner of a process.
func (w *world) worksOf(claims *etcdclaims.Client) *work.Runner {
	r, err := work.New(claims, work.Config{
		Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * 500 * time.Millisecond },
		// Work counts as done for as long as anybody asks.
		Retention: -1, MaxAttempts: -1,
	})
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// job begins work, and completes it, fails it, or gives it back.
func (p *process) job(rng *rand.Rand) {
	key := p.w.anyJob(rng)
	ctx, cancel := p.within(rng, 15*time.Second)
	defer cancel()
	method := p.works.TryBegin
	if rng.IntN(2) == 0 {
		method = p.works.Begin
	}
	call := p.w.history.Acquire(p.name, key)
	job, err := method(ctx, key)
	if err != nil {
		p.returned(call, "begin", err)
		return
	}
	p.granted(call, job.Claim, nil)
	p.pause(between(rng, 0, 4*time.Second))
	if rng.IntN(12) == 0 {
		p.pause(2 * p.ttl)
	}
	if p.dead.Load() {
		return
	}
	p.w.trace.ended(job.Token(), p)
	call = p.w.history.Release(p.name, job.Token())
	for {
		ending, cancel := context.WithTimeout(context.Background(), between(rng, time.Millisecond, 10*time.Second))
		switch n := rng.IntN(4); n {
		case 0:
			_, err = job.Fail(ending, errors.New("failed on purpose"))
		case 1:
			err = job.Release(ending)
		default:
			err = p.complete(ending, job, key)
		}
		cancel()
		if err == nil || errors.Is(err, etcdclaims.ErrLost) || errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, etcdclaims.ErrReleased) {
			p.returned(call, "end of work", err)
			return
		}
		// Refused, and held as before: there may be no space for a record.
		p.class("end of work", err)
		if p.dead.Load() {
			return
		}
		time.Sleep(between(rng, 10*time.Millisecond, time.Second))
	}
}

// complete finishes work with one write of its own.
func (p *process) complete(ctx context.Context, job *work.Work, key string) error {
	e := p.w.trace.intend(job.Token(), p)
	err := job.Complete(ctx, e.put(), clientv3.OpPut(donePrefix+key, e.value()))
	if e.returned(err); err == nil {
		p.w.count("jobs completed")
	}
	return err
}

// anyJob returns the key of work, new or old.
func (w *world) anyJob(rng *rand.Rand) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jobs == 0 || rng.IntN(2) == 0 {
		w.jobs++
	}
	return fmt.Sprintf("job%d", max(0, w.jobs-1-rng.IntN(4)))
}

// finishJobs completes all work that is not done: none is lost.
func (w *world) finishJobs() {
	ctx := context.Background()
	time.Sleep(quiet) // what orphans and zombies have
	// By a process whose clock is right: failed work waits by it.
	p := w.newProcess(len(w.slots), 0)
	p.cancel()
	w.slots = append(w.slots, p)
	for i := range w.jobs {
		key := fmt.Sprintf("job%d", i)
		call := w.history.Acquire(p.name, key)
		job, err := p.works.TryBegin(ctx, key)
		for try := 0; errors.Is(err, work.ErrBackoff) && try < 20; try++ {
			time.Sleep(clockStep) // it failed where the clock was ahead
			job, err = p.works.TryBegin(ctx, key)
		}
		if err != nil {
			call.Returned(err)
			w.faultIf(!errors.Is(err, work.ErrDone), "work %s can neither be begun in the end nor is it done: %v", key, err)
			continue
		}
		p.granted(call, job.Claim, nil)
		p.w.trace.ended(job.Token(), p)
		call = w.history.Release(p.name, job.Token())
		err = p.complete(ctx, job, key)
		p.returned(call, "end of work", err)
		w.faultIf(err != nil, "work %s cannot be completed in the end: %v", key, err)
	}
}

// several acquires more than one key at once.
func (p *process) several(rng *rand.Rand) {
	keys := slices.Clone(p.w.keys)
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:1+rng.IntN(len(keys))]
	ctx, cancel := p.within(rng, 8*time.Second)
	claims := p.acquireMany(ctx, keys, rng.IntN(2) == 0, nil, nil)
	cancel()
	p.pause(between(rng, 0, 3*time.Second))
	for _, cl := range claims {
		p.hold(rng, cl)
	}
}

// acquireMany acquires all of the keys or none, or each by itself. It returns a claim, or nil, for each.
func (p *process) acquireMany(ctx context.Context, keys []string, all bool, ttl, note etcdclaims.Option) []*etcdclaims.Claim {
	calls, errs := make([]*history.Call, len(keys)), make([]error, len(keys))
	for i, key := range keys {
		calls[i] = p.w.history.Acquire(p.name, key)
	}
	var claims []*etcdclaims.Claim
	if all {
		var err error
		if claims, err = p.client.TryAcquireAll(ctx, keys, ttl, note); err != nil {
			claims, errs = make([]*etcdclaims.Claim, len(keys)), slices.Repeat([]error{err}, len(keys))
		}
	} else {
		claims, errs = p.client.TryAcquireEach(ctx, keys, ttl, note)
	}
	for i, call := range calls {
		p.granted(call, claims[i], errs[i])
	}
	return claims
}

// manual holds a key by its own heartbeat, and may be late with it.
func (p *process) manual(rng *rand.Rand) {
	cl, _ := p.acquire(rng, p.key(rng), rng.IntN(2) == 0, etcdclaims.Manual(), etcdclaims.TTL(p.short))
	if cl == nil {
		return
	}
	p.manuals.Store(cl.Token(), true)
	for range rng.IntN(6) {
		if !p.pause(between(rng, 0, shortTTL)) {
			return
		}
		p.check(cl)
		_ = p.ask(rng, 2*time.Second, "renew", cl.Renew)
	}
	p.release(rng, cl)
}

// replacedBy reports whether the change is a claim of the process with which it superseded its
// own: maybe not the one that its caller had, which may have been lost, and the key claimed anew
// by another goroutine.
func (r *replay) replacedBy(p *process, key string, by change) bool {
	if h := by.holder(); by.deleted || h.Kind != "" || h.Instance != p.client.Instance() {
		return false
	}
	return slices.ContainsFunc(r.t.keyCalls, func(c *keyCall) bool {
		return c.verb == verbSupersede && c.p == p && c.key == key && !by.at.Before(c.from) && (c.to.IsZero() || !by.at.After(c.to))
	})
}

// superseding takes a key over from the process itself.
func (p *process) superseding(rng *rand.Rand) {
	key := p.key(rng)
	first, _ := p.acquire(rng, key, false)
	if first == nil {
		return
	}
	if !p.pause(between(rng, 0, time.Second)) {
		return
	}
	p.w.trace.ended(first.Token(), p)
	p.w.history.Ended(p.name, first.Token())
	c := p.w.trace.calls(keyCall{verb: verbSupersede, p: p, key: key})
	second, err := p.acquire(rng, key, false, etcdclaims.Supersede())
	if !errors.Is(err, etcdclaims.ErrUnknown) {
		c.returned(0, err) // else its request may arrive later
	}
	p.hold(rng, second)
	p.class("release", soon(10*time.Second, first.Release)) // if it was not superseded
}

// look reads, which must not disturb.
func (p *process) look(rng *rand.Rand) {
	ctx, cancel := p.within(rng, 5*time.Second)
	defer cancel()
	switch rng.IntN(6) {
	case 0:
		_, err := p.client.Lookup(ctx, p.key(rng))
		p.class("lookup", err)
	case 1:
		for _, err := range p.client.List(ctx, "") {
			p.class("list", err)
		}
	case 2:
		for _, err := range p.works.Orphans(ctx, "") {
			p.class("orphans", err)
		}
	case 3, 4:
		p.turnGate(rng)
	default:
		key := p.key(rng)
		call := p.w.history.Take(key)
		p.w.trace.calls(keyCall{verb: verbUnlock, p: p, key: key})
		call.Returned(p.force(ctx, key))
	}
}

// force takes a key away from its holder.
func (p *process) force(ctx context.Context, key string) error {
	err := admin.ForceRelease(ctx, p.client, key, "on purpose")
	p.class("force release", err)
	p.w.count("forced releases")
	return err
}

// lazyKey is a key whose holders do not wait for its release. The trace judges the claims as others, and for how long the
// key stays held after them.
const lazyKey = "lazy"

// claimLazily claims the key, holds it for a while, and releases it, often several times one right after the other. One claim
// in eight is released as usual.
func (p *process) claimLazily(rng *rand.Rand) {
	for again := true; again && p.ctx.Err() == nil; again = rng.IntN(3) > 0 {
		lazily := etcdclaims.LazyRelease()
		if rng.IntN(8) == 0 {
			lazily = etcdclaims.Option(nil)
		}
		cl, err := p.claimSome(rng, lazyKey, 3, (*etcdclaims.Claim).Token, lazily)
		if err != nil {
			return
		}
		p.writeUnder(rng, cl, cl.Token(), 2*time.Second, time.Second)
		if p.dead.Load() {
			return
		}
		p.w.trace.ended(cl.Token(), p)
		if lazily != nil {
			p.lazies.Store(cl.Token(), time.Now())
		}
		err = soon(between(rng, 0, 10*time.Second), cl.Release)
		p.class("release", err)
		if rng.IntN(2) == 0 {
			p.pause(between(rng, 0, 50*time.Millisecond))
		}
		if err == nil && rng.IntN(2) == 0 {
			p.takeBack(rng, cl)
		}
	}
}

// takeBack tries for a key that the process has just released.
func (p *process) takeBack(rng *rand.Rand, before *etcdclaims.Claim) {
	cl, err := p.ownTry(rng)
	var held *etcdclaims.HeldError
	if errors.As(err, &held) && held.Info.Claim == before.ID() {
		p.barred.Store(before.Token(), time.Now())
	}
	if err == nil {
		p.w.count("keys claimed again right after a lazy release")
		p.useSome(rng, cl, cl.Token(), time.Second, time.Second)
	}
}

// ownTry tries for the key.
func (p *process) ownTry(rng *rand.Rand) (*etcdclaims.Claim, error) {
	ctx, cancel := p.within(rng, 8*time.Second)
	defer cancel()
	cl, err := p.client.TryAcquire(ctx, lazyKey)
	p.class("acquire", err)
	if err == nil {
		p.holds(cl.Token(), cl.Check)
	}
	return cl, err
}
