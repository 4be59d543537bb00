package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Raising the epoch ends all leases. Their items come back with greater fences, and
// what their workers do is refused.
func TestEpochRaised(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		w.enqueue(q, "a")
		w.enqueue(q, "b")
		held := w.tryClaim(q, 2)
		w.want(len(held), 2)
		fences := map[string]int64{}
		for _, l := range held {
			fences[l.ID()] = l.Fence()
			w.want(w.look(q, l.ID()).Fence, l.Fence())
		}
		w.server.RaiseEpoch(w.T, "")
		if err := held[0].Complete(w.Context()); !errors.Is(err, etcdclaims.ErrLost) {
			t.Errorf("complete under an old epoch: %v", err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		for range 2 {
			b, err := p.Claim(ctx, 1)
			w.ok(err)
			for _, l := range b.Deliveries {
				w.want(l.Attempt(), 2)
				w.want(l.Fence()>>47, int64(1))
				w.want(l.History()[0].Fence, fences[l.ID()]) // of the epoch in which it was lost
				w.ok(l.Complete(w.Context()))
			}
		}
		for _, l := range held {
			w.wantErr(l.Check(), etcdclaims.ErrLost)
		}
		st, err := p.Stats(w.Context())
		w.ok(err)
		w.want(st.Ready+st.Later+st.Taken+st.Dead, 0)
	})
}

// Beyond its quota etcd refuses all that puts a key. An enqueue fails with an error that
// says so, completions go on, and nothing is lost when there is space again.
func TestNoSpace(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{TTL: time.Minute})
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(q, id)
		}
		_, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.Priority(200)))
		w.ok(err)
		w.enqueue(q, "first")
		held := w.tryClaim(q, 3)
		w.ok(held[0].Complete(w.Context())) // there is a lease for tombstones now
		held = held[1:]
		w.server.FillQuota(w.T)
		_, err = q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("d")))
		w.wantErr(err, rpctypes.ErrNoSpace)
		if err == nil || !strings.Contains(err.Error(), `enqueue: queue "q"`) || !strings.Contains(err.Error(), "database space exceeded") {
			t.Errorf("enqueue without space: %v", err)
		}
		w.ok(held[0].Complete(w.Context())) // its id is not remembered then
		_, err = q.TryClaim(w.Context(), 1)
		w.wantErr(err, rpctypes.ErrNoSpace)
		w.wantErr(held[1].Release(w.Context()), rpctypes.ErrNoSpace)
		w.ok(held[1].Check())
		w.server.FreeQuota(w.T)
		w.ok(held[1].Release(w.Context()))
		w.want(len(w.tryClaim(q, 10)), 3)
	})
}

// A missing permission is an error at once, and nothing waits for it to be granted.
func TestPermissionDenied(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: time.Minute})
		w.enqueue(q, "a")
		l := w.claim(q)
		w.enqueue(q, "b")
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		calls := map[string]func() error{
			"enqueue":  func() error { _, err := q.Enqueue(ctx, queue.NewItem(nil)); return err },
			"tryclaim": func() error { _, err := q.TryClaim(ctx, 1); return err },
			"claim":    func() error { _, err := q.Claim(ctx, 1); return err },
			"complete": func() error { return l.Complete(ctx) },
			"fail":     func() error { _, err := l.Fail(ctx, errors.New("x")); return err },
			"cancel":   func() error { return q.Cancel(ctx, "b") },
			"pause":    func() error { return q.Pause(ctx, "x") },
			"work": func() error {
				return q.Work(ctx, queue.WorkerConfig{Handler: func(context.Context, *queue.Delivery) error { return nil }})
			},
		}
		host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
		for name, call := range calls {
			begin := time.Now()
			if err := call(); !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("%s: %v", name, err)
			}
			if d := time.Since(begin); d > sec {
				t.Errorf("%s: after %v", name, d)
			}
		}
		host.RemoveFaults()
		w.ok(l.Check())
		w.ok(l.Complete(w.Context()))
		w.want(ids(w.tryClaim(q, 5)), "b")
	})
}

// Closing the client under a queue ends all that waits.
func TestClientClosed(t *testing.T) {
	virtually(t, func(w *world) {
		claims := claimtest.NewClient(w.T, w.server.Host(w.T), etcdclaims.Config{TTL: ttl})
		q, err := queue.New(claims, queue.Config{Name: "q", TTL: ttl})
		w.ok(err)
		w.enqueue(q, "a")
		l := w.claim(q)
		waits := make(chan error, 2)
		go func() { _, err := q.Claim(context.Background(), 1); waits <- err }()
		go func() {
			waits <- q.Work(context.Background(), queue.WorkerConfig{Handler: func(context.Context, *queue.Delivery) error { return nil }})
		}()
		time.Sleep(sec)
		w.ok(claims.Close(w.Context()))
		for range 2 {
			w.wantErr(<-waits, etcdclaims.ErrClosed)
		}
		if l.Check() == nil {
			t.Error("the lease is held")
		}
		_, err = q.Enqueue(w.Context(), queue.NewItem(nil))
		w.wantErr(err, etcdclaims.ErrClosed)
		w.ok(q.Close(w.Context()))
		p := w.queue(queue.Config{})
		b, err := p.Claim(w.Context(), 1)
		w.ok(err)
		w.want(ids(b.Deliveries), "a")
	})
}

// The concurrency limit holds at every revision while workers die, and all of it is
// there again when their items are.
func TestMaxTakenAcrossCrashes(t *testing.T) {
	const limit = 4
	virtually(t, func(w *world) {
		cfg := queue.Config{MaxTaken: limit}
		q := w.queue(cfg)
		for i := range 40 {
			w.enqueue(q, fmt.Sprint(i), queue.MaxAttempts(100))
		}
		begin, err := w.server.Admin().Get(w.Context(), "x")
		w.ok(err)
		rounds := 5
		if testing.Short() {
			rounds = 2
		}
		for range rounds {
			var hosts []*claimtest.Host
			for range 3 {
				victim, host := w.process(cfg)
				w.tryClaim(victim, 2)
				hosts = append(hosts, host)
			}
			for _, host := range hosts {
				host.Kill()
			}
			st, err := q.Stats(w.Context())
			w.ok(err)
			w.want(st.Taken, limit)
			w.want(len(w.tryClaim(q, 10)), 0)
			time.Sleep(ttl + 2*sec)
			held := w.tryClaim(q, 10)
			w.want(len(held), limit)
			for _, l := range held {
				w.ok(l.Complete(w.Context()))
			}
		}
		w.want(len(w.under("/slot/")), 0)
		ctx, cancel := context.WithTimeout(w.Context(), sec)
		defer cancel()
		taken, rev := map[string]bool{}, int64(0)
		for resp := range w.server.Admin().Watch(ctx, "/etcdclaims/queue/", clientv3.WithPrefix(), clientv3.WithRev(begin.Header.Revision+1)) {
			for _, ev := range resp.Events {
				if ev.Kv.ModRevision != rev && len(taken) > limit {
					t.Errorf("%d items were taken at revision %d", len(taken), rev)
				}
				rev = ev.Kv.ModRevision
				if key := string(ev.Kv.Key); strings.Contains(key, "/taken/") {
					if taken[key] = true; ev.Type == clientv3.EventTypeDelete {
						delete(taken, key)
					}
				}
			}
		}
	})
}

// Enqueue into a queue with MaxWaiting has no condition on a range of keys: etcd would read
// all items that wait, before any other request.
func TestMaxWaitingComparesNoRange(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{MaxWaiting: 10})
		w.enqueue(q, "first") // it makes the queue, once
		sent := 0
		host.Inject(claimtest.Fault{Times: -1, Saw: func(req any) {
			if in, ok := req.(*etcdserverpb.TxnRequest); ok {
				sent++
				noRanges(t, in)
			}
		}})
		for i := range 3 {
			w.enqueue(q, fmt.Sprint(i))
		}
		if sent < 3 {
			t.Errorf("%d transactions were seen", sent)
		}
	})
}

// noRanges fails if a transaction, or one in it, has a condition on a range of the queue's keys.
func noRanges(t *testing.T, in *etcdserverpb.TxnRequest) {
	t.Helper()
	for _, c := range in.Compare {
		if len(c.RangeEnd) > 0 && strings.Contains(string(c.Key), "/queue/") {
			t.Errorf("a condition on the range from %q to %q", c.Key, c.RangeEnd)
		}
	}
	for _, op := range slices.Concat(in.Success, in.Failure) {
		if inner := op.GetRequestTxn(); inner != nil {
			noRanges(t, inner)
		}
	}
}
