package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An item without an id of its own that was enqueued, claimed and completed before
// the enqueuer looks up its lost reply is not enqueued again.
func TestLostEnqueueOfCompletedItem(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: time.Minute})
		p := w.queue(queue.Config{TTL: time.Minute})
		w.enqueue(q, "first")
		w.ok(w.claim(p).Complete(w.Context()))
		host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true, DelayReply: sec})
		done := make(chan struct{})
		go func() {
			defer close(done)
			b, err := p.Claim(w.Context(), 1)
			if err != nil {
				t.Error(err)
				return
			}
			if err := b.Deliveries[0].Complete(w.Context()); err != nil {
				t.Error(err)
			}
		}()
		added, err := q.Enqueue(w.Context(), queue.NewItem([]byte("x")))
		w.ok(err)
		w.want(added, true)
		<-done
		w.want(len(w.tryClaim(p, 5)), 0)
	})
}

// A call whose request was lost does not take another's item of the same id for its
// own.
func TestLostEnqueueOfAnothersItem(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: time.Minute})
		p := w.queue(queue.Config{TTL: time.Minute})
		w.enqueue(q, "first")
		host.Inject(claimtest.Fault{On: claimtest.Other, LoseRequest: true, DelayRequest: sec})
		time.AfterFunc(500*time.Millisecond, func() { w.enqueue(p, "a") })
		added, err := q.Enqueue(w.Context(), queue.NewItem([]byte("x"), queue.ID("a")))
		w.ok(err)
		w.want(added, false)
		w.want(string(w.look(q, "a").Payload), "payload of a")
	})
}

// A call with a lost reply counts what it added, also when the queue is full by it.
func TestLostEnqueueOfFullQueue(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: time.Minute, MaxWaiting: 2})
		w.enqueue(q, "first")
		// The first request reads how much room there is.
		host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
		added, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("a")))
		w.ok(err)
		w.want(added, true)
		_, err = q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("b")))
		w.wantErr(err, queue.ErrFull)
	})
}

// Heartbeat to another duration and the verbs of one lease do not take each other for
// another worker.
func TestHeartbeatBesideVerbs(t *testing.T) {
	for name, v := range verbs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{TTL: 30 * sec})
				w.enqueue(q, "b")
				_, err := w.claim(q).Heartbeat(w.Context(), 2*time.Minute)
				w.ok(err)
				w.enqueue(q, "a")
				l := w.claim(q)
				host.Inject(claimtest.Fault{On: claimtest.Other, DelayReply: sec})
				var wg sync.WaitGroup
				wg.Go(func() {
					if _, err := l.Heartbeat(w.Context(), 2*time.Minute); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(100 * time.Millisecond)
				if err := v.do(w.Context(), l); err != nil {
					t.Errorf("%s beside a heartbeat: %v", name, err)
				}
				wg.Wait()
			})
		})
	}
}

// What cannot be read hides nothing, wherever it is, and however much of it.
func TestUnreadableValues(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "probe")
		w.ok(w.claim(q).Complete(w.Context()))
		admin := w.server.Admin()
		root := w.under("/spec")[0]
		root = strings.TrimSuffix(root, "spec")
		past := fmt.Sprintf("%020d", 1)
		var puts []clientv3.Op
		for i := range 1500 {
			value := []string{"not JSON", `{"v":2,"id":"x"}`, `{"v":1}`}[i%3]
			for _, key := range []string{
				fmt.Sprintf("index/ready/%016x/%s/%d", 0, past, i),
				fmt.Sprintf("index/later/%s/%016x/%d", past, 0, i),
			} {
				puts = append(puts, clientv3.OpPut(root+key, value))
			}
		}
		for some := range slices.Chunk(puts, 100) {
			_, err := admin.Txn(w.Context()).Then(some...).Commit()
			w.ok(err)
		}
		for _, key := range []string{"index/ready/x", "index/later/x", "dead/x", "dead/" + past + "/x", "place/x", "slot/x", "worker/x", "taken/x", "taken/x/x", "content/x"} {
			if _, err := admin.Put(w.Context(), root+key, "not JSON"); err != nil {
				t.Fatal(err)
			}
		}
		w.enqueue(q, "now")
		w.enqueue(q, "later", queue.Delay(sec))
		w.want(ids(w.tryClaim(q, 1)), "now")
		begin := time.Now()
		b, err := q.Claim(w.Context(), 1)
		w.ok(err)
		w.want(ids(b.Deliveries), "later")
		if d := time.Since(begin); d > 2*sec {
			t.Errorf("claimed after %v", d)
		}
		for _, err := range q.Waiting(w.Context()) {
			w.ok(err)
		}
		st, err := q.Stats(w.Context())
		w.ok(err)
		if st.Skipped < 3000 {
			t.Errorf("%d values were counted as skipped", st.Skipped)
		}
	})
}

// A duration that is used once does not keep a session for ever.
func TestIdleSessionsEnd(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		for i := range 20 {
			w.enqueue(q, fmt.Sprint(i))
			b, err := q.TryClaim(w.Context(), 1, queue.TTL(time.Duration(10+i)*sec))
			w.ok(err)
			if i > 0 {
				w.ok(b.Deliveries[0].Complete(w.Context()))
			}
		}
		time.Sleep(3 * time.Minute)
		if n := len(w.under("/worker/")); n != 1 { // of the keeper and the lease that is held
			t.Errorf("%d sessions are left", n)
		}
		w.want(w.look(q, "0").Where, queue.Taken)
		b, err := q.TryClaim(w.Context(), 1, queue.TTL(11*sec))
		w.ok(err)
		w.want(len(b.Deliveries), 0)
	})
}

// An item that a worker could not settle comes back, also if its process claims
// nothing any more.
func TestUnsettledComesBack(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		p := w.queue(queue.Config{})
		w.enqueue(q, "a")
		began := make(chan struct{})
		stop := w.works(q, queue.WorkerConfig{Concurrency: 1, Handler: func(context.Context, *queue.Delivery) error {
			close(began)
			time.Sleep(sec)
			return nil
		}})
		<-began
		// The completion is refused by etcd, as for lack of permission.
		host.Inject(claimtest.Fault{On: claimtest.Other, Err: rpctypes.ErrGRPCPermissionDenied})
		stop()
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		b, err := p.Claim(ctx, 1)
		w.ok(err)
		w.want(ids(b.Deliveries), "a")
		w.want(b.Deliveries[0].Attempt(), 1)
	})
}

// While one caller waits for a lease from etcd for the ids of completed items, others
// are bound by their own contexts alone.
func TestCompleteIsBoundByItsContext(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: time.Minute})
		w.enqueue(q, "a")
		w.enqueue(q, "b")
		a, b := w.claim(q), w.claim(q)
		host.Inject(claimtest.Fault{On: claimtest.Grant, DelayReply: 4 * sec})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := a.Complete(w.Context()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(w.Context(), sec)
		defer cancel()
		begin := time.Now()
		w.wantErr(b.Complete(ctx), context.DeadlineExceeded)
		w.want(time.Since(begin), sec)
		wg.Wait()
		w.ok(b.Complete(w.Context()))
	})
}

// A lost reply of an operation on waiting items is resolved.
func TestManageUnderFaults(t *testing.T) {
	ops := map[string]func(ctx context.Context, q *queue.Queue) error{
		"cancel":   func(ctx context.Context, q *queue.Queue) error { return q.Cancel(ctx, "a") },
		"priority": func(ctx context.Context, q *queue.Queue) error { return q.SetPriority(ctx, "a", 1) },
		"redrive":  func(ctx context.Context, q *queue.Queue) error { return q.Redrive(ctx, "dead") },
		"pause":    func(ctx context.Context, q *queue.Queue) error { return q.Pause(ctx, "why") },
	}
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{TTL: time.Minute})
				w.enqueue(q, "dead")
				w.ok(w.claim(q).Discard(w.Context(), "x"))
				w.enqueue(q, "a")
				host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
				w.ok(op(w.Context(), q))
			})
		})
	}
}

// A watch that says nothing delays a claim by a third of the TTL at most.
func TestWatchDeaf(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		p := w.queue(queue.Config{})
		host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, DelayReply: time.Hour})
		w.enqueue(p, "first")
		w.ok(w.claim(q).Complete(w.Context()))
		time.AfterFunc(30*sec+77*time.Millisecond, func() { w.enqueue(p, "a") })
		b, err := q.Claim(w.Context(), 1)
		w.ok(err)
		if d := time.Since(b.Deliveries[0].Enqueued()); d > ttl/3+sec {
			t.Errorf("the item was picked up after %v", d)
		}
	})
}

// Ten thousand callers wait, get one item each, and leave.
func TestThousandsWait(t *testing.T) {
	callers, items := 10_000, 1_000
	if racing {
		callers, items = 2_000, 200
	}
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{TTL: time.Minute})
		ctx, cancel := context.WithCancel(w.Context())
		var mu sync.Mutex
		got := map[string]bool{}
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				b, err := q.Claim(ctx, 1)
				if err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				got[b.Deliveries[0].ID()] = true
			})
		}
		time.Sleep(sec)
		var some []queue.Item
		for range items {
			some = append(some, queue.NewItem(nil))
		}
		_, err := q.EnqueueAll(w.Context(), some)
		w.ok(err)
		time.Sleep(sec) // far below a third of the TTL
		mu.Lock()
		w.want(len(got), items)
		mu.Unlock()
		cancel()
		wg.Wait()
	})
}

// Without Adopt in another process: the holder of a handle may be the process that has
// the item.
func TestAdoptAtHome(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		l := w.claim(q)
		again, err := q.Adopt(w.Context(), l.Handle())
		w.ok(err)
		_, err = again.Heartbeat(w.Context(), 0)
		w.ok(err)
		w.ok(again.Check())
		w.wantErr(l.Complete(w.Context()), queue.ErrSuperseded)
		w.ok(again.Complete(w.Context()))
	})
}

// Enqueue, Claim and Complete end when the queue is closed under them.
func TestCloseBesideAll(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := 0; ; n++ {
					if _, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID(fmt.Sprint(i, "/", n)))); err != nil {
						return
					}
					b, err := q.Claim(w.Context(), 1, queue.TTL(time.Duration(10+n%5)*sec))
					if err != nil {
						return
					}
					for _, l := range b.Deliveries {
						_ = l.Complete(w.Context())
					}
					time.Sleep(time.Duration(i+1) * time.Millisecond)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		_ = q.Close(w.Context())
		wg.Wait()
		_, err := q.TryClaim(w.Context(), 1)
		w.wantErr(err, etcdclaims.ErrClosed)
		w.want(len(w.under("/taken/")), 0)
	})
}

// Of the claiming requests of 64 workers in 8 processes nearly all get something.
func TestClaimersRarelyClash(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		var sent, won, done atomic.Int64
		var stops []func()
		p := w.queue(queue.Config{TTL: time.Minute})
		for range 8 {
			q, host := w.process(queue.Config{TTL: time.Minute})
			host.Inject(claimtest.Fault{
				On: claimtest.Other, Times: -1, DelayRequest: time.Millisecond, DelayReply: time.Millisecond,
				Saw: func(req any) {
					if r, ok := req.(*etcdserverpb.TxnRequest); ok && claims(r) {
						sent.Add(1)
					}
				},
				Edit: func(reply any) {
					if r, ok := reply.(*etcdserverpb.TxnResponse); ok && claimed(r) {
						won.Add(1)
					}
				},
			})
			stops = append(stops, w.works(q, queue.WorkerConfig{Concurrency: 8, Handler: func(context.Context, *queue.Delivery) error {
				time.Sleep(time.Duration(10+rand.N(20)) * time.Millisecond)
				done.Add(1)
				return nil
			}}))
		}
		// Of many some 92 % win. How many exactly depends on the order in which the goroutines
		// of one virtual instant run.
		items, percent := int64(400), int64(70) // half of them before the claimers have adapted to each other
		if testetcd.Long() {
			items, percent = 2000, 85
		}
		var some []queue.Item
		for range items {
			some = append(some, queue.NewItem(nil))
		}
		begin := time.Now()
		_, err := p.EnqueueAll(w.Context(), some)
		w.ok(err)
		for done.Load() < items {
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("%d claiming requests, %d won; %d items in %v", sent.Load(), won.Load(), items, time.Since(begin))
		if won.Load()*100 < sent.Load()*percent {
			t.Errorf("of %d claiming requests %d got something", sent.Load(), won.Load())
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// claims reports whether a request takes items: it deletes below index/ and puts below
// taken/ in one nested transaction.
func claims(r *etcdserverpb.TxnRequest) bool {
	del, put := false, false
	for _, op := range r.Success {
		if in := op.GetRequestTxn(); in != nil && claims(in) {
			return true
		}
		del = del || strings.Contains(string(op.GetRequestDeleteRange().GetKey()), "/index/")
		put = put || strings.Contains(string(op.GetRequestPut().GetKey()), "/taken/")
	}
	return del && put
}

// claimed reports whether a request took an item: it was read, deleted and put.
func claimed(r *etcdserverpb.TxnResponse) bool {
	for _, op := range r.Responses {
		if in := op.GetResponseTxn(); in != nil && claimed(in) {
			return true
		}
	}
	n := r.Responses
	return r.Succeeded && len(n) >= 3 && n[0].GetResponseRange() != nil && n[1].GetResponseDeleteRange() != nil && n[2].GetResponsePut() != nil
}

// Claimers that wait for a slot beside a backlog do not read it again and again.
func TestBacklogBehindLimit(t *testing.T) {
	const items, limit, each = 150, 82, 40
	virtually(t, func(w *world) {
		var requests atomic.Int64
		var queues []*queue.Queue
		for range 2 {
			q, host := w.process(queue.Config{TTL: time.Minute, MaxTaken: limit})
			host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 10 * time.Millisecond, Saw: func(any) { requests.Add(1) }})
			queues = append(queues, q)
		}
		var some []queue.Item
		for range items {
			some = append(some, queue.NewItem(nil))
		}
		_, err := queues[0].EnqueueAll(w.Context(), some)
		w.ok(err)
		var wg sync.WaitGroup
		for _, q := range queues {
			w.want(len(w.tryClaim(q, 1)), 1) // so that they have sessions
		}
		for _, q := range queues { // both pick the first ones: one of them has to pick from more
			wg.Go(func() {
				if _, err := q.Claim(w.Context(), each); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		for _, q := range queues {
			wg.Go(func() { _, _ = q.Claim(ctx, 1) })
		}
		time.Sleep(25 * sec) // past a read
		before := requests.Load()
		if before == 0 {
			t.Error("requests are not counted")
		}
		time.Sleep(5 * sec)
		if n := requests.Load() - before; n > 20 {
			t.Errorf("%d requests in 5 s, while nothing happens", n)
		}
		cancel()
		wg.Wait()
	})
}
