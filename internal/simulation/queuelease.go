package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// consume claims items and handles them, until the process ends.
func (p *process) consume(rng *rand.Rand) {
	for p.ctx.Err() == nil {
		n, wait := 1+rng.IntN(3), rng.IntN(4) > 0
		ctx, cancel := p.within(rng, 20*time.Second)
		leases := p.claimIn(ctx, n, wait)
		if cancel(); len(leases) == 0 {
			p.pause(between(rng, 100*time.Millisecond, 2*time.Second))
		}
		together := len(leases) > 1 && rng.IntN(3) == 0
		if together && p.pause(between(rng, 0, 3*time.Second)) {
			p.finishAll(rng, leases)
		}
		for _, l := range leases {
			if !together {
				p.handleItem(rng, l)
			}
			p.leaveItem(rng, l)
		}
	}
}

// claimIn claims items, and records which.
func (p *process) claimIn(ctx context.Context, n int, wait bool) []*queue.Delivery {
	qs := p.w.queue
	method := p.queue.TryClaim
	if wait {
		method = p.queue.Claim
	}
	began := time.Now()
	b, err := method(ctx, n)
	if wait && !p.dead.Load() {
		qs.mu.Lock()
		qs.waits = append(qs.waits, queueWait{p: p, from: began, to: time.Now()})
		qs.mu.Unlock()
	}
	p.class("queue claim", err)
	if p.dead.Load() {
		return nil // nobody is told
	}
	key := ""
	for _, l := range b.Deliveries {
		p.w.faultIf(l.Key() < key, "%s was given %s, of key %s, after that of key %s", p.name, l.ID(), l.Key(), key)
		key = l.Key()
		one := &queueLease{p: p, id: l.ID(), fence: l.Fence(), attempt: l.Attempt(), began: began, strict: p.drains}
		p.w.trace.believe(belief{p, l.Token(), l.Check})
		qs.mu.Lock()
		if before := qs.leases[leaseName{one.id, one.fence}]; before != nil && !p.w.restored.Load() {
			p.w.fault("item %s was given to %s and to %s by fence %d", one.id, before.p.name, p.name, one.fence)
		}
		qs.leases[leaseName{one.id, one.fence}] = one
		qs.mu.Unlock()
		p.w.count("queue items claimed")
	}
	return b.Deliveries
}

// handleItem is a handler. It ends the lease in any of the ways there are.
func (p *process) handleItem(rng *rand.Rand, l *queue.Delivery) {
	lasts := between(rng, 0, 3*time.Second)
	if rng.IntN(10) == 0 {
		lasts = 2 * p.longest() // which it may, as long as its process renews
	}
	if !p.pause(lasts) {
		return
	}
	if rng.IntN(6) == 0 {
		p.heartbeat(rng, l)
	}
	if rng.IntN(12) > 0 || !p.giveHandle(rng, l) {
		p.endItem(rng, l)
	}
}

// leaveItem gives the item back if the lease has not ended.
func (p *process) leaveItem(rng *rand.Rand, l *queue.Delivery) {
	for l.Err() == nil && !p.dead.Load() && p.ctx.Err() == nil {
		p.pause(100 * time.Millisecond) // a full etcd refuses at once
		p.attempt(rng, p.w.queue.begin(p, "release", l.ID(), l.Fence()), l.Release)
	}
}

// heartbeat renews a lease, maybe with another duration, by which it gets another
// fence.
func (p *process) heartbeat(rng *rand.Rand, l *queue.Delivery) {
	qs := p.w.queue
	d := []time.Duration{0, p.ttl, p.second}[rng.IntN(3)]
	before := l.Fence()
	c := qs.begin(p, "heartbeat", l.ID(), before)
	p.attempt(rng, c, func(ctx context.Context) error {
		_, err := l.Heartbeat(ctx, d)
		return err
	})
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if now := l.Fence(); now != before {
		p.w.faultIf(now < before, "the fence of %s fell from %d to %d by a heartbeat", l.ID(), before, now)
		if one := qs.leases[leaseName{l.ID(), before}]; one != nil {
			qs.leases[leaseName{l.ID(), now}] = one // the same lease, of which the rest is asked
		}
	}
}

// giveHandle lets another process end the lease. It returns false if there is none.
func (p *process) giveHandle(rng *rand.Rand, l *queue.Delivery) bool {
	qs := p.w.queue
	other := qs.other(p)
	if other == nil {
		return false
	}
	qs.mu.Lock()
	if one := qs.leases[leaseName{l.ID(), l.Fence()}]; one != nil {
		one.given = true
	}
	qs.mu.Unlock()
	ctx, cancel := other.within(rng, 5*time.Second)
	defer cancel()
	theirs, err := other.queue.Adopt(ctx, l.Handle())
	other.class("queue adopt", err)
	if err != nil {
		return false
	}
	p.w.count("queue handles given")
	other.endItem(rng, theirs)
	return true
}

// other returns another process with the queue.
func (qs *queueing) other(p *process) *process {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, c := range qs.calls[max(0, len(qs.calls)-20):] {
		if c.p != p && !c.p.dead.Load() && c.p.ctx.Err() == nil {
			return c.p
		}
	}
	return nil
}

// endItem ends a lease by one of its verbs.
func (p *process) endItem(rng *rand.Rand, l *queue.Delivery) {
	qs := p.w.queue
	begin := func(verb string) *queueCall { return qs.begin(p, verb, l.ID(), l.Fence()) }
	switch rng.IntN(10) {
	case 0, 1, 2:
		c := begin("fail")
		var cause error = queueCause{n: c.n}
		if c.last = rng.IntN(8) == 0; c.last {
			cause = etcdclaims.Permanent(cause)
		}
		p.attempt(rng, c, func(ctx context.Context) error {
			out, err := l.Fail(ctx, cause)
			c.dead = out.Dead
			return err
		})
	case 3:
		p.attempt(rng, begin("snooze"), func(ctx context.Context) error {
			_, err := l.Snooze(ctx, between(rng, 0, 5*time.Second))
			return err
		})
	case 4:
		p.attempt(rng, begin("release"), l.Release)
	case 5:
		c := begin("discard")
		if rng.IntN(2) == 0 {
			c.verb = "complete"
			p.finishItem(rng, c, l)
			return
		}
		p.attempt(rng, c, func(ctx context.Context) error { return l.Discard(ctx, queueCause{n: c.n}.Error()) })
	default:
		p.finishItem(rng, begin("complete"), l)
	}
}

// mark is the write by which etcd shows whose completion it was.
func (c *queueCall) mark() clientv3.Op { return clientv3.OpPut(queueDone+c.id, fmt.Sprint(c.n)) }

// finishItem completes an item, with a write that says who did, and maybe with a
// child.
func (p *process) finishItem(rng *rand.Rand, c *queueCall, l *queue.Delivery) {
	ops := []clientv3.Op{c.mark()}
	if c.n%2 == 0 {
		err := l.SetResult(fmt.Append(nil, c.n)) // it fails once the lease has ended, or an earlier call may have ended it
		open := err != nil && l.Err() == nil && !errors.Is(err, etcdclaims.ErrReleased)
		p.w.faultIf(open, "%s cannot set the result of %s: %v", p.name, c.id, err)
	}
	if id := p.w.queue.newID(rng); id != c.id && rng.IntN(4) == 0 {
		_, child := p.enqueueOps(rng, id)
		ops = append(ops, child...)
	}
	p.attempt(rng, c, func(ctx context.Context) error { return l.Complete(ctx, ops...) })
}

// finishAll completes a batch by one call, and calls again for those items of which it is not known what came of them.
func (p *process) finishAll(rng *rand.Rand, leases []*queue.Delivery) {
	b, calls := queue.Batch{Deliveries: leases}, make([]*queueCall, len(leases))
	for i, l := range leases {
		calls[i] = p.w.queue.begin(p, "complete", l.ID(), l.Fence())
		calls[i].unmarked = true
	}
	for try := 1 + rng.IntN(3); try > 0 && len(calls) > 0; try-- {
		errs := make([]error, len(calls))
		var failed *queue.CompleteAllError
		if errors.As(soon(between(rng, time.Millisecond, 8*time.Second), b.CompleteAll), &failed) {
			errs = failed.Errs
		}
		var left []*queueCall
		b.Deliveries = nil
		for i, c := range calls {
			if p.told(c, errs[i]) {
				left, b.Deliveries = append(left, c), append(b.Deliveries, leases[i])
			}
		}
		calls, leases = left, b.Deliveries
	}
}

// attempt makes a call, and makes it again if it is not known what came of it.
func (p *process) attempt(rng *rand.Rand, c *queueCall, call func(ctx context.Context) error) {
	for range 1 + rng.IntN(3) {
		if !p.told(c, soon(between(rng, time.Millisecond, 8*time.Second), call)) {
			return
		}
	}
}

// told records what a call was answered, and reports whether it may be made again: of a call that was refused nothing
// may be in etcd, now or later.
func (p *process) told(c *queueCall, err error) (again bool) {
	p.w.queue.returned(c, err)
	return !p.dead.Load() && errors.Is(err, etcdclaims.ErrUnknown) && !isAny(err, etcdclaims.ErrLost, etcdclaims.ErrReleased, etcdclaims.ErrClosed)
}

// queueCause is the cause of a failure, which says by which call.
type queueCause struct{ n int }

func (c queueCause) Error() string { return fmt.Sprintf("call %d", c.n) }

const (
	// backlog is more than a worker reads ahead, in package queue.
	backlog = 80
	// restock is how often a run with a backlog enqueues another one. Its workers need
	// about as long for it.
	restock = 30 * time.Second
	// latest is more than the longest delay of an item.
	latest = 5 * time.Second
	// urgent is a priority before all others, however old these are.
	urgent = -1000
)

// stock reports whether the run has backlogs, and another one is due.
func (qs *queueing) stock() bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if !qs.backlogs || time.Since(qs.stocked) < restock {
		return false
	}
	qs.stocked = time.Now()
	return true
}

// drainBacklog lets a worker that is alone claim from a backlog. It must claim in order:
// it reads ahead, and sees an item that comes before those that it has read.
func (p *process) drainBacklog(ctx context.Context) {
	qs := p.w.queue
	if !qs.backlogs {
		return
	}
	rng := p.random(202)
	if err := p.enqueueMany(ctx, rng, backlog+backlog/2); err != nil {
		p.w.fault("a backlog cannot be enqueued in the end: %v", err)
	}
	time.Sleep(latest) // all of them vest
	for range 3 {
		for _, l := range p.claimIn(ctx, 3, true) {
			p.completeInEnd(ctx, l)
		}
		c := qs.begin(p, "enqueue again", "", 0)
		item := c.item(rng, queue.Priority(urgent), queue.Delay(0))
		c.id, c.priority = item.ID(), urgent
		_, err := p.queue.Enqueue(ctx, item)
		qs.returned(c, err)
		time.Sleep(2 * seenLate)
	}
}

// enqueueMany enqueues items with one call. After an error the first ones may be there.
func (p *process) enqueueMany(ctx context.Context, rng *rand.Rand, n int) error {
	var items []queue.Item
	var calls []*queueCall
	seen := map[string]bool{}
	for range n {
		id := p.w.queue.newID(rng)
		if seen[id] {
			continue
		}
		seen[id] = true
		c := p.w.queue.begin(p, "enqueue again", id, 0)
		calls, items = append(calls, c), append(items, c.item(rng))
	}
	_, err := p.queue.EnqueueAll(ctx, items)
	if err != nil {
		err = fmt.Errorf("%w (%w)", etcdclaims.ErrUnknown, err)
	}
	for _, c := range calls {
		p.w.queue.returned(c, err)
	}
	return err
}

// drainQueue lets one process, alone and in peace, complete all items that are left.
// It must find each of them, in order.
func (w *world) drainQueue(ctx context.Context) {
	qs := w.queue
	if qs == nil {
		return
	}
	p := w.slots[len(w.slots)-1] // the one that finished the jobs
	p.openQueue()                // its workers do nothing: it has been told to end
	p.wg.Wait()
	defer p.closeQueue(patience)
	st, err := p.queue.Stats(ctx)
	if err == nil && !st.Paused.At.IsZero() && st.Paused.Until.IsZero() { // other pauses end by themselves
		err = p.queue.Resume(ctx)
	}
	if err != nil && !errors.Is(err, queue.ErrUnchanged) {
		w.fault("the queue cannot be resumed in the end: %v", err)
	}
	time.Sleep(quiet) // what dead workers have left is there again
	p.drains = true
	p.drainBacklog(ctx)
	for {
		st, err := p.queue.Stats(ctx)
		if err != nil {
			w.fault("the queue cannot be counted in the end: %v", err)
			return
		}
		w.faultIf(st.Skipped > 0, "the queue has %d values that cannot be read", st.Skipped)
		if st.Ready+st.Later+st.Behind+st.Taken == 0 {
			return
		}
		claiming, cancel := context.WithTimeout(ctx, time.Minute)
		leases := p.claimIn(claiming, 3, true)
		cancel()
		if len(leases) == 0 {
			w.fault("of the queue are left, and nobody can have them: %+v", st)
			return
		}
		for _, l := range leases {
			p.completeInEnd(ctx, l)
		}
	}
}

func (p *process) completeInEnd(ctx context.Context, l *queue.Delivery) {
	c := p.w.queue.begin(p, "complete", l.ID(), l.Fence())
	err := l.Complete(ctx, c.mark())
	p.w.queue.returned(c, err)
	p.w.faultIf(err != nil, "item %s cannot be completed in the end: %v", l.ID(), err)
}
