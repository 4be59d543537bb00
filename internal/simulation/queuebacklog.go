package simulation

import (
	"context"
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
