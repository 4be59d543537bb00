package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Acquire claims the key, and waits in line while it is held, first come first
// served unless callers use [Prefer]. It waits until ctx ends.
//
// Acquire does not poll. A release hands the key to the first caller in line and
// notifies it. The first caller in line also watches the key, in case the holder
// dies. A hand-over costs about two requests, no matter how many callers wait.
//
// If the holder dies, the first caller in line has the key within TTL + 1 s of
// the holder's last renewal. A lost event, or a watch that hangs, adds at most
// one renewal interval, which is a third of the caller's own TTL. At each
// verified renewal the client compares the keys that its callers wait for with
// etcd. That takes one condition for each caller, in requests of up to 128. An
// etcd member that hangs adds the timeout of each request sent to it.
//
// ctx bounds the waiting, not the claim. When ctx ends, the place in line is
// given up in the background.
//
// The place is lost with the client's session, as in an outage of etcd that
// lasts longer than the TTL. Acquire then takes another place at the end of
// the line, as soon as it has a new session.
//
// The error is a *WaitError, which names the holder, if ctx ends while the
// caller is in line. It matches ErrUnknown instead if the outcome of a request
// is open by then. It matches ErrLost only if Acquire had the key and lost
// it before it could return. Other errors are those of TryAcquire, except
// ErrHeld.
//
// If the outcome of an attempt stays unknown while ctx lasts, because etcd does
// not answer, Acquire undoes that attempt in the background and makes another.
// With Then it returns ErrUnknown, since operations are not undone.
func (c *Client) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Claim, error) {
	o, err := acquiring(c, key, opts)
	if err != nil {
		return nil, err
	}
	if c.Passthrough() {
		return passthroughClaim(o), nil
	}
	t, err := c.wait(ctx, key, o)
	if err != nil {
		return nil, err
	}
	return t.claim(), nil
}

// wait acquires the key, in line where it is held.
func (c *Client) wait(ctx context.Context, key string, o *acquireOptions) (*term, error) {
	c.stats.attempts.Add(1)
	defer c.outage.Await(key)()
	call := Call{Key: key, Wait: true}
	o.hooked = c.events.callBegan(ctx, call)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.open, func() { cancel(ErrClosed) })()
	var t *term
	err := c.awaitTurn(ctx, key, o)
	if err == nil {
		t, err = c.acquireLoop(ctx, key, o, c.waitOn)
	}
	if err != nil {
		if cause := txn.ContextError(ctx); cause != nil && goesOn(err, o) {
			err = c.ended(fmt.Errorf("the session was lost, and there is no new one yet: %w", txn.Explain(c.etcd, cause)))
		}
		err = c.acquireError(key, err)
	}
	c.events.callEnded(o.hooked, call, o.inLine, err)
	return t, err
}

// waitOn is waitOnce. If the session that it waited with is lost, or the outcome stays
// unknown, it undoes that attempt and makes another, at the end of the line. With
// operations of the caller it does not, because they are not undone.
func (c *Client) waitOn(ctx context.Context, s *session, key string, o *acquireOptions) (t *term, again bool, err error) {
	t, again, err = c.waitOnce(ctx, s, key, o)
	if t != nil || again || err == nil || txn.ContextError(ctx) != nil {
		return t, again, err
	}
	if len(o.ops) > 0 || !isOpen(err) {
		return nil, goesOn(err, o), err
	}
	if o.beside != nil {
		if cause := o.beside.Undone(ctx); cause != nil {
			return nil, false, fmt.Errorf("%w (%w)", err, cause)
		}
	}
	return nil, true, err
}

// goesOn reports whether a waiter that has lost its session may wait with another.
// It may not if another session would be lost, too. Nor may it if it had the key
// already: its operations would be carried out once more.
func goesOn(err error, o *acquireOptions) bool {
	if !errors.Is(err, errSessionLost) || errors.Is(err, ErrPermissionDenied) || errors.Is(err, ErrRewound) || errors.Is(err, ErrUnknown) {
		return false
	}
	var lost *LostError
	return len(o.ops) == 0 || errors.As(err, &lost) && lost.Token.Fence == 0
}

// isOpen reports whether the outcome of an attempt is unknown for a reason that may pass.
func isOpen(err error) bool {
	return errors.Is(err, ErrUnknown) && !errors.Is(err, ErrPermissionDenied) && isPassing(txn.Failed(err))
}

// waitOnce waits behind this client's own claims on the key. Then it takes the key if
// it is free, or a place in line, and waits there.
func (c *Client) waitOnce(ctx context.Context, s *session, key string, o *acquireOptions) (*term, bool, error) {
	f, known := c.joinLocal(s, key, o), func() {}
	if f == nil && mayWaitLocally(s, o) {
		known = c.local.AskInTurn(ctx, s.dead, key)
		defer known()
		if f = c.joinLocal(s, key, o); f != nil {
			known()
		}
	}
	if o.mode.Keys().Record {
		known = c.knowRecord(ctx, s, &o.mode)
		defer known()
	}
	if f == nil && (!c.keys.Contended(key) || o.supersede && o.beside != nil && c.keys.Term(key) != nil) {
		// Most keys are free: to take one needs no watch.
		t, again, err := c.tryOnce(ctx, s, key, o)
		if !errors.Is(err, ErrHeld) {
			return t, again, err
		}
		c.keys.SetContended(key, true)
		if f = c.joinLocal(s, key, o); f != nil {
			known()
		}
	}
	if f == nil {
		return c.waitInLine(ctx, c.newAttempt(s, o.mode, o), func() {
			known()
			c.stats.contended.Add(1)
		})
	}
	t, placed, err := c.waitLocally(ctx, f)
	defer placed()
	if t != nil || err != nil {
		return t, false, err
	}
	return c.waitInLine(ctx, c.newAttempt(s, o.mode, o), placed)
}

// waitInLine takes the key if it is free, or a place at the end of the line, and waits
// there. It calls placed when it has the place.
func (c *Client) waitInLine(ctx context.Context, a *attempt, placed func()) (t *term, again bool, err error) {
	defer c.keys.Unregister(a.ID)
	if a.opts.supersede {
		a.supersede(c.keys.Term(a.user))
	}
	a.enqueues = true
	news := c.waiters.add(a)
	defer c.removeWaiter(news)
	defer func() { c.inherit(news, t) }()
	rev, p, again, err := a.takePlace(ctx)
	if rev == 0 && p == nil {
		return nil, again, err
	}
	if p != nil {
		placed()
		a.opts.waits()
		a.supersede(nil) // in line like any caller, whatever becomes of that term
		if rev > 0 {
			a.leaveLine()
		}
	}
	if rev > 0 {
		t, err = c.grant(ctx, a, rev)
		return t, false, err
	}
	if a.s.manual {
		defer c.renewWhileWaiting(a.s)()
	}
	t, again, err = c.inLine(ctx, a, *p, news)
	if t == nil {
		a.undo()
	}
	return t, again, err
}

// takePlace takes the key if it is free, and else a place at the end of the line. It
// returns the revision at which the attempt has the key, or its position in line.
// Without either, again is whether another attempt makes sense.
func (a *attempt) takePlace(ctx context.Context) (rev int64, p *protocol.Position, again bool, err error) {
	c := a.s.c
	if a.PlaceValue = a.Value; !a.opts.grantable() {
		a.PlaceValue = a.s.c.selfServing(a)
	}
	step := protocol.Join{Try: &a.Try}
	resp, rev, err := a.send(ctx, step.Build())
	switch {
	case err != nil:
		return 0, nil, a.leaseGone(ctx, err) || txn.IsTransient(err), err
	case resp == nil:
		if rev > 0 && a.Mode.Keys().First != "" {
			a.leaveLine() // the lost request may have been carried out twice
		}
		return rev, nil, rev == 0, nil
	}
	joined, err := step.Judge((*pb.TxnResponse)(resp))
	a.learnt()
	switch {
	case err != nil:
		a.undo()
		return 0, nil, false, err
	case joined.Old:
		// Not even a place was taken: the epoch is another.
		err := c.store.LearnEpoch(joined.Epoch, joined.At)
		return 0, nil, err == nil, err
	case joined.Rev > 0 && !joined.Twice:
		c.keys.SetContended(a.user, false)
		return joined.Rev, nil, false, nil
	}
	return joined.Rev, &joined.Position, false, nil
}

// leaveLine deletes the place of an attempt whose request was carried out twice, so
// that it has joined the line behind itself. What was handed to that place is given up.
func (a *attempt) leaveLine() {
	a = a.copied()
	a.s.c.cleanUp(a.s, "leaving the line", func(ctx context.Context) error {
		resp, err := a.s.c.store.Do(ctx, protocol.Leave{Try: &a.Try}.Build())
		if err == nil {
			err = a.dropElsewhere(ctx, resp)
		}
		return err
	})
}

// renewWhileWaiting renews a Manual session until the returned function is called:
// waiting is the client's own work, its holder renews what it holds.
func (c *Client) renewWhileWaiting(s *session) (end func()) {
	renewing, stop := context.WithCancel(c.io)
	stopped := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return stop
	}
	c.spawn(func() {
		defer close(stopped)
		s.run(renewing)
	})
	return func() {
		stop()
		<-stopped
	}
}

// waitError returns why a wait ended early, with the holder of the key.
func (c *Client) waitError(ctx context.Context, a *attempt, p protocol.Position, err error) error {
	if txn.ContextError(ctx) != nil {
		var i Info
		if p.Own != nil {
			i = a.holderOf(p.Own)
		}
		return c.waited(ctx, a.s, a.user, i)
	}
	if a.s.ended() {
		return a.s.lossOf(tokenOf(a.user, 0))
	}
	return err
}

// waited returns the error of a wait whose context has ended. The session shows whether
// etcd has answered lately.
func (c *Client) waited(ctx context.Context, s *session, key string, holder Info) error {
	cause := txn.ContextError(ctx)
	if errors.Is(cause, ErrClosed) {
		return cause
	}
	g := s.lease.Load()
	if _, wall := c.clock.Now().Since(g.t0); wall > g.renew+2*g.attempt {
		cause = c.outage.Explain(fmt.Errorf("etcd has not answered for %v: %w", wall.Round(time.Second), txn.Explain(c.etcd, cause)))
	}
	return &WaitError{Key: key, Info: holder, Err: cause, own: c.isOwn(holder)}
}

// inLine waits until the attempt gets the key.
func (c *Client) inLine(ctx context.Context, a *attempt, p protocol.Position, news *waiter) (t *term, again bool, err error) {
	defer func() { a.turnOver() }()
	defer news.shortcut.Leave()
	defer c.ownWaits.Watch(ctx, a.user, a.opts.from)()
	a.inLineBeside(news)
	for try := 0; ; try++ {
		a.Over = nil
		if a.mayShare() {
			return nil, true, nil // the line would end when this client releases the key
		}
		if p.Readers {
			if p, err = a.withoutShared(ctx, p); err != nil {
				return nil, false, c.waitError(ctx, a, p, err)
			}
		}
		if p.Pred != nil || p.Own != nil || p.Behind {
			a.sawBeside(p.Own)
			if err := c.await(ctx, a, p, news); err != nil {
				return nil, false, c.waitError(ctx, a, p, err)
			}
			if try = 0; a.mayShare() {
				return nil, true, nil // before the claim ends, which a request may outlast
			}
		} else if try > 0 && !p.Next && !retry.PauseUnless(ctx, a.s.dead, try-1) {
			return nil, false, c.waitError(ctx, a, p, errSessionLost)
		}
		if a.granted > 0 {
			t, err = c.grant(ctx, a, a.granted)
			return t, false, err
		}
		if again, err := a.prepareBeside(ctx, try); err != nil {
			return nil, false, c.waitError(ctx, a, p, err)
		} else if again {
			p = protocol.Position{}
			continue
		}
		resp, rev, err := a.advanceInTurn(ctx)
		switch {
		case err == nil && resp == nil && rev > 0:
			news.shortcut.Took(a.Over, a.Epoch.Fence(rev))
			t, err = c.grant(ctx, a, rev)
			return t, false, err
		case err == nil && resp == nil:
			return nil, true, nil // made void, and the place with it
		case err == nil && resp.Succeeded:
			news.shortcut.Took(a.Over, a.Epoch.Fence(resp.Header.Revision))
			a.line = protocol.Unread
			a.Granted(resp.Header.Revision)
			t, err = c.grant(ctx, a, resp.Header.Revision)
			return t, false, err
		case err != nil && a.s.gone(ctx, err, a.namesLeases()):
			return nil, false, a.s.lossOf(tokenOf(a.user, 0))
		case err != nil && (news.shortcut.Failed(a.Over, err) || txn.IsTransient(err) || a.leaseGone(ctx, err)):
			p = protocol.Position{} // unknown: ask again
			continue
		case errors.Is(err, ErrUnknown) && (len(a.opts.ops) > 0 || txn.ContextError(ctx) != nil):
			return nil, false, txn.WithCause(ctx, err)
		case err != nil:
			return nil, false, c.waitError(ctx, a, p, err)
		}
		var lost bool
		if p, lost, err = a.see(resp); err != nil {
			return nil, false, err
		}
		if lost {
			again, err = a.placeGone(ctx)
			return nil, again, err
		}
	}
}

// placeGone reports whether an attempt without its place may take another: an operator
// deleted the place, or the lease ended, and then the session knows.
func (a *attempt) placeGone(ctx context.Context) (again bool, err error) {
	if _ = a.s.renew(ctx); a.s.ended() {
		return false, a.s.lossOf(tokenOf(a.user, 0))
	}
	return true, nil
}
