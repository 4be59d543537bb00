package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

const (
	// backlog is more than a worker reads ahead, in package queue.
	backlog = 80
	// restock is how often a run with a backlog enqueues another one. Its workers need
	// about as long for it.
	restock = 30 * time.Second
	// latest is more than the longest delay of an item.
	latest = 5 * time.Second
	// urgent is a priority before all others.
	urgent = -1
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
	if err := p.queue.Resume(ctx); err != nil && !errors.Is(err, queue.ErrUnchanged) {
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
		if st.Ready+st.Later+st.Taken == 0 {
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
