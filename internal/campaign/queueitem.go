package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/retry"
)

const (
	queueName       = "campaign"
	queueDonePrefix = "/campaign/queue-done/" // <item>: the fence of whoever completed it
	queueRestKey    = "/campaign/queue-rest"  // put when nothing more is to be enqueued
	queuePrefix     = etcdclaims.DefaultPrefix + "queue/"
)

var errOnPurpose = errors.New("this attempt fails on purpose")

// What a journal has of the queue: what was acknowledged, or may have been done.
const (
	opEnqueued  = "enqueued"
	opClaimed   = "claimed"
	opCompleted = "completed"
	opMaybeDone = "maybe completed"
)

// produce enqueues an item of the worker's own, until the campaign is to rest.
func (w *worker) produce(ctx context.Context, r *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, between(r, 500*time.Millisecond, w.TTL))
	defer cancel()
	resp, err := w.etcd.Get(clientv3.WithRequireLeader(ctx), queueRestKey, clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	if resp.Count > 0 {
		retry.Sleep(ctx, w.TTL)
		return nil
	}
	item := queue.NewItem(nil, queue.ID(w.journal.id()), queue.Priority(r.IntN(3)), queue.Delay(between(r, 0, 300*time.Millisecond)), queue.MaxAttempts(1<<20))
	if _, err := w.queue.Enqueue(ctx, item); err != nil {
		return err
	}
	w.journal.write(entry{Op: opEnqueued, Key: item.ID()})
	retry.Sleep(ctx, 250*time.Millisecond)
	return nil
}

// consume claims items, and ends each of them in one of the ways there are.
func (w *worker) consume(ctx context.Context, r *rand.Rand) error {
	claiming, cancel := context.WithTimeout(ctx, between(r, time.Second, 2*w.TTL))
	defer cancel()
	b, err := w.queue.Claim(claiming, 1+r.IntN(3))
	for _, l := range b.Deliveries {
		w.journal.write(entry{Op: opClaimed, Key: l.ID(), Fence: l.Fence()})
		retry.Sleep(l.Context(), between(r, 10*time.Millisecond, 200*time.Millisecond))
		err = errors.Join(err, w.endLease(ctx, r, l))
	}
	return err
}

// endLease completes the item, fails it or gives it back, until it is off the worker's
// hands.
func (w *worker) endLease(ctx context.Context, r *rand.Rand, l *queue.Delivery) error {
	how := r.IntN(10)
	for {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		var err error
		switch {
		case how > 1:
			fence := l.Fence()
			err = l.Complete(ending, clientv3.OpPut(queueDonePrefix+l.ID(), fmt.Sprint(fence)))
			if err == nil {
				w.journal.write(entry{Op: opCompleted, Key: l.ID(), Fence: fence})
			} else if errors.Is(err, etcdclaims.ErrUnknown) {
				w.journal.write(entry{Op: opMaybeDone, Key: l.ID(), Fence: fence})
			}
		case how == 1:
			_, err = l.Fail(ending, errOnPurpose, queue.Backoff(etcdclaims.ExponentialBackoff(100*time.Millisecond, time.Second)))
		default:
			err = l.Release(ending)
		}
		cancel()
		if err == nil || l.Err() != nil || ctx.Err() != nil {
			return err
		}
		retry.Sleep(ctx, between(r, 20*time.Millisecond, 200*time.Millisecond))
	}
}

// restQueue lets no worker enqueue any more.
func (c *campaign) restQueue(ctx context.Context) error {
	return c.members.insist(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
		_, err := etcd.Put(ctx, queueRestKey, "")
		return err
	})
}

// queued returns how many items are in the queue.
func (c *campaign) queued(ctx context.Context) (n int, err error) {
	err = c.members.all(ctx, queuePrefix, func(name string, _ []byte, _, _, _ int64) {
		if slices.ContainsFunc([]string{"/index/ready/", "/index/later/", "/taken/", "/dead/"}, func(part string) bool { return strings.Contains(name, part) }) {
			n++
		}
	})
	return n, err
}

// judgeQueue looks for items of the queue that were not completed exactly once, or not
// as their workers were told.
func (v *verdict) judgeQueue(ev *evidence) {
	type lease struct {
		item  string
		fence int64
	}
	untold := 0
	maybe, claimed := map[lease]bool{}, map[string]int{}
	for _, e := range ev.journals {
		switch done, there := ev.queueDone[e.Key]; e.Op {
		case opEnqueued:
			if v.count("items enqueued", 1); !there {
				v.find(lost, "item %s of the queue: never completed", e.Key)
			}
		case opClaimed:
			v.count("items claimed", 1)
			if claimed[e.Key]++; claimed[e.Key] > 1 {
				v.count("items claimed again", 1)
			}
		case opCompleted:
			v.count("items completed", 1)
			maybe[lease{e.Key, e.Fence}] = true
			if done.fence != e.Fence {
				v.find(answers, "item %s of the queue: completed by fence %d, as its worker was told; etcd has %d", e.Key, e.Fence, done.fence)
			}
		case opMaybeDone:
			v.count("items completed or not, as reported", 1)
			maybe[lease{e.Key, e.Fence}] = true
		}
	}
	for item, done := range ev.queueDone {
		if done.version > 1 {
			v.find(doubled, "item %s of the queue: completed %d times", item, done.version)
		}
		if !maybe[lease{item, done.fence}] {
			untold++ // its worker was killed before the reply, or before it had written it down
		}
	}
	v.count("items completed by workers killed before they noted it", untold)
	if untold > 0 && len(ev.deaths) == 0 {
		v.find(answers, "%d items of the queue were completed, and their workers, who live, were not told", untold)
	}
}

// queueDone is how an item of the queue was completed.
type queueDone struct{ fence, version int64 }
