package etcdclaims

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/localline"
	"github.com/etcdclaims/claims/internal/txn"
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

// The local waiters of a client, by package localline.
type (
	localLine   = localline.Line[*attempt, *term]
	localQueue  = localline.Queue[*attempt, *term]
	localWaiter = localline.Waiter[*attempt, *term]
)

// joinLocal makes the acquisition a local waiter of this client's own term, if there is
// one and all that it wants is the key. A slot has a line of its own.
func (c *Client) joinLocal(s *session, key string, o *acquireOptions) *localWaiter {
	t := c.keys.Term(key)
	if t == nil || t.s != s || t.put != nil || t.Mode.Keys().Record || !mayWaitLocally(s, o) {
		return nil
	}
	return c.newLocalWaiter(s, key, o, func(f *localWaiter) bool { return c.local.Join(&t.local, f) })
}

// rejoinLocal returns a new local waiter in place of one that was sent to the line. It waits
// in the same queue as the one before it, or in that of this client's own term if no other
// goes before it. Without such a queue it is nil.
func (c *Client) rejoinLocal(f *localWaiter) *localWaiter {
	if f.Before == nil {
		return c.joinLocal(f.Attempt.s, f.Attempt.user, f.Attempt.opts)
	}
	return c.newLocalWaiter(f.Attempt.s, f.Attempt.user, f.Attempt.opts, func(next *localWaiter) bool { return c.local.JoinBehind(f.Before, next) })
}

// newLocalWaiter returns a local waiter, or nil if join finds no queue for it.
func (c *Client) newLocalWaiter(s *session, key string, o *acquireOptions, join func(*localWaiter) bool) *localWaiter {
	f := localline.NewWaiter[*attempt, *term](c.newAttempt(s, o.mode, o))
	if !join(f) {
		c.keys.Unregister(f.Attempt.ID)
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
	defer c.keys.Unregister(f.Attempt.ID)
	c.stats.contended.Add(1)
	f.Attempt.opts.waits()
	defer c.removeWaiter(c.waiters.add(f.Attempt))
	defer c.ownWaits.Watch(ctx, f.Attempt.user, f.Attempt.opts.from)()
	again := arrivalAfter
	arrival := time.NewTimer(again)
	defer arrival.Stop()
	for {
		var t *term
		var cause error
		select {
		case t = <-f.Done:
		case <-arrival.C:
			if !c.local.HasArrival(f) {
				c.readArrival(ctx, f)
				again = min(2*again, time.Second)
				arrival.Reset(again) // if that came to nothing, or another asks for all
			}
			continue
		case <-f.Attempt.s.dead:
			cause = f.Attempt.s.lossOf(tokenOf(f.Attempt.user, 0))
		case <-ctx.Done():
			cause = txn.ContextError(ctx)
		}
		if cause != nil {
			if c.local.Leave(f) {
				return nil, cause
			}
			if t = <-f.Done; t == nil {
				return nil, cause
			}
		}
		if t == nil && f.Attempt.s.isLost() {
			return nil, f.Attempt.s.lossOf(tokenOf(f.Attempt.user, 0))
		}
		if t == nil {
			return nil, nil //nolint:nilnil // it goes the usual way
		}
		return c.confirm(ctx, f.Attempt, t)
	}
}

// awaitTurn waits until the local waiter before it has its place in line, waits locally again,
// or has left. If it must go on behind another one, before is that one afterwards.
func awaitTurn(ctx context.Context, f *localWaiter, limit <-chan time.Time) error {
	if f.Before == nil {
		return nil
	}
	select {
	case <-f.Before.Placed:
		f.Before = f.Before.Again
		return nil
	case <-limit:
		return nil
	case <-f.Attempt.s.dead:
		return f.Attempt.s.lossOf(tokenOf(f.Attempt.user, 0))
	case <-ctx.Done():
		return txn.ContextError(ctx)
	}
}

// waitLocally waits behind one after the other of this client's own claims on the key.
// With neither a term nor an error the acquisition must join the line in etcd. Then, or
// when it has ended otherwise, the caller calls placed, which lets the next one go on.
func (c *Client) waitLocally(ctx context.Context, f *localWaiter) (t *term, placed func(), err error) {
	s, key := f.Attempt.s, f.Attempt.user
	for {
		placed = sync.OnceFunc(func() { close(f.Placed) })
		t, err := c.awaitLocal(ctx, f)
		var next *localWaiter
		if t == nil && err == nil {
			next, err = c.goOn(ctx, f)
		}
		if next == nil {
			f.Again = f.Before // which has no place yet if this one leaves before its turn
			return t, placed, c.localWaitError(ctx, s, key, err)
		}
		f.Again = next
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
		if err := awaitTurn(ctx, f, limit); err != nil || f.Last && f.Before == nil {
			return nil, err
		}
		if f.Last {
			continue // the one before it has left, before it had a place
		}
		if next := c.rejoinLocal(f); next != nil || f.Before == nil {
			return next, nil
		}
		limit = time.After(pause) // the one before it is on its way itself
	}
}

// localWaitError is waitError for a wait behind a claim of the same client.
func (c *Client) localWaitError(ctx context.Context, s *session, key string, err error) error {
	if err == nil || txn.ContextError(ctx) == nil || errors.Is(err, ErrLost) {
		return err
	}
	var i Info
	if t := c.keys.Term(key); t != nil {
		i = t.info()
	}
	return c.waited(ctx, s, key, i)
}

// leaveTo moves the local waiters of the term behind a waiter of this client that was
// handed the key, if that has the same session: their claims will be on its lease,
// and their places are counted in their own session.
func (t *term) leaveTo(id string) {
	c := t.s.c
	w := c.waiters.get(id)
	c.local.CloseTo(&t.local, func() *localQueue {
		next := c.keys.Term(t.Key)
		switch {
		case next != nil && next.ID == id && next.s == t.s && !next.local.Closed:
			return &next.local
		case w != nil && w.a.s == t.s:
			return &w.local
		}
		return nil
	})
	if w != nil {
		c.inherit(w, c.keys.Term(t.Key))
	}
}

// inherit gives a term the local waiters that were left to it while it was waited
// for.
func (c *Client) inherit(w *waiter, t *term) {
	if t != nil && t.ID == w.a.ID {
		c.local.Inherit(&w.local, &t.local)
	}
}
