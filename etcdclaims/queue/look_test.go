package queue_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// An item is found although etcd compacts its history between any two reads.
func TestLookOutlivesCompactions(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		for _, id := range []string{"taken", "dead", "ready"} {
			w.enqueue(q, id)
		}
		w.claim(q)
		w.ok(w.claim(q).Discard(w.Context(), "no such mailbox"))
		host.SetLatency(20*time.Millisecond, 20*time.Millisecond, 0)
		host.Break() // it is of new connections
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					if _, err := w.server.Admin().Put(w.Context(), "/other", ""); err != nil {
						w.Error(err)
					}
					w.server.Compact(w.T)
				}
			}
		}()
		for id, want := range map[string]queue.Where{"taken": queue.Taken, "dead": queue.Dead, "ready": queue.Ready} {
			w.want(w.look(q, id).Where, want)
		}
		close(stop)
		<-stopped
	})
}

// What is left of an earlier item with the id, whose content was deleted by hand, hides none.
func TestLookAmongRemains(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "x")
		w.ok(w.claim(q).Discard(w.Context(), "no such mailbox"))
		w.deleteKeys("/content/")
		w.enqueue(q, "x")
		w.claim(q)
		w.want(w.look(q, "x").Where, queue.Taken)
		w.ok(q.Cancel(w.Context(), "x", queue.AlsoTaken("it was meant")))
	})
}
