package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// claimed returns a batch of n items, every other one with an id that is remembered, when the process has
// a lease for completed ids.
func (w *world) claimed(q *queue.Queue, n int) queue.Batch {
	w.Helper()
	w.enqueue(q, "grant")
	w.ok(w.claim(q).Complete(w.Context()))
	var items []queue.Item
	for i := range n {
		var opts []queue.ItemOption
		if i%2 == 0 {
			opts = append(opts, queue.ID(fmt.Sprint("given-", i)))
		}
		items = append(items, queue.NewItem(nil, opts...))
	}
	_, err := q.EnqueueAll(w.Context(), items)
	w.ok(err)
	b, err := q.TryClaim(w.Context(), n)
	w.ok(err)
	w.want(len(b.Deliveries), n)
	return b
}

// errsOf returns the error of each delivery of a batch.
func errsOf(b queue.Batch, err error) []error {
	var failed *queue.CompleteAllError
	if errors.As(err, &failed) {
		return failed.Errs
	}
	return slices.Repeat([]error{err}, len(b.Deliveries))
}

// completed counts the deliveries whose items are gone, and checks that each that was told nil is one of them, and
// none that was told of a loss.
func (w *world) completed(q *queue.Queue, b queue.Batch, errs []error) (done int) {
	w.Helper()
	for i, l := range b.Deliveries {
		info, err := q.Look(w.Context(), l.ID())
		gone := errors.Is(err, queue.ErrNotFound) || err == nil && info.Where == queue.Completed
		if err != nil && !gone {
			w.Fatal(err)
		}
		if gone {
			done++
		}
		if told := errs[i]; gone != (told == nil) && !errors.Is(told, etcdclaims.ErrUnknown) {
			w.Errorf("item %s is completed: %v, but the call returned %v", l.ID(), gone, told)
		}
	}
	return done
}

// A batch is completed by one request, and leaves what Complete leaves.
func TestCompleteAll(t *testing.T) {
	for _, n := range []int{0, 1, 2, 32, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{MaxTaken: 64})
				b := queue.Batch{}
				if n > 0 {
					b = w.claimed(q, n)
				}
				before := len(host.Sent(claimtest.Other))
				w.ok(b.CompleteAll(w.Context()))
				w.want(len(host.Sent(claimtest.Other))-before, min(n, 1))
				w.want(w.completed(q, b, make([]error, n)), n)
				w.want(len(w.under("/taken/"))+len(w.under("/slot/"))+len(w.under("/place/")), 0)
				w.want(len(w.under("/content/")), (n+1)/2+min(n, 1)) // ids that are remembered
				for _, l := range b.Deliveries {
					w.wantErr(l.Err(), etcdclaims.ErrReleased)
				}
			})
		})
	}
}

// Where etcd allows few operations in a transaction, a batch takes more of them.
func TestCompleteAllByFewOperations(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{Name: "p"})
		b := queue.Batch{Deliveries: append(w.claimed(q, 9).Deliveries, w.claimed(p, 9).Deliveries...)} // of two queues
		w.ok(b.CompleteAll(w.Context()))
		w.want(len(w.under("/taken/")), 0)
	}, testclaims.MaxTxnOps(16))
}

// What becomes of a lost request or reply is found out for each delivery.
func TestCompleteAllUnderFaults(t *testing.T) {
	for fault, f := range map[string]claimtest.Fault{
		"reply lost":         {LoseReply: true},
		"reply lost twice":   {LoseReply: true, Times: 2},
		"request lost":       {LoseRequest: true},
		"reply lost at once": {LoseReply: true, Err: context.DeadlineExceeded},
		"reply late":         {DelayReply: 2 * sec},
		"proposal dropped":   dropped,
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{TTL: 30 * sec})
				b := w.claimed(q, 10)
				f.On = claimtest.Other
				injected := host.Inject(f)
				w.ok(b.CompleteAll(w.Context()))
				if injected.Hits() == 0 {
					t.Error("the fault did not happen")
				}
				w.want(w.completed(q, b, make([]error, 10)), 10)
				for _, err := range errsOf(b, b.CompleteAll(w.Context())) {
					w.wantErr(err, etcdclaims.ErrReleased)
				}
			})
		})
	}
}

// A caller who goes before the reply comes does not know what it says, and asks again.
func TestCompleteAllCalledAgain(t *testing.T) {
	for fault, f := range map[string]claimtest.Fault{
		"reply late": {DelayReply: 3 * sec}, "reply lost": {LoseReply: true}, "request lost": {LoseRequest: true},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{TTL: 30 * sec})
				b := w.claimed(q, 10)
				gone, leave := context.WithCancel(w.Context())
				leave()
				for i, err := range errsOf(b, b.CompleteAll(gone)) {
					w.wantErr(err, context.Canceled)
					w.want(errors.Is(err, etcdclaims.ErrUnknown), false) // nothing was sent
					w.ok(b.Deliveries[i].Check())
				}
				f.On = claimtest.Other
				host.Inject(f)
				ctx, cancel := context.WithTimeout(w.Context(), sec)
				defer cancel()
				for i, err := range errsOf(b, b.CompleteAll(ctx)) {
					w.wantErr(err, etcdclaims.ErrUnknown)
					w.wantErr(b.Deliveries[i].Check(), etcdclaims.ErrReleased)
				}
				w.ok(b.CompleteAll(w.Context()))
				w.want(w.completed(q, b, make([]error, 10)), 10)
			})
		})
	}
}

// A request that arrives when the process is dead and others have the items is refused.
func TestLateCompleteAll(t *testing.T) {
	virtually(t, func(w *world) {
		victim, host := w.process(queue.Config{})
		b := w.claimed(victim, 5)
		q := w.queue(queue.Config{})
		w.want(len(w.tryClaim(q, 1)), 0) // keeps house from now on
		held, ended := make(chan struct{}), make(chan struct{})
		host.Inject(claimtest.Fault{On: claimtest.Other, Hold: held, Ended: func(any, error) { close(ended) }})
		told := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), sec)
			defer cancel()
			told <- b.CompleteAll(ctx)
		}()
		time.Sleep(sec / 10)
		host.Cut()
		for _, err := range errsOf(b, <-told) {
			w.wantErr(err, etcdclaims.ErrUnknown)
		}
		var mine queue.Batch
		for len(mine.Deliveries) < 5 {
			some, err := q.Claim(w.Context(), 5)
			w.ok(err)
			mine.Deliveries = append(mine.Deliveries, some.Deliveries...)
		}
		host.Heal()
		close(held)
		<-ended
		for _, err := range errsOf(b, b.CompleteAll(w.Context())) {
			w.wantErr(err, etcdclaims.ErrLost)
		}
		w.want(len(w.under("/taken/")), 5)
		w.ok(mine.CompleteAll(w.Context()))
	})
}

// What is wrong with one delivery is that one's error. The others are completed.
func TestCompleteAllOfUnequal(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{TTL: 30 * sec})
		p := w.queue(queue.Config{TTL: 30 * sec})
		b := w.claimed(q, 8)
		all := b.Deliveries
		w.deleteKeys("/taken/" + strings.Split(all[0].Handle(), ":")[1] + "/" + all[0].ID())
		w.ok(all[1].Release(w.Context()))
		theirs, err := p.Adopt(w.Context(), all[2].Handle())
		w.ok(err)
		w.ok(theirs.Complete(w.Context()))
		_, err = all[3].Heartbeat(w.Context(), time.Minute)
		w.ok(err) // its session is another, and its fence is greater
		adopted, err := q.Adopt(w.Context(), all[4].Handle())
		w.ok(err)
		b.Deliveries = append(b.Deliveries, all[5], adopted) // both are there twice
		err = b.CompleteAll(w.Context())
		errs := errsOf(b, err)
		w.wantErr(errs[0], queue.ErrSuperseded)
		w.wantErr(errs[1], etcdclaims.ErrReleased)
		w.wantErr(errs[2], queue.ErrCompleted)
		for _, i := range []int{3, 6, 7} {
			w.ok(errs[i])
		}
		w.want((errs[5] == nil) != (errs[8] == nil), true)
		w.want((errs[4] == nil) != (errs[9] == nil), true)
		w.wantErr(err, queue.ErrCompleted) // and each other one
		w.wantErr(err, etcdclaims.ErrReleased)
		w.want(strings.HasSuffix(err.Error(), " (and 4 more of 10 items)") && !strings.Contains(err.Error(), "\n"), true)
		w.want(len(w.under("/taken/")), 0)
	})
}

// Nobody waits for a delivery of which another call is under way.
func TestCompleteAllBesideVerb(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: 30 * sec})
		b := w.claimed(q, 5)
		host.Inject(claimtest.Fault{On: claimtest.Other, DelayReply: 3 * sec})
		released := make(chan error)
		go func() { released <- b.Deliveries[2].Release(w.Context()) }()
		synctest.Wait()
		told := make(chan error)
		go func() { told <- b.CompleteAll(w.Context()) }()
		time.Sleep(sec)
		w.want(len(w.under("/taken/")), 0)
		errs := errsOf(b, <-told)
		w.ok(<-released)
		for i, err := range errs {
			if i == 2 {
				w.wantErr(err, etcdclaims.ErrReleased)
			} else {
				w.ok(err)
			}
		}
	})
}

// Of several calls for one batch one completes each delivery.
func TestCompleteAllBesideItself(t *testing.T) {
	for name, lose := range map[string]bool{"": false, "reply lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{TTL: 30 * sec})
				b := w.claimed(q, 10)
				host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: lose, DelayReply: sec})
				calls := make([][]error, 4)
				var wg sync.WaitGroup
				for i := range calls {
					mine := queue.Batch{Deliveries: slices.Clone(b.Deliveries)}
					if i%2 == 0 {
						slices.Reverse(mine.Deliveries)
					}
					wg.Go(func() {
						calls[i] = errsOf(mine, mine.CompleteAll(w.Context()))
						if i%2 == 0 {
							slices.Reverse(calls[i])
						}
					})
				}
				wg.Wait()
				for i := range b.Deliveries {
					done := 0
					for _, errs := range calls {
						if errs[i] == nil {
							done++
						} else {
							w.wantErr(errs[i], etcdclaims.ErrReleased)
						}
					}
					w.want(done, 1)
				}
			})
		})
	}
}

// When the queue is closed, or the session is lost, each delivery was completed or is left to others.
func TestCompleteAllWhileSessionEnds(t *testing.T) {
	for name, end := range map[string]func(w *world, q *queue.Queue){
		"closed": func(w *world, q *queue.Queue) { w.ok(q.Close(w.Context())) },
		"lost": func(w *world, _ *queue.Queue) {
			resp, err := w.server.Admin().Get(w.Context(), "/etcdclaims/own/queue/", clientv3.WithPrefix())
			w.ok(err)
			for _, kv := range resp.Kvs {
				if strings.Contains(string(kv.Key), "/session/") {
					_, err := w.server.Admin().Revoke(w.Context(), clientv3.LeaseID(kv.Lease))
					w.ok(err)
				}
			}
		},
	} {
		for when, f := range map[string]claimtest.Fault{
			"before": {}, "request under way": {DelayRequest: 100 * time.Millisecond}, "reply under way": {DelayReply: 100 * time.Millisecond},
		} {
			t.Run(name+"/"+when, func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					q, host := w.process(queue.Config{})
					p := w.queue(queue.Config{})
					b := w.claimed(q, 10)
					told := make(chan error, 1)
					if when == "before" {
						end(w, q)
						told <- b.CompleteAll(w.Context())
					} else {
						f.On = claimtest.Other
						host.Inject(f)
						go func() { told <- b.CompleteAll(context.Background()) }()
						time.Sleep(50 * time.Millisecond)
						end(w, q)
					}
					errs := errsOf(b, <-told)
					for _, err := range errs {
						if err != nil && !errors.Is(err, queue.ErrExpired) {
							t.Errorf("got %v", err)
						}
					}
					done := w.completed(p, b, errs)
					w.want(done == 10, when == "reply under way" || name == "closed" && when != "before")
				})
			})
		}
	}
}

// A caller's metadata goes with its own requests alone.
func TestCompleteAllWithMetadata(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		b := w.claimed(q, 5)
		w.ok(b.CompleteAll(metadata.AppendToOutgoingContext(w.Context(), "x-request-id", "7")))
		w.want(w.completed(q, b, make([]error, 5)), 5)
	})
}

// When etcd has no space for the ids of completed items, these are forgotten.
func TestCompleteAllWithoutSpace(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{TTL: time.Minute, SpaceReserve: -1})
		b := w.claimed(q, 6)
		w.server.FillQuota(t)
		w.ok(b.CompleteAll(w.Context()))
		w.want(w.completed(q, b, make([]error, 6)), 6)
		w.want(len(w.under("/content/given-")), 0)
	})
}

// The items of a worker whose handlers return at the same time are completed by few requests.
func TestHandlersReturnTogether(t *testing.T) {
	virtually(t, func(w *world) {
		const n = 32
		q, host := w.process(queue.Config{})
		for _, l := range w.claimed(q, n).Deliveries {
			w.ok(l.Release(w.Context()))
		}
		begun, gate := make(chan struct{}, n), make(chan struct{})
		stop := w.works(q, queue.WorkerConfig{Concurrency: n, Handler: func(context.Context, *queue.Delivery) error {
			begun <- struct{}{}
			<-gate
			return nil
		}})
		for range n {
			<-begun
		}
		host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, DelayRequest: 10 * time.Millisecond})
		before := len(host.Sent(claimtest.Other))
		close(gate)
		stop()
		if sent := len(host.Sent(claimtest.Other)) - before; sent == 0 || sent > 6 {
			t.Errorf("%d requests for %d items", sent, n)
		}
		w.want(len(w.under("/taken/")), 0)
	})
}
