package etcdclaims

import (
	"context"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
)

// A caller that wants a key that its own client holds does not join the line in
// etcd. It becomes a local waiter of that term. A release hands the key to the first
// local waiter in one transaction under its guard, whose revision is the new fence:
// no event and no read. The other local waiters then wait for the new term.
//
// That must not pass waiters of other clients. The arrival of a local waiter is the
// revision of the first reply to any request that was sent after it came. A place in
// line that is younger than the arrival was taken later. A local waiter that cannot
// be shown to have come first goes to the end of the line. So do all, in their
// order, if the key goes to another client or the term ends otherwise.

// localWaiter is an acquisition that waits for a term of its own client.
type localWaiter struct {
	a    *attempt
	done chan *term // its own term; nil: it goes the usual way

	// Guarded by the client's localMu:
	arrival int64
	state   localState

	last bool // it goes to the end of the line, and follows nobody

	after  <-chan struct{} // closed when who is before it has a place in line
	placed chan struct{}   // closed when it has one itself, or has left
}

type localState int

const (
	waitingLocally localState = iota
	handed                    // a request that hands it the key is under way
	settled                   // done was sent to
	left                      // nobody waits any more
)

// joinLocal makes the acquisition a local waiter of this client's own term, if there is
// one and all that it wants is the key.
func (c *Client) joinLocal(s *session, key string, o *acquireOptions, w *workPlan) *localWaiter {
	t := c.keys.term(key)
	if t == nil || t.s != s || t.work || !mayWaitLocally(s, o, w) {
		return nil
	}
	f := &localWaiter{a: c.newAttempt(s, key, o, nil), done: make(chan *term, 1), placed: make(chan struct{})}
	c.localMu.Lock()
	defer c.localMu.Unlock()
	if t.closed {
		c.keys.unregister(f.a.id)
		return nil
	}
	t.localWaiters = append(t.localWaiters, f)
	return f
}

// mayWaitLocally reports whether the acquisition wants nothing but the key.
func mayWaitLocally(s *session, o *acquireOptions, w *workPlan) bool {
	a := &attempt{opts: o, work: w}
	return a.grantable() && !s.manual && !o.reentrant && !o.supersede
}

// askInTurn lets those that want one key at once ask for it one after the other:
// if the first gets the key the others can follow it, in their order, rather than
// stand in line. The caller says with known when it has its place, in whatever
// way.
func (c *Client) askInTurn(ctx context.Context, s *session, key string) (known func()) {
	mine := make(chan struct{})
	c.localMu.Lock()
	before := c.asking[key]
	c.asking[key] = mine
	c.localMu.Unlock()
	known = sync.OnceFunc(func() {
		c.localMu.Lock()
		if c.asking[key] == mine {
			delete(c.asking, key)
		}
		c.localMu.Unlock()
		close(mine)
	})
	if before == nil {
		return known
	}
	enough := time.NewTimer(txn.Hanging)
	defer enough.Stop()
	select {
	case <-before:
	case <-enough.C:
	case <-s.dead:
	case <-ctx.Done():
	}
	return known
}

// awaitLocal waits until the local waiter has a term, or with neither that nor an
// error goes the usual way.
func (c *Client) awaitLocal(ctx context.Context, f *localWaiter) (*term, error) {
	defer c.keys.unregister(f.a.id)
	c.stats.contended.Add(1)
	f.a.opts.waits()
	news := c.addWaiter(f.a) // of a forced release
	defer c.removeWaiter(news)
	again := arrivalAfter
	stamp := time.NewTimer(again)
	defer stamp.Stop()
	for {
		var t *term
		var cause error
		select {
		case t = <-f.done:
		case <-stamp.C:
			if !c.hasArrival(f) {
				c.readArrival(ctx, f)
				again = min(2*again, time.Second)
				stamp.Reset(again) // if that came to nothing, or another asks for all
			}
			continue
		case <-f.a.s.dead:
			cause = f.a.s.lossOf(f.a.key, 0)
		case <-ctx.Done():
			cause = wire.ContextError(ctx)
		}
		if cause != nil {
			c.localMu.Lock()
			if f.state != settled {
				f.state = left
				c.localMu.Unlock()
				return nil, cause
			}
			c.localMu.Unlock()
			if t = <-f.done; t == nil {
				return nil, cause
			}
		}
		if t == nil && f.a.s.isLost() {
			return nil, f.a.s.lossOf(f.a.key, 0)
		}
		if t == nil {
			return nil, nil //nolint:nilnil // it goes the usual way
		}
		t, err := c.confirm(ctx, f.a, t)
		if why := news.evicted.Load(); why != nil && t != nil {
			t.lose(ReasonDeleted, *why)
		}
		return t, err
	}
}

// requeueLocked sends local waiters to the line in etcd, in their order.
func (c *Client) requeueLocked(fs []*localWaiter) {
	var before <-chan struct{}
	for _, f := range fs {
		if f.state == left {
			continue
		}
		f.state, f.after = settled, before
		before = f.placed
		f.done <- nil
	}
}

// requeueLocal sends all local waiters of the term to the line in etcd. From now on
// the term has none.
func (t *term) requeueLocal() {
	c := t.s.c
	c.localMu.Lock()
	defer c.localMu.Unlock()
	t.closed = true
	c.requeueLocked(t.localWaiters)
	t.localWaiters = nil
}

// awaitTurn waits until the local waiters before it have their places in line.
func (f *localWaiter) awaitTurn(ctx context.Context) error {
	if f.after == nil {
		return nil
	}
	select {
	case <-f.after:
		return nil
	case <-f.a.s.dead:
		return f.a.s.lossOf(f.a.key, 0)
	case <-ctx.Done():
		return wire.ContextError(ctx)
	}
}

// leaveTo lets the local waiters of the term go on behind a waiter of this client
// that was handed the key.
func (t *term) leaveTo(id string) {
	c := t.s.c
	w := c.waiter(id)
	c.localMu.Lock()
	fs := t.localWaiters
	t.localWaiters, t.closed = nil, true
	switch next := c.keys.term(t.key); {
	case next != nil && next.id == id && !next.closed:
		next.localWaiters = append(fs, next.localWaiters...)
	case w != nil && !w.removed:
		w.localWaiters = fs
	default:
		c.requeueLocked(fs)
	}
	c.localMu.Unlock()
	if w != nil {
		c.inherit(w, c.keys.term(t.key))
	}
}

// inherit gives a term the local waiters that were left to it while it was waited
// for.
func (c *Client) inherit(w *waiter, t *term) {
	c.localMu.Lock()
	defer c.localMu.Unlock()
	if t != nil && t.id == w.a.id && !t.closed {
		t.localWaiters = append(w.localWaiters, t.localWaiters...)
		w.localWaiters = nil
	}
}
