package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/retry"
)

// An observer keeps a history of the claims. It watches every member on its own
// and believes whoever tells first: a member that is paused or dead is late, and
// nothing else.
type observer struct {
	*ownership
	members  *members
	watching sync.WaitGroup
	stop     context.CancelFunc
}

// observe begins to watch before anything is claimed.
func observe(ctx context.Context, m *members) (*observer, error) {
	o := &observer{ownership: newOwnership(), members: m}
	err := m.insist(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Get(ctx, etcdclaims.DefaultPrefix, clientv3.WithCountOnly())
		if err == nil {
			o.revision = resp.Header.Revision
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("beginning to observe: %w", err)
	}
	ctx, o.stop = context.WithCancel(context.WithoutCancel(ctx))
	o.watching.Go(func() { o.stalls.watch(ctx) })
	for _, c := range m.clients {
		o.watching.Go(func() {
			for ctx.Err() == nil {
				o.follow(ctx, c)
				retry.Sleep(ctx, 50*time.Millisecond)
			}
		})
	}
	return o, nil
}

func (o *observer) close() {
	o.stop()
	o.watching.Wait()
}

// follow takes in what one member tells until its watch ends.
func (o *observer) follow(ctx context.Context, c *clientv3.Client) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for resp := range c.Watch(ctx, etcdclaims.DefaultPrefix, clientv3.WithPrefix(), clientv3.WithRev(o.seen()+1)) {
		if resp.CompactRevision > o.seen()+1 {
			o.resume(ctx, c)
			return
		}
		if resp.Err() != nil || len(resp.Events) == 0 {
			return
		}
		events := make([]event, 0, len(resp.Events))
		for _, ev := range resp.Events {
			events = append(events, eventOf(ev.Kv, ev.Type == clientv3.EventTypeDelete))
		}
		o.hear(time.Now(), events[len(events)-1].rev, resp.Header.RaftTerm, events)
	}
}

// resume reads what events will not tell any more.
func (o *observer) resume(ctx context.Context, c *clientv3.Client) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := c.Get(ctx, etcdclaims.DefaultPrefix, clientv3.WithPrefix())
	if err != nil {
		return // follow comes back here
	}
	there := make([]event, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		there = append(there, eventOf(kv, false))
	}
	o.reread(time.Now(), resp.Header.Revision, resp.Header.RaftTerm, there)
}

// finish waits until all that has happened is known.
func (o *observer) finish(ctx context.Context) error {
	var last int64
	err := o.members.insist(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Put(ctx, markKey, "")
		if err == nil {
			last = resp.Header.Revision
		}
		return err
	})
	for err == nil && o.seen() < last {
		if ctx.Err() != nil {
			return fmt.Errorf("the observer is at revision %d of %d: %w", o.seen(), last, ctx.Err())
		}
		retry.Sleep(ctx, 5*time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("marking the end of the history: %w", err)
	}
	return nil
}
