package etcdclaims

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/wire"
)

// A caller that wants a key that a claim of the same session of its client holds does not
// join the line in etcd. It becomes a local waiter of that term. A release hands the key to the first
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

	// Guarded by the mutex of localLine:
	arrival int64
	state   localState
	in      *localQueue // that it waits in, or was handed the key from; nil once it was sent to the line

	// Written under that mutex before done is sent to, and read after done was
	// received from:
	last   bool         // it goes to the end of the line, behind no other local waiter
	before *localWaiter // the one that goes to the line before it

	placed chan struct{} // closed when it has a place in line, has left, or waits locally again

	// Those that wait for placed go on behind this one: the local waiter that took its place,
	// or, if it left, the one before it. Written before placed is closed.
	again *localWaiter
}

type localState int

const (
	waitingLocally localState = iota
	handed                    // a request that hands it the key is under way
	settled                   // done was sent to
	left                      // no caller waits any more
)

// joinLocal makes the acquisition a local waiter of this client's own term, if there is
// one and all that it wants is the key. A slot has a line of its own.
func (c *Client) joinLocal(s *session, key string, o *acquireOptions) *localWaiter {
	t := c.keys.term(key)
	if t == nil || t.s != s || t.put != nil || t.Mode.Keys().Record || !mayWaitLocally(s, o) {
		return nil
	}
	return c.newLocalWaiter(s, key, o, func(f *localWaiter) bool { return c.local.join(&t.local, f) })
}

// rejoinLocal returns a new local waiter in place of one that was sent to the line. It waits
// in the same queue as the one before it, or in that of this client's own term if no other
// goes before it. Without such a queue it is nil.
func (c *Client) rejoinLocal(f *localWaiter) *localWaiter {
	if f.before == nil {
		return c.joinLocal(f.a.s, f.a.user, f.a.opts)
	}
	return c.newLocalWaiter(f.a.s, f.a.user, f.a.opts, func(next *localWaiter) bool { return c.local.joinBehind(f.before, next) })
}

// newLocalWaiter returns a local waiter, or nil if join finds no queue for it.
func (c *Client) newLocalWaiter(s *session, key string, o *acquireOptions, join func(*localWaiter) bool) *localWaiter {
	f := &localWaiter{a: c.newAttempt(s, o.mode, o), done: make(chan *term, 1), placed: make(chan struct{})}
	if !join(f) {
		c.keys.unregister(f.a.ID)
		return nil
	}
	return f
}

// mayWaitLocally reports whether the acquisition wants nothing but the key, which has no record.
func mayWaitLocally(s *session, o *acquireOptions) bool {
	return o.grantable() && !s.manual && !o.reentrant && !o.supersede && !o.prefers && !o.mode.Keys().Record
}

// awaitLocal waits until the local waiter has a term, or with neither that nor an
// error goes the usual way.
func (c *Client) awaitLocal(ctx context.Context, f *localWaiter) (*term, error) {
	defer c.keys.unregister(f.a.ID)
	c.stats.contended.Add(1)
	f.a.opts.waits()
	defer c.removeWaiter(c.waiters.add(f.a))
	defer c.ownWaits.Watch(ctx, f.a.user, f.a.opts.from)()
	again := arrivalAfter
	arrival := time.NewTimer(again)
	defer arrival.Stop()
	for {
		var t *term
		var cause error
		select {
		case t = <-f.done:
		case <-arrival.C:
			if !c.local.hasArrival(f) {
				c.readArrival(ctx, f)
				again = min(2*again, time.Second)
				arrival.Reset(again) // if that came to nothing, or another asks for all
			}
			continue
		case <-f.a.s.dead:
			cause = f.a.s.lossOf(tokenOf(f.a.user, 0))
		case <-ctx.Done():
			cause = wire.ContextError(ctx)
		}
		if cause != nil {
			if c.local.leave(f) {
				return nil, cause
			}
			if t = <-f.done; t == nil {
				return nil, cause
			}
		}
		if t == nil && f.a.s.isLost() {
			return nil, f.a.s.lossOf(tokenOf(f.a.user, 0))
		}
		if t == nil {
			return nil, nil //nolint:nilnil // it goes the usual way
		}
		return c.confirm(ctx, f.a, t)
	}
}

// awaitTurn waits until the local waiter before it has its place in line, waits locally again,
// or has left. If it must go on behind another one, before is that one afterwards.
func (f *localWaiter) awaitTurn(ctx context.Context, limit <-chan time.Time) error {
	if f.before == nil {
		return nil
	}
	select {
	case <-f.before.placed:
		f.before = f.before.again
		return nil
	case <-limit:
		return nil
	case <-f.a.s.dead:
		return f.a.s.lossOf(tokenOf(f.a.user, 0))
	case <-ctx.Done():
		return wire.ContextError(ctx)
	}
}

// waitLocally waits behind one after the other of this client's own claims on the key.
// With neither a term nor an error the acquisition must join the line in etcd. Then, or
// when it has ended otherwise, the caller calls placed, which lets the next one go on.
func (c *Client) waitLocally(ctx context.Context, f *localWaiter) (t *term, placed func(), err error) {
	s, key := f.a.s, f.a.user
	for {
		placed = sync.OnceFunc(func() { close(f.placed) })
		t, err := c.awaitLocal(ctx, f)
		var next *localWaiter
		if t == nil && err == nil {
			next, err = c.goOn(ctx, f)
		}
		if next == nil {
			f.again = f.before // which has no place yet if this one leaves before its turn
			return t, placed, c.localWaitError(ctx, s, key, err)
		}
		f.again = next
		placed()
		f = next
	}
}

// goOn waits for the turn of a local waiter that was sent to the line. It returns the one that
// now waits in its place for another claim of this client. With neither that nor an error
// the caller must join the line in etcd.
func (c *Client) goOn(ctx context.Context, f *localWaiter) (next *localWaiter, err error) {
	var limit <-chan time.Time
	for pause := arrivalAfter; ; pause = min(2*pause, time.Second) {
		if err := f.awaitTurn(ctx, limit); err != nil || f.last && f.before == nil {
			return nil, err
		}
		if f.last {
			continue // the one before it has left, before it had a place
		}
		if next := c.rejoinLocal(f); next != nil || f.before == nil {
			return next, nil
		}
		limit = time.After(pause) // the one before it is on its way itself
	}
}

// localWaitError is waitError for a wait behind a claim of the same client.
func (c *Client) localWaitError(ctx context.Context, s *session, key string, err error) error {
	if err == nil || wire.ContextError(ctx) == nil || errors.Is(err, ErrLost) {
		return err
	}
	var i Info
	if t := c.keys.term(key); t != nil {
		i = t.info()
	}
	return c.waited(ctx, s, key, i)
}
