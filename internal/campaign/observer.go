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

// markKey is put last, to see that all before was seen.
const markKey = etcdclaims.DefaultPrefix + "campaign"

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
func observe(ctx context.Context, m *members) *observer {
	o := &observer{ownership: newOwnership(), members: m}
	ctx, o.stop = context.WithCancel(ctx)
	o.watching.Go(func() { o.stalls.watch(ctx) })
	for _, c := range m.clients {
		o.watching.Go(func() {
			for ctx.Err() == nil {
				o.follow(ctx, c)
				retry.Sleep(ctx, 50*time.Millisecond)
			}
		})
	}
	return o
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
		if resp.Err() != nil || len(resp.Events) == 0 {
			return
		}
		o.hear(time.Now(), resp.Header.RaftTerm, resp.Events...)
	}
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
		if !retry.Sleep(ctx, 5*time.Millisecond) {
			err = fmt.Errorf("the observer is at revision %d of %d: %w", o.seen(), last, ctx.Err())
		}
	}
	return err
}

const (
	stallEvery = 10 * time.Millisecond // how often this program looks whether it runs
	stallLeast = 50 * time.Millisecond // less is no stall: every busy machine is that late
)

// stalls are the times in which this program was to run and did not. Its news of etcd
// come later by as much, whatever the claims do.
type stalls struct {
	mu  sync.Mutex
	all []stall
}

type stall struct{ from, to time.Time }

// watch notes stalls until ctx ends.
func (s *stalls) watch(ctx context.Context) {
	for due := time.Now(); ctx.Err() == nil; {
		due = due.Add(stallEvery)
		retry.Sleep(ctx, time.Until(due))
		now := time.Now()
		s.note(due, now)
		due = now
	}
}

// note records that the program ran later than it was due, if that was a stall.
func (s *stalls) note(due, ran time.Time) {
	if ran.Sub(due) < stallLeast {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, stall{due, ran})
}

// within returns how much of a time was stalls.
func (s *stalls) within(from, to time.Time) (sum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		begin, end := one.from, one.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		sum += max(0, end.Sub(begin))
	}
	return sum
}
