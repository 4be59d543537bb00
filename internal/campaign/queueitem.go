package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/retry"
)

const (
	queueName    = "campaign"
	queueRestKey = "/campaign/queue-rest" // put when nothing more is to be enqueued
	queuePrefix  = etcdclaims.DefaultPrefix + "queue/"
)

var errOnPurpose = errors.New("this attempt fails on purpose")

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
	item := queue.NewItem(nil, queue.ID(w.journal.id()), queue.Priority(r.IntN(3)), queue.Delay(between(r, 0, 300*time.Millisecond)),
		queue.MaxAttempts(1<<20))
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

// endLease completes the item, fails it or gives it back.
func (w *worker) endLease(ctx context.Context, r *rand.Rand, l *queue.Delivery) error {
	switch r.IntN(10) {
	case 0:
		return untilOver(ctx, r, l, l.Release)
	case 1:
		backoff := queue.Backoff(etcdclaims.ExponentialBackoff(100*time.Millisecond, time.Second))
		return untilOver(ctx, r, l, func(ctx context.Context) error {
			_, err := l.Fail(ctx, errOnPurpose, backoff)
			return err
		})
	}
	return w.attempt(kindItem, fencing.Token{Key: l.ID(), Fence: l.Fence()}, func(intent entry) error {
		return untilOver(ctx, r, l, func(ctx context.Context) error { return l.Complete(ctx, put(itemPrefix+l.ID(), intent)) })
	})
}

// untilOver calls a verb until the item is off the worker's hands. If the verb never
// succeeded, it returns all errors.
func untilOver(ctx context.Context, r *rand.Rand, l *queue.Delivery, verb func(context.Context) error) (errs error) {
	for {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		err := verb(ending)
		cancel()
		if err == nil {
			return nil
		}
		errs = errors.Join(errs, err)
		if l.Err() != nil || ctx.Err() != nil {
			return errs
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
	err = c.members.all(ctx, queuePrefix, func(kv *mvccpb.KeyValue) {
		if slices.ContainsFunc([]string{"/index/ready/", "/index/later/", "/taken/", "/dead/"}, func(part string) bool {
			return strings.Contains(string(kv.Key), part)
		}) {
			n++
		}
	})
	return n, err
}
