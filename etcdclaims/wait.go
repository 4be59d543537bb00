package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/etcdclaims/claims/internal/wire"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Acquire claims the key, waiting in line, first come first served, for as long
// as ctx allows. Nothing is polled: who releases the key hands it to the first
// in line and tells it so; the first in line watches the key, for a holder that
// dies. A hand-over costs two requests or little more, however many wait.
//
// The context bounds the waiting only, not the claim. When it ends the place in
// line is given up in the background. If the client's session is lost meanwhile
// the place is lost too, and the error matches ErrLost, with ReasonSessionDead:
// call again for a new place.
//
// Errors: as TryAcquire, but ErrHeld.
func (c *Client) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Claim, error) {
	o, err := c.acquiring(key, opts)
	if err != nil {
		return nil, err
	}
	if c.Passthrough() {
		return &Claim{key: key}, nil
	}
	t, err := c.wait(ctx, key, &o, nil)
	if err != nil {
		return nil, err
	}
	return &Claim{t: t, key: key}, nil
}

// wait acquires the key, in line where it is held.
func (c *Client) wait(ctx context.Context, key string, o *acquireOptions, w *workPlan) (*term, error) {
	c.stats.attempts.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.open, func() { cancel(ErrClosed) })()
	t, err := c.acquireLoop(ctx, key, o, w, 0, c.waitOnce)
	if err != nil {
		return nil, c.acquireError(key, err)
	}
	return t, nil
}

// waitOnce takes the key or a place in line, and waits in that.
func (c *Client) waitOnce(ctx context.Context, s *session, key string, o *acquireOptions, w *workPlan) (t *term, again bool, err error) {
	f, known := c.follow(s, key, o, w), func() {}
	if f == nil && mayFollow(s, o, w) {
		known = c.askInTurn(ctx, s, key)
		defer known()
		if f = c.follow(s, key, o, w); f != nil {
			known()
		}
	}
	if f == nil && !c.waitedFor(key) {
		// Most keys are free: to take one needs no watch.
		t, again, err := c.tryOnce(ctx, s, key, o, w)
		if !errors.Is(err, ErrHeld) {
			return t, again, err
		}
		c.waiting(key)
		if f = c.follow(s, key, o, w); f != nil {
			known()
		}
	}
	inLine := func() {}
	for f != nil {
		placed := sync.OnceFunc(func() { close(f.placed) })
		defer placed()
		if t, err := c.followed(ctx, f); t != nil || err != nil {
			return t, false, err
		}
		if err := f.turn(ctx); err != nil {
			return nil, false, err
		}
		// Whoever was before it may hold the key by now.
		var again *follower
		if !f.last {
			again = c.follow(s, key, o, w)
		}
		if again == nil {
			inLine = placed
			break
		}
		placed()
		f = again
	}
	a := c.newAttempt(s, key, o, w)
	defer c.over(a.id)
	if o.supersede {
		a.over = c.held(key)
	}
	a.enqueues = true
	news := c.expectMail(a)
	defer c.noMail(news)
	defer func() {
		c.inherit(news, t)
		if why := news.evicted.Load(); why != nil && t != nil {
			t.lose(ReasonDeleted, *why) // before anybody could look for it
		}
	}()
	resp, rev, err := a.send(ctx, a.takeOrQueue())
	switch {
	case err != nil:
		return nil, s.gone(ctx, err, len(o.ops) > 0) || isTransient(err), err
	case resp == nil && rev == 0:
		return nil, true, nil
	case resp == nil:
		t, err = c.grant(ctx, a, rev)
		return t, false, err
	case !resp.Succeeded:
		// Not even a place was taken: the epoch is another.
		err := c.store.learnEpoch(resp.Responses[0].GetResponseRange().Kvs, resp.Header.Revision)
		return nil, err == nil, err
	}
	inner := resp.Responses[0].GetResponseTxn()
	if inner.Succeeded {
		c.notWaiting(key)
		t, err = c.grant(ctx, a, resp.Header.Revision)
		return t, false, err
	}
	known()
	inLine()
	a.over = nil // in line like everybody, whatever becomes of that term
	if f == nil {
		c.stats.contended.Add(1)
	}
	a.queued = resp.Header.Revision
	p := stand{rev: resp.Header.Revision}
	if kvs := inner.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		p.own = kvs[0]
	}
	p.behind = inner.Responses[2].GetResponseRange().Count > 1 && !o.barge
	if rev := a.mine(p.own); rev > 0 {
		// A request that was carried out twice: it has joined the line behind
		// itself.
		place := c.store.layout.waiter(key, a.id)
		c.chore(s, "leaving the line", func(ctx context.Context) error {
			_, err := c.store.do(ctx, request{key: key, then: []clientv3.Op{clientv3.OpDelete(place)}})
			return err
		})
		t, err = c.grant(ctx, a, rev)
		return t, false, err
	}
	if s.manual {
		// Waiting is the client's own work: its holder renews what it holds.
		renewing, stop := context.WithCancel(c.io)
		stopped := make(chan struct{})
		c.mu.Lock()
		if !c.closed {
			c.spawn(func() {
				defer close(stopped)
				s.run(renewing)
			})
			defer func() { <-stopped }()
		}
		c.mu.Unlock()
		defer stop()
	}
	t, again, err = c.inLine(ctx, a, p, news)
	if t == nil {
		a.undo()
	}
	return t, again, err
}

// waitError says why a wait ended early.
func (c *Client) waitError(ctx context.Context, a *attempt, err error) error {
	if cause := wire.ContextError(ctx); cause != nil {
		return cause
	}
	if a.s.over() {
		return a.s.lossOf(a.key)
	}
	return err
}

// takeOrQueue claims a free key without a line, and else takes a place at the
// end of it. All of it only if the attempt is not void, so that a place cannot
// come up for a caller that is gone.
func (a *attempt) takeOrQueue() request {
	st := a.s.c.store
	if a.sharedKey() != "" && a.over == nil {
		r := a.takeIfFree()
		count := rangeOp(st.layout.waiting(a.key))
		count.GetRequestRange().CountOnly = true
		r.built.Failure = []*pb.RequestOp{
			putOp([]byte(st.layout.waiter(a.key, a.id)), a.placeValue(), a.s.id),
			getOp(r.built.Compare[0].Key),
			count, // who is before it is asked when that matters
		}
		r.nested = true
		return r
	}
	cmps := a.cmps()
	if !a.opts.barge && a.over == nil {
		cmps = append(cmps, a.s.c.nobodyInLine(a.key))
	}
	return request{
		key:  a.sharedKey(),
		cmps: []clientv3.Cmp{a.notVoid(), st.epochIs(a.epoch)},
		then: []clientv3.Op{clientv3.OpTxn(cmps, a.take(), []clientv3.Op{
			clientv3.OpPut(st.layout.waiter(a.key, a.id), a.placeValue(), clientv3.WithLease(a.s.id)),
			clientv3.OpGet(st.layout.own(a.key)),
			st.countWaiting(a.key),
		})},
		els: []clientv3.Op{clientv3.OpGet(st.layout.epoch())},
	}
}

// grantable reports whether a releaser can hand the key to the attempt.
func (a *attempt) grantable() bool {
	return a.work == nil && !a.opts.barge && a.opts.note == nil && len(a.opts.cmps)+len(a.opts.ops) == 0
}

// placeValue is what a releaser may put as the claim, or says that it must not.
func (a *attempt) placeValue() string {
	if a.grantable() {
		return a.value
	}
	return holder{Claim: a.id, Owner: a.s.c.cfg.Owner, Instance: a.s.c.store.layout.instance, Since: a.since.Time().UTC(), Kind: kindSelf}.encode()
}

// stand is what a waiter knows of its place in line: who is before it, or the
// claim if nobody is.
type stand struct {
	own, pred *mvccpb.KeyValue
	behind    bool  // somebody is before it: who, was not asked
	rev       int64 // of that knowledge
}

// inLine waits until the attempt gets the key.
func (c *Client) inLine(ctx context.Context, a *attempt, p stand, news *waiter) (t *term, again bool, err error) {
	for try := 0; ; try++ {
		if p.pred != nil || p.own != nil || p.behind {
			if err := c.await(ctx, a, p, news); err != nil {
				return nil, false, c.waitError(ctx, a, err)
			}
			try = 0
		} else if try > 0 && !backOff(ctx, try-1, a.s.dead) {
			return nil, false, c.waitError(ctx, a, errSessionLost)
		}
		if a.granted > 0 {
			t, err = c.grant(ctx, a, a.granted)
			return t, false, err
		}
		if a.work != nil {
			if err := c.admitWork(ctx, a.key, a.work); err != nil {
				return nil, false, err
			}
		}
		resp, rev, err := a.send(ctx, a.advance())
		switch {
		case err == nil && resp == nil && rev > 0:
			t, err = c.grant(ctx, a, rev)
			return t, false, err
		case err == nil && resp == nil:
			return nil, true, nil // made void, and the place with it
		case err == nil && resp.Succeeded:
			a.line = unread
			t, err = c.grant(ctx, a, resp.Header.Revision)
			return t, false, err
		case err != nil && a.s.gone(ctx, err, len(a.opts.ops) > 0):
			return nil, false, a.s.lossOf(a.key)
		case err != nil && isTransient(err):
			p = stand{} // unknown: ask again
			continue
		case err != nil:
			return nil, false, c.waitError(ctx, a, err)
		}
		var lost bool
		if p, lost, err = a.see(resp); err != nil {
			return nil, false, err
		}
		if lost {
			// By somebody's hand, or with the lease: then the session has news.
			if _ = a.s.renew(ctx); a.s.over() {
				return nil, false, a.s.lossOf(a.key)
			}
			return nil, true, nil
		}
	}
}

// advance claims the key if it is free and the attempt is first in line, and
// leaves the line with that: nobody may hand it the key again.
func (a *attempt) advance() request {
	st := a.s.c.store
	mine, line := st.layout.waiter(a.key, a.id), st.layout.waiting(a.key)
	cmps := append(a.cmps(), clientv3.Compare(clientv3.CreateRevision(mine), "=", a.queued))
	if !a.opts.barge {
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(line).WithPrefix(), ">", a.queued-1))
	}
	return request{
		key:  a.sharedKey(),
		cmps: cmps,
		then: append(a.take(), clientv3.OpDelete(mine)),
		els: append(a.look(),
			clientv3.OpGet(mine),
			clientv3.OpGet(line, append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(a.queued-1), clientv3.WithKeysOnly())...)),
	}
}

// see reads from the reply to an advance where the attempt stands. lost says
// that somebody removed its place.
func (a *attempt) see(resp *clientv3.TxnResponse) (p stand, lost bool, err error) {
	v := a.sight(resp)
	st := a.s.c.store
	if err := st.learnEpoch(v.epoch, v.rev); err != nil {
		return p, false, err
	}
	n := len(resp.Responses)
	if a.granted = a.mine(v.own); a.granted > 0 {
		a.handed()
		return stand{rev: v.rev}, false, nil
	}
	mine := resp.Responses[n-2].GetResponseRange().Kvs
	if len(mine) == 0 {
		return p, true, nil // perhaps it was handed the key, which was taken away again
	}
	p = stand{own: v.own, rev: v.rev}
	a.queued = mine[0].CreateRevision
	a.epoch = st.epoch.Load()
	a.describe()
	if kvs := resp.Responses[n-1].GetResponseRange().Kvs; len(kvs) > 0 && !a.opts.barge {
		p.pred = kvs[0]
	}
	if p.own == nil && p.pred == nil {
		if a.work != nil && a.work.changed(v.work) {
			a.describe()
			return p, false, nil
		}
		if len(a.opts.cmps) > 0 {
			return p, false, fmt.Errorf("%w: acquiring %q", ErrRefused, a.key)
		}
	}
	return p, false, nil
}
