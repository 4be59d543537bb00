package queue_test

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// manyOn runs WorkMany with its defaults on a machine, and counts what is handled.
func (w *world) manyOn(etcd claimtest.Etcd) (handled *atomic.Int64, result <-chan error, stop func()) {
	w.Helper()
	claims := claimtest.NewClient(w.T, etcd, etcdclaims.Config{TTL: ttl})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	handled = &atomic.Int64{}
	go func() {
		done <- queue.WorkMany(ctx, claims, queue.ManyConfig{Worker: queue.WorkerConfig{Handler: func(context.Context, *queue.Delivery) error {
			handled.Add(1)
			return nil
		}}})
	}()
	return handled, done, cancel
}

// If the queues cannot be read any more WorkMany stops, and says why.
func TestManyQueuesPermissionRevoked(t *testing.T) {
	virtually(t, func(w *world) {
		host := w.server.Host(w.T)
		handled, result, _ := w.manyOn(host)
		w.enqueue(w.queue(queue.Config{}), "a")
		time.Sleep(sec)
		w.want(handled.Load(), int64(1))
		host.Inject(claimtest.Fault{On: claimtest.Range, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
		select {
		case err := <-result:
			w.wantErr(err, rpctypes.ErrPermissionDenied)
		case <-time.After(time.Minute):
			t.Fatal("it works on, and finds no queues")
		}
	})
}

// A queue of which the watch did not report is found all the same, also if etcd does not
// answer the watch at all.
func TestManyQueuesWithoutEvents(t *testing.T) {
	pointer := []byte("/etcdclaims/queue/active/")
	for name, fault := range map[string]claimtest.Fault{
		"event lost": {Edit: func(reply any) {
			if r, ok := reply.(*etcdserverpb.WatchResponse); ok {
				r.Events = slices.DeleteFunc(r.Events, func(ev *mvccpb.Event) bool { return bytes.HasPrefix(ev.Kv.Key, pointer) })
			}
		}},
		"no answer": {DelayReply: 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				host := w.server.Host(w.T)
				fault.On, fault.Times = claimtest.Watch, -1
				host.Inject(fault)
				handled, result, stop := w.manyOn(host)
				time.Sleep(3 * sec)
				for i := range int64(3) {
					w.enqueue(w.queue(queue.Config{Name: string(rune('a' + i))}), "item")
					time.Sleep(10*sec + 3*sec)
					w.want(handled.Load(), i+1)
				}
				stop()
				w.ok(<-result)
			})
		})
	}
}

// By default WorkMany serves queues with the order and the bounds that they were made
// with, also one that is made after its first item came.
func TestManyQueuesOfOtherConfiguration(t *testing.T) {
	virtually(t, func(w *world) {
		handled, result, stop := w.manyOn(w.server.Host(w.T))
		w.enqueue(w.queue(queue.Config{Name: "higher", HigherFirst: true}), "a")
		w.enqueue(w.queue(queue.Config{Name: "slots", MaxTaken: 2}), "a")
		w.enqueue(w.queue(queue.Config{Name: "bounded", MaxWaiting: 5}), "a")
		op, err := w.queue(queue.Config{Name: "outbox"}).Op(queue.NewItem(nil))
		w.ok(err)
		_, err = w.server.Admin().Txn(w.Context()).Then(op).Commit()
		w.ok(err)
		time.Sleep(5 * sec)
		w.want(handled.Load(), int64(4))
		stop()
		w.ok(<-result)
	})
}

// A queue that only Op has filled is served in the order and with the bounds of the Queue that made the
// Op, and that Queue can enqueue afterwards.
func TestManyQueuesFilledByOp(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{MaxTaken: 1, HigherFirst: true})
		var items []queue.Item
		for priority, id := range []string{"low", "middle", "high"} {
			items = append(items, queue.NewItem(nil, queue.ID(id), queue.Priority(priority)))
		}
		op, err := q.Op(items...)
		w.ok(err)
		_, err = w.server.Admin().Txn(w.Context()).Then(op).Commit()
		w.ok(err)
		claims := claimtest.NewClient(w.T, w.server.Host(w.T), etcdclaims.Config{TTL: ttl})
		ctx, stop := context.WithCancel(w.Context())
		result, handled := make(chan error, 1), make(chan string, 3)
		var running atomic.Int64
		handler := func(_ context.Context, l *queue.Delivery) error {
			defer running.Add(-1)
			if n := running.Add(1); n > 1 {
				t.Errorf("%d items at once", n)
			}
			time.Sleep(sec)
			handled <- l.ID()
			return nil
		}
		go func() {
			result <- queue.WorkMany(ctx, claims, queue.ManyConfig{Worker: queue.WorkerConfig{Handler: handler}})
		}()
		for _, want := range []string{"high", "middle", "low"} {
			w.want(<-handled, want)
		}
		stop()
		w.ok(<-result)
		w.enqueue(q, "next")
	})
}
