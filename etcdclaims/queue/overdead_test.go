package queue_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// An enqueue of an id that is a dead letter returns why it adds nothing. With OverDead the item replaces
// the dead letter, once, also if a request or its reply is lost.
func TestEnqueueOverDead(t *testing.T) {
	refused := func(w *world, err error, ids ...string) {
		w.Helper()
		var dead *queue.DeadLetterError
		if !errors.As(err, &dead) || !slices.Equal(dead.IDs, ids) {
			w.Errorf("got %v, want that %v are dead letters", err, ids)
		}
	}
	for name, fault := range map[string]*claimtest.Fault{
		"no fault": nil, "reply lost": {On: claimtest.Other, Skip: 1, LoseReply: true},
		"request lost": {On: claimtest.Other, Skip: 1, LoseRequest: true},
	} {
		for bounds, cfg := range map[string]queue.Config{"": {}, " with MaxWaiting": {MaxWaiting: 2}} {
			t.Run(name+bounds, func(t *testing.T) {
				virtually(t, func(w *world) {
					q, host := w.process(cfg)
					w.discard(q, "a")
					w.discard(q, "b")
					added, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("a")))
					w.want(added, false)
					refused(w, err, "a")
					n, err := q.EnqueueAll(w.Context(), []queue.Item{
						queue.NewItem(nil, queue.ID("a")), queue.NewItem(nil, queue.ID("c")), queue.NewItem(nil, queue.ID("b")),
					})
					w.want(n, 1)
					refused(w, err, "a", "b")
					w.want(w.dead(q), "a b")
					if cfg.MaxWaiting > 0 {
						w.enqueue(q, "d") // it is full
						_, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("a")))
						refused(w, err, "a")
						w.ok(q.Cancel(w.Context(), "d"))
					}
					if fault != nil {
						host.Inject(*fault)
					}
					added, err = q.Enqueue(w.Context(), queue.NewItem([]byte("new"), queue.ID("a"), queue.OverDead(), queue.Priority(7)))
					w.ok(err)
					w.want(added, true)
					host.RemoveFaults()
					w.want(w.dead(q), "b")
					info := w.look(q, "a")
					w.want(info.Where, queue.Ready)
					w.want(string(info.Payload), "new")
					w.want(len(info.History), 0)
					added, err = q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("a"), queue.OverDead()))
					w.ok(err)
					w.want(added, false) // it waits
					l := w.claim(q)
					w.want(l.ID()+" "+string(l.Payload()), "a new")
					w.want(l.Attempt(), 1)
					time.Sleep(time.Minute) // the keeper mends nothing
					w.ok(l.Complete(w.Context()))
					w.want(len(w.under("/dead/")), 1)
				})
			})
		}
	}
}
