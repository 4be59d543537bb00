package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/history"
)

// process is one client of claims on a machine of its own, with workers.
type process struct {
	clock atomic.Int64 // how far its clock is ahead, in ns

	w       *world
	slot    int
	number  int // of the process in this slot
	name    string
	host    *claimtest.Host
	client  *etcdclaims.Client
	works   *work.Runner
	ttl     time.Duration
	second  time.Duration   // of other claims
	short   time.Duration   // of those that only their holder renews
	spy     *spy            // of some
	waiting sync.Map        // its calls that wait in line
	ctx     context.Context // ends when its workers are to end
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	cleared atomic.Int32 // calls of ReleaseAll that go on
	dead    atomic.Bool  // killed: what it does does not count any more
	asleep  atomic.Bool  // its machine is
	rtt     time.Duration
	far     time.Duration // the longest round trip to etcd, in some runs
	queue   *queue.Queue  // of the first ones, in some runs
	drains  bool          // the queue, at the end, alone
	gone    time.Time     // when it began to end; the trace's mutex guards it

	handles handles // of the reentrant key

	// Tokens of terms:
	manuals sync.Map // that end where nobody renews them
	prefers sync.Map // that go to the most preferred in line
	gated   sync.Map // that were had on the condition that a gate is open
	rests   sync.Map // how long their keys are to be held at least
	lazies  sync.Map // that were released without waiting for etcd, and when
	barred  sync.Map // likewise, of those for which the process was refused their key later
}

// newProcess starts the number-th process of a slot.
func (w *world) newProcess(slot, number int) *process {
	p := &process{
		w: w, slot: slot, number: number, name: fmt.Sprintf("p%d.%d", slot, number),
		handles: handles{of: map[fencing.Token]*handle{}},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	rng := p.random(0)
	p.ttl = []time.Duration{shortTTL, 8 * time.Second, longTTL}[rng.IntN(3)]
	p.second = []time.Duration{6 * time.Second, 12 * time.Second}[rng.IntN(2)]
	p.host = w.server.Host(w)
	p.short = shortTTL
	p.rtt = []time.Duration{0, 0, time.Millisecond, 5 * time.Millisecond}[rng.IntN(4)]
	p.moveAway()
	if rng.IntN(2) == 0 || p.rtt > 0 {
		p.spy = &spy{batched: make(map[string]string), void: make(map[string]bool)}
		p.watchAgain()
	}
	p.client = claimtest.NewClient(w, p.host, etcdclaims.Config{
		// Labels are for people: all share two.
		Owner: fmt.Sprintf("label%d", slot%2), TTL: p.ttl,
		Hooks: etcdclaims.Hooks{
			TermEnded: p.termEnded,
			Zombie:    func(context.Context, etcdclaims.TermInfo, time.Duration) { w.count("zombies") },
		},
	})
	p.works = w.worksOf(p.client)
	for i := range 1 + rng.IntN(2) {
		p.wg.Go(func() { p.work(p.random(uint64(i+1)), tasks, 12*time.Second) })
	}
	if slot == 0 {
		p.wg.Go(p.observe)
	}
	p.claimSpecials()
	if w.queue != nil && slot < queueSlots {
		p.openQueue()
	}
	return p
}

// longest is how long a claim of the process may last without a renewal.
func (p *process) longest() time.Duration { return max(p.ttl, p.second) }

// random returns numbers that depend on the seed and the goroutine alone.
func (p *process) random(goroutine uint64) *rand.Rand {
	return rand.New(rand.NewPCG(p.w.plan.Seed, uint64(p.slot+1)<<32|uint64(p.number)<<8|goroutine))
}

// stop ends the workers and waits for them: no wait may outlast its context.
func (p *process) stop() {
	p.cancel()
	done := make(chan struct{})
	go func() {
		p.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		p.w.Fatalf("simulation: seed %d: the workers of %s have not stopped after %v", p.w.plan.Seed, p.name, patience)
	}
}

// kill ends the process as SIGKILL does: at once, with its network.
func (p *process) kill() {
	p.dead.Store(true)
	p.w.history.Died(p.name)
	p.w.trace.leaves(p)
	p.w.trace.clearing(p, 1)
	p.host.Kill()
	p.cancel()
	// Nothing of it may go on: closing, without a network and without time,
	// only ends its goroutines.
	_ = soon(0, p.client.Close)
	p.w.later.Go(func() { p.closeQueue(0) })
}

// task is what a worker does, and how often.
type task struct {
	weight int
	do     func(p *process, rng *rand.Rand)
}

var tasks = []task{
	{20, func(p *process, rng *rand.Rand) { p.claim(rng, false) }},
	{20, func(p *process, rng *rand.Rand) { p.claim(rng, true) }},
	{13, (*process).handler},
	{15, (*process).job},
	{7, (*process).several},
	{5, (*process).manual},
	{2, (*process).lock},
	{3, (*process).superseding},
	{5, func(p *process, rng *rand.Rand) { p.crowd(rng, p.key(rng)) }},
	{6, func(p *process, rng *rand.Rand) { p.burst(rng, temper{}) }},
	{4, (*process).look},
}

// work is what one worker does until it is told to end.
func (p *process) work(rng *rand.Rand, tasks []task, rest time.Duration) {
	for p.ctx.Err() == nil {
		p.pause(between(rng, 10*time.Millisecond, rest))
		if p.ctx.Err() != nil {
			return
		}
		choose(rng, tasks, func(t task) int { return t.weight }).do(p, rng)
	}
}

// choose returns one of some, each as likely as it weighs.
func choose[T any](rng *rand.Rand, all []T, weight func(T) int) T {
	total := 0
	for _, one := range all {
		total += weight(one)
	}
	n, i := rng.IntN(total), 0
	for n >= weight(all[i]) {
		n -= weight(all[i])
		i++
	}
	return all[i]
}

// pause waits, unless the process ends, and reports whether it was not killed.
func (p *process) pause(d time.Duration) (alive bool) {
	pauseIn(p.ctx, d)
	return !p.dead.Load()
}

func pauseIn(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}

// key chooses what to claim: mostly what most want.
func (p *process) key(rng *rand.Rand) string {
	if rng.IntN(2) == 0 {
		return p.w.line
	}
	return p.w.keys[rng.IntN(len(p.w.keys))]
}

// within is a context for one call, which may be too short for it.
func (p *process) within(rng *rand.Rand, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.ctx, between(rng, time.Millisecond, most))
}

// soon makes a call that has some time, even if the process ends.
func soon(lasts time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	return call(ctx)
}

// claim acquires a key, at once or in line, and holds it for a while.
func (p *process) claim(rng *rand.Rand, wait bool) {
	if rng.IntN(8) == 0 {
		ctx, cancel := p.within(rng, 2*longTTL)
		cl := p.acquireThen(ctx, rng, p.key(rng), wait)
		cancel()
		p.hold(rng, cl)
		return
	}
	opt, note := p.extra(rng, 5)
	cl, _ := p.acquire(rng, p.key(rng), wait, opt)
	if cl != nil {
		note(cl.Token())
	}
	p.hold(rng, cl)
}

// acquire makes one recorded acquisition.
func (p *process) acquire(rng *rand.Rand, key string, wait bool, opts ...etcdclaims.AcquireOption) (*etcdclaims.Claim, error) {
	most := 8 * time.Second
	if wait {
		most = 40 * time.Second
	}
	ctx, cancel := p.within(rng, most)
	defer cancel()
	return p.acquireIn(ctx, key, wait, opts...)
}

// acquireIn is acquire within a context.
func (p *process) acquireIn(ctx context.Context, key string, wait bool, opts ...etcdclaims.AcquireOption) (*etcdclaims.Claim, error) {
	method := p.client.TryAcquire
	if wait {
		var end func()
		ctx, end = p.waits(ctx, key)
		defer end()
		method = p.client.Acquire
	}
	call := p.w.history.Acquire(p.name, key)
	cl, err := method(ctx, key, opts...)
	p.granted(call, cl, err)
	if err != nil {
		return nil, err
	}
	return cl, nil
}

// granted records what an acquiring method returned.
func (p *process) granted(call *history.Call, cl *etcdclaims.Claim, err error) {
	if err != nil {
		p.returned(call, "acquire", err)
		return
	}
	p.holds(cl.Token(), cl.Check)
	call.Acquired(cl, nil)
	// It may have been lost before it was known to be there.
	if cl.Err() != nil {
		p.over(cl.Token())
	}
}

// over makes sure that the end of a term was recorded, which its hook may have
// done before there was a record of its beginning.
func (p *process) over(t fencing.Token) {
	p.w.history.Ended(p.name, t)
	p.w.trace.ended(t, p)
}

// hold is a handler: it works while it may, or while it wants to.
func (p *process) hold(rng *rand.Rand, cl *etcdclaims.Claim) {
	if cl == nil {
		return
	}
	var told <-chan struct{} // nil: it is stubborn
	if rng.IntN(3) > 0 {
		told = cl.Context().Done()
	}
	until := time.Now().Add(between(rng, 0, 6*time.Second))
	if rng.IntN(8) == 0 {
		until = time.Now().Add(between(rng, 0, 3*longTTL))
	}
	for time.Now().Before(until) && p.ctx.Err() == nil {
		select {
		case <-time.After(min(between(rng, 10*time.Millisecond, 4*time.Second), time.Until(until))):
		case <-told:
			until = time.Time{}
		}
		if p.dead.Load() {
			return
		}
		if p.check(cl); until.IsZero() {
			break
		}
		switch rng.IntN(10) {
		case 0, 1, 2, 3:
			p.effect(rng, cl)
		case 4:
			note := fmt.Appendf(nil, "%d", rng.Uint32())
			_ = p.ask(rng, 5*time.Second, "note", func(ctx context.Context) error { return cl.Note(ctx, note) })
		case 5:
			_ = p.ask(rng, 5*time.Second, "renew", cl.Renew)
		}
	}
	p.release(rng, cl)
}

// check records that the claim is good, if it says so. While all are released it
// may be so by the claim's own account only.
func (p *process) check(cl *etcdclaims.Claim) {
	if cl.Check() == nil && p.cleared.Load() == 0 {
		p.w.history.Checked(p.name, cl.Token())
	}
}

func (p *process) release(rng *rand.Rand, cl *etcdclaims.Claim) {
	if p.dead.Load() {
		return
	}
	// A process that ends still releases.
	most := 10 * time.Second
	switch rng.IntN(8) {
	case 0:
		most = time.Millisecond // or none at all
	case 1:
		most = 3 * p.rtt
	}
	p.w.trace.ended(cl.Token(), p)
	call := p.w.history.Release(p.name, cl.Token())
	p.returned(call, "release", soon(between(rng, 0, most), cl.Release))
}

// returned records how a call ended.
func (p *process) returned(call *history.Call, what string, err error) {
	call.Returned(err)
	p.class(what, err)
}
