package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// bump is how far a restore moves the revisions on.
const bump = 1_000_000

// claiming reports whether a message is a request that claims items.
func claiming(message any) bool {
	r, ok := message.(*pb.TxnRequest)
	return ok && claims(r)
}

// A process that lives on while etcd is restored enqueues and claims afterwards, although the
// snapshot has an earlier generation of its session.
func TestRestoreOfEarlierGeneration(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: time.Minute})
		w.enqueue(q, "first")
		snapshot := w.server.Snapshot(t)
		lost := host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
		w.enqueue(q, "raises the generation")
		w.want(lost.Hits(), 1)
		w.server.Restore(t, snapshot, bump)
		ctx, cancel := context.WithTimeout(w.Context(), 30*sec)
		defer cancel()
		_, err := q.Enqueue(ctx, queue.NewItem(nil, queue.ID("second")))
		w.ok(err)
		w.want(ids(w.tryClaim(q, 5)), "first second")
	})
}

// An item whose completion a restore has undone is given back, although its worker lives on. What
// else that worker has stays its own.
func TestRestoreOfCompletedItem(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{TTL: time.Minute})
		w.enqueue(q, "a")
		w.enqueue(q, "b")
		had := w.tryClaim(q, 2)
		snapshot := w.server.Snapshot(t)
		w.ok(had[0].Complete(w.Context()))
		w.server.Restore(t, snapshot, bump)
		w.want(w.look(q, "a").Where, queue.Taken)
		time.Sleep(2 * time.Minute)
		i := w.look(q, "a")
		w.want(i.Where, queue.Ready)
		w.want(i.Attempts, 0)
		w.ok(had[1].Check())
		w.ok(had[1].Complete(w.Context()))
	})
}

// A claimer whose requests are refused again and again for the generation of its session waits
// between them.
func TestClaimRefusedForItsGeneration(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: time.Minute})
		w.enqueue(q, "a")
		refused := 0
		host.Inject(claimtest.Fault{Times: -1, Saw: func(message any) {
			if claiming(message) && refused < 30 {
				refused++
				_, err := w.server.Admin().Delete(w.Context(), w.under("/worker/")[0])
				w.ok(err)
			}
		}})
		begun := time.Now()
		w.want(len(w.tryClaim(q, 1)), 1)
		w.want(refused, 30)
		if d := time.Since(begun); d < sec {
			t.Errorf("refused 30 times within %v", d)
		}
	})
}
