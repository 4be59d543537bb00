package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// together ends many leases at once, behind a verb whose request takes a second, and
// returns the errors and how many requests it took.
func (w *world) together(f claimtest.Fault, n int, end func(i int, l *queue.Delivery) error) (errs []error, requests int) {
	w.Helper()
	q, host := w.process(queue.Config{TTL: time.Minute})
	for i := range n + 1 {
		w.enqueue(q, fmt.Sprintf("%02d", i))
	}
	leases := w.tryClaim(q, n+1)
	w.want(len(leases), n+1)
	_, err := leases[n].Heartbeat(w.Context(), 0)
	w.ok(err)
	w.enqueue(q, "grant")
	w.ok(w.claim(q).Complete(w.Context())) // so that there is a lease for completed ids
	host.Inject(claimtest.Fault{On: claimtest.Other, DelayRequest: 200 * time.Millisecond})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := leases[n].Complete(w.Context()); err != nil {
			w.Errorf("complete: %v", err)
		}
	})
	time.Sleep(sec / 10)
	faulty := f.LoseReply || f.LoseRequest
	f.On = claimtest.Other
	var injected *claimtest.Injection
	if faulty {
		injected = host.Inject(f)
	} else { // else a round trip could return before all verbs wait
		host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, DelayRequest: 10 * time.Millisecond})
	}
	before := len(host.Sent(claimtest.Other))
	errs = make([]error, n)
	for i, l := range leases[:n] {
		wg.Go(func() { errs[i] = end(i, l) })
	}
	wg.Wait()
	if faulty && injected.Hits() == 0 {
		w.Error("the fault did not happen")
	}
	return errs, len(host.Sent(claimtest.Other)) - before
}

// Verbs of one process share round trips, and each ends alone: what is wrong with one
// of them is that one's error.
func TestVerbsShareRoundTrips(t *testing.T) {
	for name, f := range map[string]claimtest.Fault{"no fault": {}, "reply lost": {LoseReply: true}, "request lost": {LoseRequest: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				errs, requests := w.together(f, 40, func(i int, l *queue.Delivery) error {
					if i%2 > 0 {
						_, err := l.Fail(context.Background(), errors.New("bad luck"))
						return err
					}
					return l.Complete(context.Background(), clientv3.OpPut("/effect/"+l.ID(), "1"))
				})
				for i, err := range errs {
					if err != nil {
						t.Errorf("verb %d: %v", i, err)
					}
				}
				if name == "no fault" && requests > 3 {
					t.Errorf("%d requests", requests)
				}
				resp, err := w.server.Admin().Get(w.Context(), "/effect/", clientv3.WithPrefix())
				w.ok(err)
				w.want(len(resp.Kvs), 20)
				for _, kv := range resp.Kvs {
					w.want(kv.Version, int64(1))
				}
				w.want(len(w.under("/taken/")), 0)
			})
		})
	}
	t.Run("culprit", func(t *testing.T) {
		t.Parallel()
		virtually(t, func(w *world) {
			errs, _ := w.together(claimtest.Fault{}, 10, func(i int, l *queue.Delivery) error {
				switch i {
				case 3:
					return l.Complete(context.Background(), clientv3.OpPut("/x", "1", clientv3.WithLease(4711)))
				case 4, 5: // not in one transaction, says etcd
					return l.Complete(context.Background(), clientv3.OpPut("/same", fmt.Sprint(i)))
				}
				return l.Complete(context.Background())
			})
			for i, err := range errs {
				if i == 3 {
					w.wantErr(err, rpctypes.ErrLeaseNotFound)
				} else if err != nil {
					t.Errorf("verb %d: %v", i, err)
				}
			}
		})
	})
	t.Run("impatient", func(t *testing.T) {
		t.Parallel()
		virtually(t, func(w *world) {
			errs, _ := w.together(claimtest.Fault{}, 2, func(i int, l *queue.Delivery) error {
				ctx := context.Background()
				if i == 0 {
					time.Sleep(time.Millisecond) // until two round trips are under way
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 5*time.Millisecond)
					defer cancel()
				}
				return l.Release(ctx)
			})
			w.wantErr(errs[0], context.DeadlineExceeded)
			w.ok(errs[1])
			w.want(len(w.under("/taken/")), 1) // it was not sent
		})
	})
}

// Items that callers of one process enqueue at the same time share round trips. Each is
// enqueued once, and each caller is told whether its item was there.
func TestEnqueuesShareRoundTrips(t *testing.T) {
	for name, f := range map[string]claimtest.Fault{
		"no fault": {}, "reply lost": {LoseReply: true}, "request lost": {LoseRequest: true}, "reply lost twice": {LoseReply: true, Times: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				const n = 100
				q, host := w.process(queue.Config{TTL: time.Minute})
				p := w.queue(queue.Config{TTL: time.Minute})
				w.enqueue(q, "first")
				host.Inject(claimtest.Fault{On: claimtest.Other, DelayRequest: 200 * time.Millisecond})
				before := len(host.Sent(claimtest.Other))
				var wg sync.WaitGroup
				var added atomic.Int64
				put := func(q *queue.Queue, id string) {
					wg.Go(func() {
						is, err := q.Enqueue(w.Context(), queue.NewItem([]byte("x"), queue.ID(id)))
						if err != nil {
							t.Errorf("enqueue %q: %v", id, err)
						}
						if is {
							added.Add(1)
						}
					})
				}
				put(q, "slow")
				time.Sleep(100 * time.Millisecond)
				if f.LoseReply || f.LoseRequest {
					f.On = claimtest.Other
					host.Inject(f)
				}
				put(q, "first") // which is there
				for i := range n {
					put(q, fmt.Sprint(i))
					if i%10 == 0 {
						put(q, fmt.Sprint(i)) // by two callers of one process
						put(p, fmt.Sprint(i)) // and by another process
					}
				}
				wg.Wait()
				w.want(added.Load(), int64(n+1))
				// Ten are asked for twice, and the second goes alone.
				if sent := len(host.Sent(claimtest.Other)) - before; sent == 0 || name == "no fault" && sent > 30 {
					t.Errorf("%d requests", sent)
				}
				got := map[string]int{}
				for {
					leases := w.tryClaim(p, 64)
					if len(leases) == 0 {
						break
					}
					for _, l := range leases {
						got[l.ID()]++
						w.ok(l.Complete(w.Context()))
					}
				}
				w.want(len(got), n+2)
				for id, times := range got {
					if times != 1 {
						t.Errorf("item %q was claimed %d times", id, times)
					}
				}
			})
		})
	}
}

// Of several items with one id that are given to one call, the first one is enqueued.
func TestSameIDInOneCall(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		var items []queue.Item
		for i := range 6 {
			items = append(items, queue.NewItem(fmt.Append(nil, i), queue.ID(fmt.Sprint(i/2))))
		}
		added, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)
		w.want(added, 3)
		leases := w.tryClaim(q, 6)
		w.want(ids(leases), "0 1 2")
		for i, l := range leases {
			w.want(string(l.Payload()), fmt.Sprint(2*i))
		}
		op, err := q.Op(queue.NewItem(nil, queue.ID("child")), queue.NewItem(nil, queue.ID("child")))
		w.ok(err)
		w.ok(leases[0].Complete(w.Context(), op))
		w.want(ids(w.tryClaim(q, 6)), "child")
	})
}
