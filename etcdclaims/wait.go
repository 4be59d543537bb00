package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Acquire claims the key, waiting in line, first come first served, for as long
// as ctx allows. Nothing is polled: whoever waits watches the one before, and
// the first in line the claim itself. A hand-over costs the same four requests
// however many wait.
//
// The context bounds the waiting only, not the claim. When it ends the place in
// line is given up in the background. If the client's session is lost meanwhile
// the place is lost too, and the error matches ErrLost, with SessionDead as its
// reason: call again for a new place.
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
	t, err := c.waitLoop(ctx, key, o, w)
	if err != nil {
		return nil, c.acquireError(key, err)
	}
	return t, nil
}

func (c *Client) waitLoop(ctx context.Context, key string, o *acquireOptions, w *workPlan) (*term, error) {
	for try := 0; ; try++ {
		if o.reentrant {
			if t := c.share(key); t != nil {
				return t, nil
			}
		}
		if w != nil {
			if err := c.admitWork(ctx, key, w); err != nil {
				return nil, err
			}
		}
		s, err := c.session(ctx, o.ttl, o.manual)
		if err != nil {
			if !isTransient(err) && !errors.Is(err, ErrUnknown) || !backOff(ctx, try, c.closing) {
				return nil, c.ended(withCause(ctx, err))
			}
			continue
		}
		t, again, err := c.waitOnce(ctx, s, key, o, w)
		if t != nil {
			return t, nil
		}
		s.unreserve()
		if !again {
			return nil, c.ended(err)
		}
		if !backOff(ctx, try, c.closing) {
			return nil, c.ended(withCause(ctx, err))
		}
	}
}

// waitOnce takes the key or a place in line, and waits in that.
func (c *Client) waitOnce(ctx context.Context, s *session, key string, o *acquireOptions, w *workPlan) (t *term, again bool, err error) {
	a := c.newAttempt(s, key, o, w)
	if o.supersede {
		a.over = c.held(key)
	}
	a.enqueues = true
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
		// Not even a place was taken: another epoch, or conditions that do not
		// hold while the key is free.
		err := a.verdict(a.sight(resp))
		return nil, err == nil, err
	}
	inner := resp.Responses[0].GetResponseTxn()
	if inner.Succeeded {
		t, err = c.grant(ctx, a, resp.Header.Revision)
		return t, false, err
	}
	c.stats.contended.Add(1)
	a.queued = resp.Header.Revision
	var own, pred *mvccpb.KeyValue
	if kvs := inner.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		own = kvs[0]
	}
	if kvs := inner.Responses[2].GetResponseRange().Kvs; len(kvs) > 1 && !o.barge {
		pred = kvs[1]
	}
	t, again, err = c.inLine(ctx, a, place{own: own, pred: pred, rev: resp.Header.Revision})
	if t == nil {
		a.undo()
	}
	return t, again, err
}

// takeOrQueue claims a free key without a line, and else takes a place at the
// end of it. All of it only if the attempt is not void, so that a place cannot
// come up for a caller that is gone.
func (a *attempt) takeOrQueue() request {
	st := a.s.c.store
	cmps := a.cmps()
	if !a.opts.barge && a.over == nil {
		cmps = append(cmps, a.s.c.nobodyInLine(a.key))
	}
	line := st.layout.waiting(a.key)
	return request{
		cmps: []clientv3.Cmp{a.notVoid(), st.epochIs(a.epoch)},
		then: []clientv3.Op{clientv3.OpTxn(cmps, a.take(), []clientv3.Op{
			clientv3.OpPut(st.layout.waiter(a.key, a.id), a.value, clientv3.WithLease(a.s.id)),
			clientv3.OpGet(st.layout.own(a.key), clientv3.WithKeysOnly()),
			clientv3.OpGet(line, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
				clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(2)),
		})},
		els: a.look(),
	}
}

// place is what a waiter knows of its place in line: who is before it, the
// claim if nobody is.
type place struct {
	own, pred *mvccpb.KeyValue
	rev       int64 // of that knowledge
}

// inLine waits until the attempt gets the key.
func (c *Client) inLine(ctx context.Context, a *attempt, p place) (t *term, again bool, err error) {
	st := c.store
	for try := 0; ; try++ {
		switch {
		case p.pred != nil:
			err = c.awaitChange(ctx, a.s, string(p.pred.Key), p.rev)
		case p.own != nil:
			err = c.awaitChange(ctx, a.s, st.layout.own(a.key), p.rev)
		default:
			err = nil // first, and the key is free
			if try > 0 && !backOff(ctx, try-1, a.s.dead) {
				err = errSessionLost
			}
		}
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		if err != nil {
			select {
			case <-a.s.dead:
				return nil, false, a.s.lossOf(a.key)
			default:
			}
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
			t, err = c.grant(ctx, a, resp.Header.Revision)
			return t, false, err
		case err != nil && a.s.gone(ctx, err, len(a.opts.ops) > 0):
			return nil, false, a.s.lossOf(a.key)
		case err != nil && isTransient(err):
			if !backOff(ctx, try, a.s.dead) {
				return nil, false, withCause(ctx, err)
			}
			continue
		case err != nil:
			return nil, false, err
		}
		var lost bool
		if p, lost, err = a.see(resp); err != nil || lost {
			return nil, lost, err
		}
		if p.pred != nil || p.own != nil {
			try = 0
		}
	}
}

// advance claims the key if it is free and the attempt is first in line.
func (a *attempt) advance() request {
	st := a.s.c.store
	mine, line := st.layout.waiter(a.key, a.id), st.layout.waiting(a.key)
	cmps := append(a.cmps(), clientv3.Compare(clientv3.CreateRevision(mine), "=", a.queued))
	if !a.opts.barge {
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(line).WithPrefix(), ">", a.queued-1))
	}
	return request{
		cmps: cmps,
		then: append(a.take(), clientv3.OpDelete(mine)),
		els: append(a.look(),
			clientv3.OpGet(mine, clientv3.WithKeysOnly()),
			clientv3.OpGet(line, append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(a.queued-1), clientv3.WithKeysOnly())...)),
	}
}

// see reads from the reply to an advance where the attempt stands. lost says
// that somebody removed its place.
func (a *attempt) see(resp *clientv3.TxnResponse) (p place, lost bool, err error) {
	v := a.sight(resp)
	st := a.s.c.store
	if err := st.learnEpoch(v.epoch); err != nil {
		return p, false, err
	}
	a.epoch = st.epoch.Load()
	n := len(resp.Responses)
	if len(resp.Responses[n-2].GetResponseRange().Kvs) == 0 {
		return p, true, nil
	}
	p = place{own: v.own, rev: v.rev}
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

// awaitChange returns when the key was changed after the revision, or when that
// may have been missed. An error says that the session or the client ended.
func (c *Client) awaitChange(ctx context.Context, s *session, key string, rev int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	select {
	case resp, ok := <-c.etcd.Watch(ctx, key, clientv3.WithRev(rev+1)):
		if !ok || resp.Err() != nil {
			// Compacted, without leader, or refused: look again, but not at
			// once, as the reason may last.
			if !backOff(ctx, 3, s.dead) {
				return errSessionLost
			}
		}
		return nil
	case <-s.dead:
		return errSessionLost
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
