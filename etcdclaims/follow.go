package etcdclaims

import (
	"context"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
)

// Who wants a key that its own client holds does not join the line in etcd but
// follows that term. A release hands the key to the first follower by one
// transaction under its guard, whose revision is the new fence: no event and no
// read. The other followers go on behind the new term.
//
// Waiters of other clients are not passed by that. A follower is stamped with
// the revision of the first reply to anything asked of etcd after it came: so
// whose place in line is younger than its stamp came later. A follower that
// cannot be said to have come first goes to the end of the line, as do all if the
// key goes to another client, or the term ends otherwise; in their order.

// follower is an acquisition that waits for a term of its own client.
type follower struct {
	a    *attempt
	done chan *term // its own term; nil: it goes the usual way

	// Guarded by the client's followMu:
	stamp int64
	state followState

	last bool // it goes to the end of the line, and follows nobody

	after  <-chan struct{} // closed when who is before it has a place in line
	placed chan struct{}   // closed when it has one itself, or has left
}

type followState int

const (
	following followState = iota
	handed                // a request that hands it the key is under way
	settled               // done was sent to
	left                  // nobody waits any more
)

// follow makes the acquisition a follower of this client's own term, if there is
// one and all that it wants is the key.
func (c *Client) follow(s *session, key string, o *acquireOptions, w *workPlan) *follower {
	t := c.held(key)
	if t == nil || t.s != s || t.work || !mayFollow(s, o, w) {
		return nil
	}
	f := &follower{a: c.newAttempt(s, key, o, nil), done: make(chan *term, 1), placed: make(chan struct{})}
	c.followMu.Lock()
	defer c.followMu.Unlock()
	if t.alone {
		c.over(f.a.id)
		return nil
	}
	t.followers = append(t.followers, f)
	return f
}

// mayFollow reports whether all that is wanted is the key.
func mayFollow(s *session, o *acquireOptions, w *workPlan) bool {
	a := &attempt{opts: o, work: w}
	return a.grantable() && !s.manual && !o.reentrant && !o.supersede
}

// askInTurn lets those that want one key at once ask for it one after the other:
// if the first gets the key the others can follow it, in their order, rather than
// stand in line. The caller says with known when it has its place, in whatever
// way.
func (c *Client) askInTurn(ctx context.Context, s *session, key string) (known func()) {
	mine := make(chan struct{})
	c.followMu.Lock()
	before := c.asking[key]
	c.asking[key] = mine
	c.followMu.Unlock()
	known = sync.OnceFunc(func() {
		c.followMu.Lock()
		if c.asking[key] == mine {
			delete(c.asking, key)
		}
		c.followMu.Unlock()
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

// followed waits until the follower has a term, or with neither that nor an
// error goes the usual way.
func (c *Client) followed(ctx context.Context, f *follower) (*term, error) {
	defer c.over(f.a.id)
	c.stats.contended.Add(1)
	news := c.expectMail(f.a) // of a forced release
	defer c.noMail(news)
	again := stampAfter
	stamp := time.NewTimer(again)
	defer stamp.Stop()
	for {
		var t *term
		var cause error
		select {
		case t = <-f.done:
		case <-stamp.C:
			if !c.stamped(f) {
				c.stampFollowers(ctx, f)
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
			c.followMu.Lock()
			if f.state != settled {
				f.state = left
				c.followMu.Unlock()
				return nil, cause
			}
			c.followMu.Unlock()
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

// scatterLocked sends followers the usual way, in their order.
func (c *Client) scatterLocked(fs []*follower) {
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

// scatter sends all followers of the term the usual way; from now on it has
// none.
func (t *term) scatter() {
	c := t.s.c
	c.followMu.Lock()
	defer c.followMu.Unlock()
	t.alone = true
	c.scatterLocked(t.followers)
	t.followers = nil
}

// turn waits until those that followed before have their places in line.
func (f *follower) turn(ctx context.Context) error {
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

// leaveTo lets the followers of the term go on behind a waiter of this client
// that was handed the key.
func (t *term) leaveTo(id string) {
	c := t.s.c
	w := c.waiter(id)
	c.followMu.Lock()
	fs := t.followers
	t.followers, t.alone = nil, true
	switch next := c.held(t.key); {
	case next != nil && next.id == id && !next.alone:
		next.followers = append(fs, next.followers...)
	case w != nil && !w.over:
		w.followers = fs
	default:
		c.scatterLocked(fs)
	}
	c.followMu.Unlock()
	if w != nil {
		c.inherit(w, c.held(t.key))
	}
}

// inherit gives a term the followers that were left to it while it was waited
// for.
func (c *Client) inherit(w *waiter, t *term) {
	c.followMu.Lock()
	defer c.followMu.Unlock()
	if t != nil && t.id == w.a.id && !t.alone {
		t.followers = append(w.followers, t.followers...)
		w.followers = nil
	}
}
