package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// enqueue adds an item whose payload is its id.
func (v *variant) enqueue(q *queue.Queue, id string, opts ...queue.ItemOption) {
	v.Helper()
	added, err := q.Enqueue(v.ctx, queue.NewItem([]byte(id), append(opts, queue.ID(id))...))
	noErr(v, err)
	if !added {
		v.Fatalf("item %s was not added", id)
	}
}

// items claims up to n visible items, which must be those.
func (v *variant) items(q *queue.Queue, n int, want string) []*queue.Delivery {
	v.Helper()
	b, err := q.TryClaim(v.ctx, n)
	noErr(v, err)
	var ids []string
	for _, d := range b.Deliveries {
		ids = append(ids, string(d.Payload()))
	}
	if got := strings.Join(ids, " "); got != want {
		v.Fatalf("claimed %q, want %q", got, want)
	}
	return b.Deliveries
}

// await waits for one item.
func (v *variant) await(q *queue.Queue, id string, attempt int) *queue.Delivery {
	v.Helper()
	b, err := q.Claim(v.ctx, 1)
	noErr(v, err)
	if d := b.Deliveries[0]; d.ID() != id || d.Attempt() != attempt {
		v.Fatalf("claimed %s in attempt %d, want %s in attempt %d", d.ID(), d.Attempt(), id, attempt)
	}
	return b.Deliveries[0]
}

func (v *variant) isAt(q *queue.Queue, id string, want queue.Where) {
	v.Helper()
	info, err := q.Look(v.ctx, id)
	noErr(v, err)
	if info.Where != want {
		v.Errorf("item %s is %s, want %s", id, info.Where, want)
	}
}

// Items are delivered in order, once vested, and end together with writes.
func queueing(v *variant) {
	q := v.queue("a", queue.Config{})
	v.enqueue(q, "later", queue.Delay(2*time.Second))
	v.enqueue(q, "second")
	v.enqueue(q, "third")
	v.enqueue(q, "first", queue.Priority(-5))
	v.enqueue(q, "cancelled")
	noErr(v, q.Cancel(v.ctx, "cancelled"))
	noErr(v, q.SetPriority(v.ctx, "third", 200))
	some := v.items(q, 9, "first second third")
	child, err := q.Op(queue.NewItem([]byte("child"), queue.ID("child")))
	noErr(v, err)
	noErr(v, some[0].Complete(v.ctx, v.put("paid", "yes"), child))
	v.stored("paid", "yes")
	v.isAt(q, "first", queue.Completed)
	before := some[1].Fence()
	_, err = some[1].Heartbeat(v.ctx, time.Minute)
	noErr(v, err)
	v.rises(before, some[1].Fence())
	noErr(v, some[1].Release(v.ctx))
	_, err = some[2].Snooze(v.ctx, time.Hour)
	noErr(v, err)
	v.isAt(q, "third", queue.Later)
	added, err := q.Enqueue(v.ctx, queue.NewItem(nil, queue.ID("first")))
	if added || err != nil {
		v.Errorf("an id was enqueued twice: %v, %v", added, err)
	}
	noErr(v, v.await(q, "second", 1).Complete(v.ctx))
	noErr(v, v.await(q, "child", 1).Complete(v.ctx))
	if d := v.await(q, "later", 1); time.Until(d.Vesting()) > 0 {
		v.Errorf("item %s was claimed too early", d.ID())
	}
}

// An item that fails too often, or is discarded, becomes a dead letter.
func deadLetters(v *variant) {
	q := v.queue("a", queue.Config{MaxAttempts: 2})
	v.enqueue(q, "x")
	soon := queue.Backoff(etcdclaims.ExponentialBackoff(time.Millisecond, time.Millisecond))
	for attempt := 1; attempt <= 2; attempt++ {
		out, err := v.await(q, "x", attempt).Fail(v.ctx, errors.New("no"), soon)
		noErr(v, err)
		if out.Dead != (attempt == 2) || out.Attempts != attempt {
			v.Errorf("after failure %d of two: %+v", attempt, out)
		}
	}
	for info, err := range q.DeadLetters(v.ctx) {
		noErr(v, err)
		if info.ID != "x" || len(info.History) != 2 {
			v.Errorf("dead letter %+v", info)
		}
	}
	_, err := q.Enqueue(v.ctx, queue.NewItem(nil, queue.ID("x")))
	if _, ok := errors.AsType[*queue.DeadLetterError](err); !ok {
		v.Errorf("enqueuing the id of a dead letter: %v", err)
	}
	noErr(v, q.Redrive(v.ctx, "x"))
	noErr(v, v.await(q, "x", 1).Discard(v.ctx, "no use"))
	v.enqueue(q, "x", queue.OverDead())
	noErr(v, v.await(q, "x", 1).Discard(v.ctx, "no use"))
	if n, err := q.Purge(v.ctx, time.Now().Add(time.Hour)); n != 1 || err != nil {
		v.Errorf("purged %d dead letters, %v", n, err)
	}
	_, err = q.Look(v.ctx, "x")
	wantIs(v, err, queue.ErrNotFound)
}

// Items of a worker that is lost or closes go to others. Many are delivered once each.
func queueWorkers(v *variant) {
	a := v.queue("a", queue.Config{})
	v.enqueue(a, "x")
	late := v.items(a, 1, "x")[0]
	_, err := v.raw.Delete(v.ctx, v.prefix+"own/queue/q/session/", clientv3.WithPrefix())
	noErr(v, err)
	b := v.queue("b", queue.Config{})
	d := v.await(b, "x", 2)
	v.rises(late.Fence(), d.Fence())
	wantIs(v, late.Complete(v.ctx, v.put("late", "1")), etcdclaims.ErrLost)
	v.stored("late", "")
	adopted, err := v.queue("c", queue.Config{}).Adopt(v.ctx, d.Handle())
	noErr(v, err)
	noErr(v, adopted.Complete(v.ctx))
	wantIs(v, d.Complete(v.ctx), queue.ErrCompleted)
	v.enqueue(b, "y")
	v.items(b, 1, "y")
	noErr(v, b.Close(v.ctx))

	var some []queue.Item
	for i := range 100 {
		some = append(some, queue.NewItem(nil, queue.ID(fmt.Sprint(i))))
	}
	c := v.queue("d", queue.Config{})
	noErr(v, v.await(c, "y", 1).Complete(v.ctx))
	n, err := c.EnqueueAll(v.ctx, some)
	noErr(v, err)
	if n != len(some) {
		v.Errorf("enqueued %d items, want %d", n, len(some))
	}
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	done, ended := make(chan string, 2*len(some)), make(chan error, 2)
	for _, q := range []*queue.Queue{c, v.queue("e", queue.Config{})} {
		go func() {
			ended <- q.Work(ctx, queue.WorkerConfig{Concurrency: 8, Handler: func(ctx context.Context, d *queue.Delivery) error {
				done <- d.ID()
				return nil
			}})
		}()
	}
	seen := map[string]bool{}
	for range some {
		select {
		case id := <-done:
			if seen[id] {
				v.Errorf("item %s was delivered twice", id)
			}
			seen[id] = true
		case <-v.ctx.Done():
			v.Fatalf("%d of %d items were delivered", len(seen), len(some))
		}
	}
	cancel()
	for range 2 {
		noErr(v, <-ended)
	}
}

// A queue is bounded, paused and configured in etcd.
func queueLimits(v *variant) {
	cfg := queue.Config{MaxTaken: 1, MaxWaiting: 2}
	a, b := v.queue("a", cfg), v.queue("b", cfg)
	v.enqueue(a, "x")
	v.enqueue(a, "y")
	_, err := a.Enqueue(v.ctx, queue.NewItem(nil))
	wantIs(v, err, queue.ErrFull)
	d := v.items(a, 2, "x")[0]
	v.items(b, 2, "")
	wantIs(v, b.Cancel(v.ctx, "x"), queue.ErrTaken)
	noErr(v, d.Complete(v.ctx))
	noErr(v, a.Pause(v.ctx, "to look"))
	v.items(b, 2, "")
	if st, err := b.Stats(v.ctx); err != nil || st.Ready != 1 || st.Paused.By != "a" {
		v.Errorf("stats of a paused queue: %+v, %v", st, err)
	}
	noErr(v, b.Resume(v.ctx))
	v.await(b, "y", 1)
	other := v.queue("c", queue.Config{})
	_, err = other.Enqueue(v.ctx, queue.NewItem(nil))
	wantIs(v, err, queue.ErrConfig)
	noErr(v, a.Close(v.ctx))
	noErr(v, b.Close(v.ctx))
	noErr(v, other.Reconfigure(v.ctx))
	v.enqueue(other, "z")
}
