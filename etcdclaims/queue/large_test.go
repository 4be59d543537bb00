package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// With 200,000 items that wait etcd counts keys for longer,
// but an item is still enqueued, claimed and completed within milliseconds.
func TestLargeQueue(t *testing.T) {
	testetcd.SkipUnlessLong(t, "enqueues 200,000 items")
	const many = 200_000
	server := testetcd.Start(t)
	claims, err := etcdclaims.New(server.Client(t), etcdclaims.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = claims.Close(t.Context()) })
	q, err := queue.New(claims, queue.Config{Name: "large"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close(t.Context()) })
	ctx := t.Context()
	fill := func(n int) {
		t.Helper()
		begin := time.Now()
		for from := 0; from < n; from += 10_000 {
			var items []queue.Item
			for range min(10_000, n-from) {
				items = append(items, queue.NewItem([]byte("payload of a size that is not unusual for an item")))
			}
			if added, err := q.EnqueueAll(ctx, items); err != nil || added != len(items) {
				t.Fatalf("%d of %d items were enqueued: %v", added, len(items), err)
			}
		}
		t.Logf("%d items enqueued in %v", n, time.Since(begin))
	}
	// costs returns how long calls take, as a median.
	costs := func() (stats, enqueue, claim, complete time.Duration) {
		t.Helper()
		var all [4][]time.Duration
		measure := func(i int, call func() error) {
			t.Helper()
			begin := time.Now()
			if err := call(); err != nil {
				t.Fatal(err)
			}
			all[i] = append(all[i], time.Since(begin))
		}
		for range 25 {
			measure(0, func() error { _, err := q.Stats(ctx); return err })
			measure(1, func() error { _, err := q.Enqueue(ctx, queue.NewItem([]byte("x"))); return err })
			var b queue.Batch
			measure(2, func() (err error) { b, err = q.TryClaim(ctx, 1); return err })
			if len(b.Deliveries) != 1 {
				t.Fatalf("%d items were claimed", len(b.Deliveries))
			}
			measure(3, func() error { return b.Deliveries[0].Complete(ctx) })
		}
		median := func(i int) time.Duration { slices.Sort(all[i]); return all[i][len(all[i])/2] }
		return median(0), median(1), median(2), median(3)
	}
	for _, n := range []int{100, many - 100} {
		fill(n)
		st, err := q.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		stats, enqueue, claim, complete := costs()
		text := fmt.Sprintf("with %d items: Stats %v, Enqueue %v, TryClaim %v, Complete %v", st.Ready, stats, enqueue, claim, complete)
		t.Log(text)
		// Ten times what a slow machine needs: this is about what grows with the queue.
		if enqueue > 100*time.Millisecond || complete > 100*time.Millisecond || claim > 500*time.Millisecond || stats > 500*time.Millisecond {
			t.Error(text)
		}
	}
	if st, err := q.Stats(ctx); err != nil || st.Ready != many || st.Taken != 0 {
		t.Errorf("%+v, %v", st, err)
	}
}
