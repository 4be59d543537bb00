package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// burst is how hundreds of calls are made, each with a context of its own.
type burst struct {
	enqueue bool
	id      string // of all items that are enqueued; empty: each has its own
	traced  bool   // each call has metadata of its own
}

var bursts = map[string]burst{
	"enqueues":               {enqueue: true},
	"enqueues of one id":     {enqueue: true, id: "refresh"},
	"enqueues with metadata": {enqueue: true, traced: true},
	"verbs":                  {},
	"verbs with metadata":    {traced: true},
}

// run makes n calls, each after another pause, and returns their errors, and their leases if
// they are verbs.
func (b burst) run(w *world, q *queue.Queue, n int, pause time.Duration) (leases []*queue.Delivery, wait func() []error) {
	w.Helper()
	if !b.enqueue {
		var items []queue.Item
		for i := range n {
			items = append(items, queue.NewItem(nil, queue.ID(fmt.Sprint(i))))
		}
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)
		for len(leases) < n {
			leases = append(leases, w.tryClaim(q, n)...)
		}
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			time.Sleep(time.Duration(i) * pause)
			ctx := context.Background()
			if b.traced {
				ctx = metadata.AppendToOutgoingContext(ctx, "x-request-id", fmt.Sprint(i))
			}
			id := b.id
			if id == "" {
				id = fmt.Sprint("e", i)
			}
			if b.enqueue {
				_, errs[i] = q.Enqueue(ctx, queue.NewItem(nil, queue.ID(id)))
			} else {
				errs[i] = leases[i].Complete(ctx, clientv3.OpPut("/effect/"+leases[i].ID(), ""))
			}
		})
	}
	return leases, func() []error {
		close(start)
		all.Wait()
		return errs
	}
}

const hop = 10 * time.Millisecond // half a round trip

func slowly(host *claimtest.Host) {
	host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, DelayRequest: hop, DelayReply: hop})
}

// Calls that cannot share a round trip do not wait for each other: enqueues of one id, and
// calls with metadata, which must not be sent with that of others.
func TestCallsThatCannotShare(t *testing.T) {
	for name, b := range bursts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{})
				w.enqueue(q, "warm")
				n := testetcd.Fewer(600, 150)
				_, wait := b.run(w, q, n, 0)
				slowly(host)
				begun := time.Now()
				for _, err := range wait() {
					w.ok(err)
				}
				if took := time.Since(begun); took > 20*hop {
					t.Errorf("%d calls took %v", n, took)
				}
			})
		})
	}
}

// Calls that are under way when the queue is closed have a known outcome. Those that were not
// sent any more say that the queue is closed, or that the lease was given back.
func TestCallsMeetClose(t *testing.T) {
	for name, b := range bursts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{})
				w.enqueue(q, "warm")
				leases, wait := b.run(w, q, 300, time.Millisecond)
				slowly(host)
				closed := make(chan error)
				go func() {
					time.Sleep(200 * time.Millisecond)
					closed <- q.Close(context.Background())
				}()
				errs := wait()
				w.ok(<-closed)
				done := 0
				for i, err := range errs {
					effect := false
					if leases != nil {
						resp, err := w.server.Admin().Get(w.Context(), "/effect/"+leases[i].ID())
						w.ok(err)
						effect = len(resp.Kvs) > 0
					}
					switch {
					case err == nil:
						if done++; leases != nil && !effect {
							t.Error("a verb that was not carried out returns nil")
						}
					case errors.Is(err, etcdclaims.ErrUnknown), errors.Is(err, etcdclaims.ErrReleased), effect,
						!errors.Is(err, etcdclaims.ErrClosed) && !errors.Is(err, queue.ErrExpired):
						t.Errorf("call %d: %v (carried out: %v)", i, err, effect)
					}
				}
				if done < 100 || done == len(errs) {
					t.Errorf("%d of %d calls succeeded", done, len(errs))
				}
			})
		})
	}
}

// An enqueue that was carried out, and answered with "no space", is not repeated, although
// its item is completed before the queue looks.
func TestNoSpaceAfterEnqueue(t *testing.T) {
	for _, n := range []int{1, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{})
				p := w.queue(queue.Config{})
				w.enqueue(q, "warm")
				w.ok(w.claim(p).Complete(w.Context()))
				host.Inject(claimtest.Fault{On: claimtest.Other, Skip: min(n-1, 2), Times: 1, LoseReply: true, DelayReply: 500 * time.Millisecond, Err: rpctypes.ErrGRPCNoSpace})
				host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, DelayRequest: time.Millisecond})
				added, errs := make([]bool, n), make([]error, n)
				var all sync.WaitGroup
				for i := range n {
					all.Go(func() {
						time.Sleep(time.Duration(i) * 100 * time.Microsecond)
						added[i], errs[i] = q.Enqueue(context.Background(), queue.NewItem([]byte(fmt.Sprint(i))))
					})
				}
				ran := map[string]int{}
				for end := time.Now().Add(2 * sec); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
					for _, l := range w.tryClaim(p, 10) {
						ran[string(l.Payload())]++
						w.ok(l.Complete(w.Context()))
					}
				}
				all.Wait()
				for i := range n {
					switch times := ran[fmt.Sprint(i)]; {
					case times > 1, times == 0 && added[i], times == 1 && errs[i] != nil && !errors.Is(errs[i], etcdclaims.ErrUnknown):
						t.Errorf("item %d ran %d times, added %v: %v", i, times, added[i], errs[i])
					}
				}
			})
		})
	}
}
