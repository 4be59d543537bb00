package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
)

// A member that hangs has the stream of a process's watches. Each watch gives up on it
// after 5 s, and hears at once by a new stream.
func TestWatchesLeaveHungStream(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(w *world, etcd claimtest.Etcd, heard chan<- string) (stop func()){
		"Claim": func(w *world, etcd claimtest.Etcd, heard chan<- string) func() {
			q := w.queueOn(etcd)
			go func() {
				for {
					b, err := q.Claim(context.Background(), 1)
					if err != nil {
						return
					}
					_ = b.Deliveries[0].Complete(context.Background())
					heard <- b.Deliveries[0].ID()
				}
			}()
			return func() { w.ok(q.Close(context.Background())) }
		},
		"Watch": func(w *world, etcd claimtest.Etcd, heard chan<- string) func() {
			q := w.queueOn(etcd)
			go func() {
				for e := range q.Watch(context.Background()) {
					if e.Kind == "enqueued" {
						heard <- e.ID
					}
				}
			}()
			return func() { w.ok(q.Close(context.Background())) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				heard := make(chan string, 1)
				stop := start(w, deafness.HungStream(w.server.Host(w.T)), heard)
				defer stop()
				q := w.queue(queue.Config{})
				for n := range 3 {
					time.Sleep(15 * sec)
					w.enqueue(q, fmt.Sprint(n))
					select {
					case id := <-heard:
						w.want(id, fmt.Sprint(n))
					case <-time.After(100 * time.Millisecond):
						t.Fatalf("item %d is not heard of within 100 ms", n)
					}
				}
			})
		})
	}
}

func (w *world) queueOn(etcd claimtest.Etcd) *queue.Queue {
	w.Helper()
	q, err := queue.New(claimtest.NewClient(w.T, etcd, etcdclaims.Config{TTL: ttl}), queue.Config{Name: "q", TTL: ttl})
	w.ok(err)
	return q
}

// The same for the watch by which WorkMany finds queues.
func TestManyQueuesLeavesHungStream(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		handled, result, stop := w.manyOn(deafness.HungStream(w.server.Host(w.T)))
		defer func() {
			stop()
			w.ok(<-result)
		}()
		time.Sleep(15 * sec)
		for n := range 3 {
			w.enqueue(w.queue(queue.Config{Name: fmt.Sprint(n)}), "a")
			time.Sleep(200 * time.Millisecond)
			w.want(handled.Load(), int64(n+1))
			time.Sleep(3 * sec)
		}
	})
}
