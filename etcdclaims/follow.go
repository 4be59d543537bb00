package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
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

// stampAfter is how long a follower waits to be stamped by the reply to somebody
// else's request before it asks itself.
const stampAfter = 2 * time.Millisecond

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
	enough := time.NewTimer(hanging)
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
			cause = f.a.s.lossOf(f.a.key)
		case <-ctx.Done():
			cause = contextError(ctx)
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
			return nil, f.a.s.lossOf(f.a.key)
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

// stampFollowers stamps those that follow now, unless there is somebody of
// another client in line already: then they join it, behind.
func (c *Client) stampFollowers(ctx context.Context, f *follower) {
	t := c.held(f.a.key)
	if t == nil {
		return
	}
	c.followMu.Lock()
	if t.stamping {
		c.followMu.Unlock()
		return
	}
	t.stamping = true
	there := slices.Clone(t.followers)
	c.followMu.Unlock()
	defer func() {
		c.followMu.Lock()
		t.stamping = false
		c.followMu.Unlock()
	}()
	line := c.store.layout.waiting(f.a.key)
	resp, err := c.store.do(ctx, request{then: []clientv3.Op{clientv3.OpGet(line, clientv3.WithPrefix(), clientv3.WithKeysOnly())}})
	if err != nil {
		return // without a stamp it gives way
	}
	foreign := func(kv *mvccpb.KeyValue) bool { return c.waiter(path.Base(string(kv.Key))) == nil }
	if !slices.ContainsFunc(resp.Responses[0].GetResponseRange().Kvs, foreign) {
		c.stamp(there, resp.Header.Revision)
		return
	}
	c.followMu.Lock()
	defer c.followMu.Unlock()
	var late []*follower
	t.followers = slices.DeleteFunc(t.followers, func(o *follower) bool {
		if o.stamp > 0 || !slices.Contains(there, o) {
			return false
		}
		o.last = true
		late = append(late, o)
		return true
	})
	c.scatterLocked(late)
}

// followersOf returns who follows a term now, and stamp notes that they did
// before a revision.
func (c *Client) followersOf(t *term) []*follower {
	c.followMu.Lock()
	defer c.followMu.Unlock()
	if len(t.followers) == 0 {
		return nil
	}
	return slices.Clone(t.followers)
}

func (c *Client) stamp(fs []*follower, rev int64) {
	if len(fs) == 0 {
		return
	}
	c.followMu.Lock()
	defer c.followMu.Unlock()
	for _, f := range fs {
		if f.stamp == 0 {
			f.stamp = rev
		}
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
		return f.a.s.lossOf(f.a.key)
	case <-ctx.Done():
		return contextError(ctx)
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

// passOn hands the key to the first follower, if there is one and nobody else
// came before it. Otherwise the caller goes on to release it, with what is known
// of the line by then.
func (t *term) passOn(ctx context.Context) (passed bool, err error) {
	c, st := t.s.c, t.s.c.store
	f := t.firstFollower()
	if f == nil && t.followed {
		// Who held it before may be about to come back: to see that costs
		// less than a request.
		for range 20 {
			runtime.Gosched()
			if f = t.firstFollower(); f != nil {
				break
			}
		}
	}
	if f == nil {
		return false, nil
	}
	if len(t.line.next) == 0 && t.line.more {
		if resp, err := st.do(ctx, t.looking()); err == nil && t.stillOwned(resp) {
			t.line = lineIn(resp)
		}
	}
	c.begun(f.a.id) // whether or not its caller waits for it
	defer c.over(f.a.id)
	sent := false
	for try := 0; ; try++ {
		if len(t.line.next) > 0 && !sent && !c.cameFirst(f, t.line.next[0]) {
			c.unhand(t, f)
			return false, nil
		}
		there := c.followersOf(t)
		in := t.leaving()
		in.Compare = append(in.Compare, modifiedAt(st.epochKey, t.epoch))
		in.Success[0] = putOp(in.Compare[0].Key, f.a.value, t.s.id) // not deleted, but put
		in.Failure = t.lookBehind()
		if len(t.line.next) == 0 {
			in.Compare = append(in.Compare, noneUnder(st.layout.waiting(t.key)))
		}
		resp, err := st.do(ctx, request{key: t.key, built: in})
		switch {
		case err == nil && resp.Succeeded:
			c.stamp(there, resp.Header.Revision)
			t.succeed(f, resp.Header.Revision)
			return true, nil
		case err == nil:
			if rev := f.a.mine(firstKV(resp, 0)); rev > 0 {
				t.succeed(f, rev) // by a request whose reply was lost
				return true, nil
			}
			if !t.stillOwned(resp) {
				c.unhand(t, f)
				t.scatter()
				return false, nil
			}
			t.line = lineIn(resp)
			continue
		case errors.Is(err, ErrUnknown):
			sent = true
		case !isTransient(err):
			if !sent {
				c.unhand(t, f)
				t.scatter()
				return false, nil
			}
		}
		if try == 0 {
			var cancel context.CancelFunc
			ctx, cancel = t.s.within(ctx)
			defer cancel()
		}
		if backOff(ctx, try, t.done) {
			continue
		}
		if !sent {
			c.unhand(t, f)
			t.scatter()
			return false, nil
		}
		// It may yet be carried out, or was: both are undone, one after the other.
		value := f.a.hasKey()
		own := st.layout.own(t.key)
		c.addChore(&chore{s: t.s, claim: f.a.id, what: "releasing a claim", do: func(ctx context.Context) error {
			if _, err := st.do(ctx, t.deletion()); err != nil {
				return err
			}
			_, err := st.do(ctx, request{key: t.key, cmps: value, then: []clientv3.Op{clientv3.OpDelete(own)}})
			return err
		}})
		c.unhand(t, f)
		t.finish(ErrReleased)
		return true, fmt.Errorf("etcdclaims: releasing %q: %w: %w", t.key, ErrUnknown, withCause(ctx, err))
	}
}

// firstFollower takes the first follower that still waits.
func (t *term) firstFollower() *follower {
	c := t.s.c
	c.followMu.Lock()
	defer c.followMu.Unlock()
	for len(t.followers) > 0 {
		f := t.followers[0]
		t.followers = t.followers[1:]
		if f.state == left {
			continue
		}
		f.state = handed
		if e := f.a.epoch; e.value != t.fence>>epochShift || e.rev != t.epoch {
			f.a.epoch = &epoch{value: t.fence >> epochShift, rev: t.epoch}
			f.a.describe()
		}
		return f
	}
	return nil
}

// unhand puts a follower back to the front that was not handed the key.
func (c *Client) unhand(t *term, f *follower) {
	c.followMu.Lock()
	defer c.followMu.Unlock()
	if f.state == handed {
		f.state = following
		t.followers = append([]*follower{f}, t.followers...)
	}
}

func (c *Client) stamped(f *follower) bool {
	c.followMu.Lock()
	defer c.followMu.Unlock()
	return f.stamp > 0
}

// cameFirst reports whether a follower is known to have come before a place in
// line.
func (c *Client) cameFirst(f *follower, p place) bool {
	c.followMu.Lock()
	defer c.followMu.Unlock()
	return f.stamp > 0 && f.stamp < p.Rev
}

// succeed makes the term of the follower that was handed the key, and ends this
// one.
func (t *term) succeed(f *follower, rev int64) {
	c := t.s.c
	f.a.granted, f.a.line, f.a.followed = rev, t.line, true
	c.followMu.Lock()
	abandoned := f.state == left
	if !abandoned {
		f.state = settled // its caller waits for done from here on
	}
	c.followMu.Unlock()
	if abandoned {
		t.s.again() // its place in the session was given back
	}
	next := t.s.newTerm(f.a, t.key, f.a.epoch.fence(rev))
	if next == nil { // the session is dead, and all know
		t.finish(ErrReleased)
		if !abandoned {
			f.done <- nil
		}
		return
	}
	c.followMu.Lock()
	if next.alone { // it has ended already
		c.scatterLocked(t.followers)
	} else {
		next.followers = append(t.followers, next.followers...)
	}
	t.followers, t.alone = nil, true
	if !abandoned {
		f.done <- next
	}
	c.followMu.Unlock()
	t.finish(ErrReleased)
	if abandoned && next.begin() == nil {
		// Its caller has gone meanwhile: to whom it concerns next.
		c.addChore(&chore{s: t.s, claim: next.id, what: "handing on a claim that was given up", do: func(ctx context.Context) error {
			_ = next.drop(ctx, nil)
			return nil
		}})
	}
}
