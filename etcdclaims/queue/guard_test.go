package queue_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A queue that is paused after a claimer has read its head, and before the claiming request
// arrives, gives no item away.
func TestPauseBeforeClaimArrives(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		p := w.queue(queue.Config{})
		w.enqueue(q, "warm")
		w.ok(w.claim(q).Complete(w.Context())) // its session is open
		w.enqueue(p, "a")
		var once sync.Once
		paused := false
		host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, Saw: func(req any) {
			if r, ok := req.(*etcdserverpb.TxnRequest); ok && claims(r) {
				once.Do(func() {
					if err := p.Pause(context.Background(), "maintenance"); err != nil {
						t.Error(err)
					}
					paused = true
				})
			}
		}})
		b, err := q.TryClaim(w.Context(), 1)
		w.ok(err)
		w.want(paused, true) // or the request was another
		w.want(len(b.Deliveries), 0)
		w.want(b.Paused, true)
		info := w.look(p, "a")
		w.want(info.Where, queue.Ready)
		w.want(info.Attempts, 0)
		host.RemoveFaults()
		w.ok(p.Resume(w.Context()))
		w.want(w.claim(q).Attempt(), 1)
	})
}

// deactivates reports whether a request removes the note that a queue has work.
func deactivates(r *etcdserverpb.TxnRequest) bool {
	for _, op := range r.Success {
		if in := op.GetRequestTxn(); in != nil && deactivates(in) {
			return true
		}
		if strings.Contains(string(op.GetRequestDeleteRange().GetKey()), "/active/") {
			return true
		}
	}
	return false
}

// An item that is enqueued after the keeper has seen that the queue is empty, and before
// its request arrives, keeps the note that the queue has work.
func TestEnqueueBeforeDeactivationArrives(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		p := w.queue(queue.Config{})
		w.enqueue(q, "a")
		var once sync.Once
		late := make(chan struct{})
		host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, Saw: func(req any) {
			if r, ok := req.(*etcdserverpb.TxnRequest); ok && deactivates(r) {
				once.Do(func() {
					if _, err := p.Enqueue(context.Background(), queue.NewItem(nil, queue.ID("late"))); err != nil {
						t.Error(err)
					}
					close(late)
				})
			}
		}})
		w.ok(w.claim(q).Complete(w.Context()))
		<-late
		time.Sleep(sec) // the request has arrived, and the keeper has not looked again
		w.want(len(w.under("/active/")), 1)
		time.Sleep(3 * time.Minute)
		w.want(w.look(p, "late").Where, queue.Ready)
		w.want(len(w.under("/active/")), 1)
		w.ok(w.claim(q).Complete(w.Context()))
		time.Sleep(3 * time.Minute)
		w.want(len(w.under("/active/")), 0)
	})
}
