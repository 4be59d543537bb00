package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/steps"
)

// queueKinds are what the queue's requests are, mostly: its transactions, its reads,
// what opens its sessions and remembers its items, and its watches.
var queueKinds = []claimtest.Kind{
	claimtest.Other, claimtest.Other, claimtest.Other, claimtest.Other, claimtest.Verify, steps.Take, claimtest.Grant, claimtest.Watch, claimtest.KeepAlive,
}

// queueUnderFire disturbs requests of a process that has the queue, or takes a
// session of the queue away.
func (w *world) queueUnderFire() {
	for range 2 + w.rng.IntN(4) {
		p := w.slots[w.rng.IntN(queueSlots)]
		switch w.rng.IntN(16) {
		case 0:
			w.takeSession()
			continue
		case 1:
			w.killProcess(p)
			continue
		}
		f := disturbance(w.rng)
		f.On = queueKinds[w.rng.IntN(len(queueKinds))]
		if w.rng.IntN(4) == 0 {
			f.Times = 2 + w.rng.IntN(3)
		}
		w.count("fault: queue request disturbed")
		w.history.Logf("%s: %s", p.name, describe(f))
		i := p.inject(f)
		end := w.ledger.begin(span{who: p, injection: i, outage: f.Times > 1})
		p.later(recovery/2, func() { p.remove(i, f); end() })
		time.Sleep(between(w.rng, 0, 3*time.Second))
	}
}

// takeSession deletes the claim of a session of the queue, as a forced release does,
// or its lease.
func (w *world) takeSession() {
	key, lease := w.heldUnder(queueSessions)
	switch {
	case key == "":
	case w.rng.IntN(2) == 0:
		w.revoke(lease)
	default:
		w.take(key, deleted, remove)
	}
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
		if st.Skipped > 0 {
			w.fault("the queue has %d values that cannot be read", st.Skipped)
		}
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
	if err != nil {
		p.w.fault("item %s cannot be completed in the end: %v", l.ID(), err)
	}
}
