package queue_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// An item that vests while no process claims is not passed by a later one of its key.
func TestVestedTurnIsNotPassed(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a1", queue.PartitionKey("a"), queue.Delay(sec))
		time.Sleep(10 * time.Minute)
		w.enqueue(q, "a2", queue.PartitionKey("a"))
		time.Sleep(sec)
		w.want(w.claimWaiting(q).ID(), "a1")
	})
}

// A claim that finds nothing does not look at all tenants while a keeper does, and the keeper does so seldom.
func TestRequestsForManyTenants(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: time.Minute})
		tr := trafficOf(host)
		const tenants, each = 40, 300
		var items []queue.Item
		for i := range tenants * each {
			items = append(items, queue.NewItem(nil, queue.PartitionKey(fmt.Sprint(i%tenants))))
		}
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)
		time.Sleep(sec)
		w.want(len(w.tryClaim(q, 60)), tenants)
		time.Sleep(sec)
		tr.reset()
		w.want(len(w.tryClaim(q, 1)), 0)
		if n, by := tr.reset(); n > 6 {
			t.Errorf("%d requests of a claim that gets nothing: %s", n, by)
		}
	})
}

// Two keys of one item, as a restore can leave them, do not keep its key and others from being claimed.
func TestSecondKeyOfATurn(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{KeyLimit: 2})
		w.tenant(q, "a1", "a2", "a3")
		time.Sleep(sec)
		got := w.tryClaim(q, 2)
		w.ok(q.SetPriority(w.Context(), "a3", 7))
		key := w.under("index/behind/")[0]
		resp, err := w.server.Admin().Get(context.Background(), key)
		w.ok(err)
		_, err = w.server.Admin().Put(context.Background(), key+"x", string(resp.Kvs[0].Value))
		w.ok(err)
		for _, l := range got {
			w.ok(l.Complete(w.Context()))
		}
		time.Sleep(time.Minute)
		w.want(ids(w.tryClaim(q, 1)), "a3")
		w.tenant(q, "b1")
		w.want(ids(w.tryClaim(q, 1)), "b1")
	})
}

// Items that cannot be read hide no others of their key, however many they are.
func TestUnreadableBeforeATurn(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{KeyLimit: 2})
		for i := range 40 {
			w.tenant(q, fmt.Sprintf("a%02d", i))
		}
		time.Sleep(sec)
		got := w.tryClaim(q, 2)
		for _, key := range w.under("index/behind/")[:36] {
			_, err := w.server.Admin().Put(context.Background(), key, "?")
			w.ok(err)
		}
		for _, l := range got {
			w.ok(l.Complete(w.Context()))
		}
		w.want(ids(w.tryClaim(q, 2)), "a38 a39")
	})
}

// A claim does not wait until other callers of its process enqueue no more items of partition keys.
func TestClaimBesideKeyedTraffic(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: time.Minute})
		host.SetLatency(time.Millisecond, time.Millisecond, time.Millisecond)
		w.enqueue(q, "x")
		var n atomic.Int64
		ctx, cancel := context.WithCancel(w.Context())
		for i := range 40 {
			go func() {
				time.Sleep(time.Duration(i) * 370 * time.Microsecond)
				for ctx.Err() == nil {
					key := queue.PartitionKey(fmt.Sprint(n.Add(1) % 500))
					_, _ = q.EnqueueAll(ctx, []queue.Item{queue.NewItem(nil, key), queue.NewItem(nil)})
					time.Sleep(time.Duration(n.Load()%23) * time.Millisecond)
				}
			}()
		}
		time.Sleep(100 * time.Millisecond)
		short, stop := context.WithTimeout(w.Context(), 50*time.Millisecond)
		defer stop()
		b, err := q.TryClaim(short, 1)
		w.ok(err)
		w.want(len(b.Deliveries), 1)
		cancel()
		time.Sleep(sec)
	})
}

// With several lanes, the lane that one process takes is not taken for that which another has freed.
func TestTwoLanesFreed(t *testing.T) {
	virtually(t, func(w *world) {
		cfg := queue.Config{KeyLimit: 2}
		k := w.queue(cfg)
		w.enqueue(k, "c")
		w.want(w.claim(k).ID(), "c")
		time.Sleep(sec) // it is the keeper
		w.tenant(k, "a1", "a2", "a3", "a4", "a5")
		time.Sleep(sec)
		v1, h1 := w.process(cfg)
		v2, h2 := w.process(cfg)
		l1, l2 := w.claimWaiting(v1), w.claimWaiting(v2)
		time.Sleep(2 * sec)
		late := make(chan struct{})
		h1.Inject(claimtest.Fault{On: claimtest.Other, Skip: 1, Hold: late})
		w.ok(l1.Complete(w.Context()))
		time.Sleep(20 * time.Millisecond)
		h2.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, LoseRequest: true})
		w.ok(l2.Complete(w.Context()))
		h2.Kill()
		time.Sleep(20 * time.Millisecond)
		close(late)
		time.Sleep(sec)
		w.want(len(w.under("lane/")), 2)
	})
}

// The process that enqueued an item, or has ended one, gives the turn also if it is closed at once.
func TestTurnBeforeClose(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		host.SetLatency(time.Millisecond, time.Millisecond, time.Millisecond)
		w.tenant(q, "a1")
		w.ok(q.Close(w.Context()))
		w.want(len(w.under("index/ready/")), 1)
	})
}

// The process that cancels or redrives items gives the turns that come of it.
func TestTurnsOfChanges(t *testing.T) {
	virtually(t, func(w *world) {
		q, ready := w.queue(queue.Config{MaxAttempts: 1}), func() int { return len(w.under("index/ready/")) }
		w.tenant(q, "a1", "a2", "b1")
		time.Sleep(sec)
		op := w.queue(queue.Config{MaxAttempts: 1})
		w.ok(op.Cancel(w.Context(), "a1"))
		time.Sleep(sec)
		w.want(ready(), 2)
		for range 2 {
			_, err := w.claim(q).Fail(w.Context(), context.Canceled)
			w.ok(err)
		}
		w.ok(op.Redrive(w.Context(), "a2"))
		time.Sleep(100 * time.Millisecond)
		w.want(ready(), 1)
		n, err := op.RedriveAll(w.Context())
		w.ok(err)
		w.want(n, 1)
		time.Sleep(100 * time.Millisecond)
		w.want(ready(), 2)
	})
}

// Lanes that no item has are freed page by page without a pause.
func TestHealOfManyLanes(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		items := make([]queue.Item, 300)
		for i := range items {
			items[i] = queue.NewItem(nil, queue.PartitionKey(strings.Repeat("k", i%150+1)+string(rune('a'+i/150))))
		}
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)
		time.Sleep(5 * sec)
		w.deleteKeys("content/", "ready/", "place/")
		w.enqueue(q, "c")
		w.claim(q)
		time.Sleep(40 * sec)
		w.want(len(w.under("lane/")), 0)
	})
}
