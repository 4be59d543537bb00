package contract

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestQueue tests the contract of queues on an etcd, as [TestClaims] tests that of
// claims, with a subtest for each of [QueueCases]. It takes a few seconds.
func TestQueue(t *testing.T, etcd claimtest.Etcd) {
	t.Helper()
	if inBubble() {
		t.Fatal("contract: TestQueue: a bubble has no subtests: run each of QueueCases in a bubble of its own")
	}
	runCasesAtOnce(t, etcd, queueCases, 8)
}

// QueueCases returns the cases that [TestQueue] runs.
func QueueCases() []Case { return append([]Case(nil), queueCases...) }

var queueCases = []Case{
	{"QueueOrder", testQueueOrder},
	{"QueueVesting", testQueueVesting},
	{"QueueIDOnce", testQueueIDOnce},
	{"QueueClaimWaits", testQueueClaimWaits},
	{"QueueCompleteWithWrites", testQueueComplete},
	{"QueueFailUntilDead", testQueueFail},
	{"QueueFailPriority", testQueueFailPriority},
	{"QueueSnoozeAndRelease", testQueueSnooze},
	{"QueueDeadLetters", testQueueDeadLetters},
	{"QueueOverDead", testQueueOverDead},
	{"QueueLostWorker", testQueueLostWorker},
	{"QueueHeartbeatRaisesFence", testQueueHeartbeat},
	{"QueueHandle", testQueueHandle},
	{"QueueLimits", testQueueLimits},
	{"QueuePause", testQueuePause},
	{"QueueCancel", testQueueCancel},
	{"QueueCloseGivesBack", testQueueClose},
	{"QueueManyItems", testQueueMany},
}

// opened returns access to a queue by a client of its own.
func (t *trial) opened(owner string, cfg queue.Config) *queue.Queue {
	t.Helper()
	cfg.Name = "q"
	q, err := queue.New(t.client(etcdclaims.Config{Owner: owner}), cfg)
	t.ok(err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = q.Close(ctx)
	})
	return q
}

func (t *trial) enqueue(q *queue.Queue, id string, opts ...queue.ItemOption) {
	t.Helper()
	added, err := q.Enqueue(t.ctx, queue.NewItem([]byte(id), append(opts, queue.ID(id))...))
	t.ok(err)
	if !added {
		t.Fatalf("item %s was not added", id)
	}
}

// items claims up to n visible items, which must be those.
func (t *trial) items(q *queue.Queue, n int, want string) []*queue.Delivery {
	t.Helper()
	b, err := q.TryClaim(t.ctx, n)
	t.ok(err)
	var ids []string
	for _, l := range b.Deliveries {
		ids = append(ids, l.ID())
		if string(l.Payload()) != l.ID() {
			t.Fatalf("item %s has payload %q", l.ID(), l.Payload())
		}
	}
	if got := strings.Join(ids, " "); got != want {
		t.Fatalf("claimed %q, want %q", got, want)
	}
	return b.Deliveries
}

// await waits for one item.
func (t *trial) await(q *queue.Queue, id string, attempt int) *queue.Delivery {
	t.Helper()
	b, err := q.Claim(t.ctx, 1)
	t.ok(err)
	if l := b.Deliveries[0]; l.ID() != id || l.Attempt() != attempt {
		t.Fatalf("claimed %s in attempt %d, want %s in attempt %d", l.ID(), l.Attempt(), id, attempt)
	}
	return b.Deliveries[0]
}

func (t *trial) isAt(q *queue.Queue, id string, want queue.Where) {
	t.Helper()
	info, err := q.Look(t.ctx, id)
	t.ok(err)
	if info.Where != want {
		t.Fatalf("item %s is %s, want %s", id, info.Where, want)
	}
}

func testQueueOrder(t *trial) {
	q := t.opened("a", queue.Config{})
	t.enqueue(q, "third")
	t.enqueue(q, "fourth")
	t.enqueue(q, "second", queue.Priority(0))
	t.enqueue(q, "first", queue.Priority(-5))
	t.items(q, 3, "first second third")
	t.items(q, 3, "fourth")
	t.items(q, 3, "")
}

func testQueueVesting(t *trial) {
	q := t.opened("a", queue.Config{})
	t.enqueue(q, "later", queue.Delay(2*time.Second))
	b, err := q.TryClaim(t.ctx, 1)
	t.ok(err)
	if len(b.Deliveries) > 0 || b.Next.IsZero() {
		t.Fatalf("an item that has not vested: %+v", b)
	}
	l := t.await(q, "later", 1)
	if early := time.Until(l.Vesting()); early > 0 {
		t.Fatalf("claimed %v too early", early)
	}
}

func testQueueIDOnce(t *trial) {
	q := t.opened("a", queue.Config{})
	t.enqueue(q, "x")
	again := func() {
		t.Helper()
		added, err := q.Enqueue(t.ctx, queue.NewItem([]byte("other"), queue.ID("x")))
		t.ok(err)
		if added {
			t.Fatal("an id was enqueued twice")
		}
	}
	again()
	l := t.items(q, 1, "x")[0]
	again()
	t.ok(l.Complete(t.ctx))
	again()
	t.items(q, 1, "")
}

func testQueueClaimWaits(t *trial) {
	a, b := t.opened("a", queue.Config{}), t.opened("b", queue.Config{})
	got := make(chan error, 1)
	go func() {
		batch, err := a.Claim(t.ctx, 1)
		if err == nil && len(batch.Deliveries) != 1 {
			err = fmt.Errorf("a claim that waited returned %d items", len(batch.Deliveries))
		}
		got <- err
	}()
	time.Sleep(300 * time.Millisecond) // until it waits, most likely
	t.enqueue(b, "x")
	t.ok(<-got)
}

func testQueueComplete(t *trial) {
	q := t.opened("a", queue.Config{})
	t.enqueue(q, "parent")
	l := t.items(q, 1, "parent")[0]
	child, err := q.Op(queue.NewItem([]byte("child"), queue.ID("child")))
	t.ok(err)
	t.ok(l.Complete(t.ctx, clientv3.OpPut(t.data+"paid", "yes"), child))
	t.is(l.Complete(t.ctx), etcdclaims.ErrReleased)
	resp, err := t.raw.Get(t.ctx, t.data+"paid")
	t.ok(err)
	if len(resp.Kvs) != 1 || resp.Kvs[0].Version != 1 {
		t.Fatalf("the write of a completion: %v", resp.Kvs)
	}
	t.items(q, 1, "child")
	t.isAt(q, "parent", queue.Completed)
}

func testQueueFail(t *trial) {
	q := t.opened("a", queue.Config{MaxAttempts: 2})
	t.enqueue(q, "x")
	out, err := t.items(q, 1, "x")[0].Fail(t.ctx, errors.New("one"),
		queue.Backoff(etcdclaims.ExponentialBackoff(time.Millisecond, time.Millisecond)))
	t.ok(err)
	if out.Dead || out.Until.IsZero() || out.Attempts != 1 {
		t.Fatalf("after the first failure of two: %+v", out)
	}
	l := t.await(q, "x", 2)
	if h := l.History(); len(h) != 1 || h[0].Error != "one" || h[0].Owner != "a" {
		t.Fatalf("the history is %+v", h)
	}
	out, err = l.Fail(t.ctx, errors.New("two"))
	t.ok(err)
	if !out.Dead {
		t.Fatalf("after the last failure: %+v", out)
	}
	t.isAt(q, "x", queue.Dead)
}

func testQueueFailPriority(t *trial) {
	q := t.opened("a", queue.Config{})
	t.enqueue(q, "x", queue.Priority(1))
	t.enqueue(q, "before", queue.Priority(2))
	t.enqueue(q, "behind", queue.Priority(4))
	_, err := t.items(q, 1, "x")[0].Fail(t.ctx, errors.New("one"),
		queue.Priority(3), queue.Backoff(etcdclaims.ExponentialBackoff(time.Second, time.Second)))
	t.ok(err)
	time.Sleep(2 * time.Second) // until it is visible again
	for _, id := range []string{"before", "x", "behind"} {
		t.items(q, 1, id)
	}
}

func testQueueSnooze(t *trial) {
	q := t.opened("a", queue.Config{})
	t.enqueue(q, "x")
	l := t.items(q, 1, "x")[0]
	t.ok(l.Release(t.ctx))
	l = t.await(q, "x", 1)
	_, err := l.Snooze(t.ctx, time.Hour)
	t.ok(err)
	t.isAt(q, "x", queue.Later)
	t.items(q, 1, "")
}

// A worker whose session ends in etcd loses its items to others, and what it does
// later is refused.
func testQueueLostWorker(t *trial) {
	a := t.opened("a", queue.Config{})
	t.enqueue(a, "x")
	l := t.items(a, 1, "x")[0]
	_, err := t.raw.Delete(t.ctx, t.prefix+"own/queue/q/session/", clientv3.WithPrefix())
	t.ok(err)
	b := t.opened("b", queue.Config{})
	mine := t.await(b, "x", 2)
	if mine.Fence() <= l.Fence() {
		t.Fatalf("the fence of the next lease is %d, after %d", mine.Fence(), l.Fence())
	}
	t.is(l.Complete(t.ctx, clientv3.OpPut(t.data+"late", "")), etcdclaims.ErrLost)
	resp, err := t.raw.Get(t.ctx, t.data+"late")
	t.ok(err)
	if len(resp.Kvs) > 0 {
		t.Fatal("a late worker wrote")
	}
	if h := mine.History(); len(h) != 1 || h[0].Ending != "lost" || h[0].Owner != "a" {
		t.Fatalf("the history is %+v", h)
	}
	t.ok(mine.Complete(t.ctx))
}

func testQueueHeartbeat(t *trial) {
	q := t.opened("a", queue.Config{})
	t.enqueue(q, "x")
	l := t.items(q, 1, "x")[0]
	before := l.Fence()
	until, err := l.Heartbeat(t.ctx, time.Minute)
	t.ok(err)
	if left := time.Until(until); left < 45*time.Second || left > time.Minute || l.Fence() <= before {
		t.Fatalf("after a heartbeat of a minute it lasts for %v, by fence %d after %d", left, l.Fence(), before)
	}
	t.ok(l.Complete(t.ctx))
}

func testQueueHandle(t *trial) {
	a, b := t.opened("a", queue.Config{}), t.opened("b", queue.Config{})
	t.enqueue(a, "x")
	l := t.items(a, 1, "x")[0]
	theirs, err := b.Adopt(t.ctx, l.Handle())
	t.ok(err)
	t.ok(theirs.Complete(t.ctx))
	t.is(l.Complete(t.ctx), queue.ErrCompleted)
	_, err = b.Adopt(t.ctx, l.Handle())
	t.is(err, queue.ErrCompleted)
}

func testQueueLimits(t *trial) {
	cfg := queue.Config{MaxTaken: 1, MaxWaiting: 2}
	a, b := t.opened("a", cfg), t.opened("b", cfg)
	t.enqueue(a, "x")
	t.enqueue(a, "y")
	_, err := a.Enqueue(t.ctx, queue.NewItem(nil))
	t.is(err, queue.ErrFull)
	l := t.items(a, 2, "x")[0]
	t.items(b, 2, "")
	t.ok(l.Complete(t.ctx))
	t.items(b, 2, "y")
	_, err = t.opened("c", queue.Config{}).Enqueue(t.ctx, queue.NewItem(nil))
	t.is(err, queue.ErrConfig)
}

func testQueuePause(t *trial) {
	a, b := t.opened("a", queue.Config{}), t.opened("b", queue.Config{})
	t.enqueue(a, "x")
	t.ok(a.Pause(t.ctx, "to look"))
	t.is(b.Pause(t.ctx, "too"), queue.ErrUnchanged)
	t.items(b, 1, "")
	st, err := b.Stats(t.ctx)
	t.ok(err)
	if st.Ready != 1 || st.Paused.By != "a" || st.Paused.Why != "to look" {
		t.Fatalf("stats of a paused queue: %+v", st)
	}
	t.ok(b.Resume(t.ctx))
	t.await(b, "x", 1)
}

func testQueueCancel(t *trial) {
	q := t.opened("a", queue.Config{})
	t.enqueue(q, "x")
	t.enqueue(q, "y")
	t.ok(q.Cancel(t.ctx, "x"))
	t.is(q.Cancel(t.ctx, "x"), queue.ErrNotFound)
	t.items(q, 2, "y")
	t.is(q.Cancel(t.ctx, "y"), queue.ErrTaken)
}

func testQueueClose(t *trial) {
	a, b := t.opened("a", queue.Config{}), t.opened("b", queue.Config{})
	t.enqueue(a, "x")
	l := t.items(a, 1, "x")[0]
	t.ok(a.Close(t.ctx))
	if l.Check() == nil {
		t.Fatal("a lease outlasts its queue")
	}
	t.await(b, "x", 1)
}

// A few hundred items, each to one of four processes.
func testQueueMany(t *trial) {
	const items = 300
	first := t.opened("0", queue.Config{})
	var some []queue.Item
	for i := range items {
		some = append(some, queue.NewItem([]byte(fmt.Sprint(i)), queue.ID(fmt.Sprint(i))))
	}
	n, err := first.EnqueueAll(t.ctx, some)
	t.ok(err)
	if n != items {
		t.Fatalf("enqueued %d items of %d", n, items)
	}
	working, cancel := context.WithCancel(t.ctx)
	defer cancel()
	done, failed := make(chan string), make(chan error, 4)
	for i := range 4 {
		q := t.opened(fmt.Sprint(i), queue.Config{})
		go func() {
			failed <- q.Work(working, queue.WorkerConfig{Concurrency: 8, Handler: func(ctx context.Context, l *queue.Delivery) error {
				err := l.Complete(ctx)
				if err == nil {
					select {
					case done <- l.ID():
					case <-working.Done(): // the case has failed
					}
				}
				return err
			}})
		}()
	}
	seen := map[string]bool{}
	for range items {
		select {
		case id := <-done:
			if seen[id] {
				t.Fatalf("item %s was completed twice", id)
			}
			seen[id] = true
		case err := <-failed:
			t.Fatalf("a worker ended: %v", err)
		case <-t.ctx.Done():
			t.Fatalf("%d of %d items were completed: %v", len(seen), items, context.Cause(t.ctx))
		}
	}
	cancel()
	for range 4 {
		t.ok(<-failed)
	}
}
