package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/wire"
)

// TryAcquire claims the key if it is free and nobody waits in line for it: one
// round trip once the client has a session. It does not wait for others: if the
// key is held the error matches ErrHeld, and says by whom.
//
// The context bounds the call only, not the claim. If it ends while the outcome
// is open, the error matches ErrUnknown and the context's, and what the call may
// have claimed is undone in the background.
//
// Without a deadline the call ends after half of Config.TTL, 5 s at least.
//
// Errors: ErrInvalidKey, ErrHeld, ErrRefused (a condition given with If),
// ErrTooLarge, ErrUnknown, ErrClosed, ErrRewound, ErrLost with
// ReasonSessionDead (the client's session was lost during the call: call again),
// and what etcd says (see go.etcd.io/etcd/api/v3/v3rpc/rpctypes).
func (c *Client) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Claim, error) {
	o, err := c.acquiring(key, opts)
	if err != nil {
		return nil, err
	}
	if c.Passthrough() {
		return &Claim{key: key}, nil
	}
	t, err := c.try(ctx, key, &o, nil)
	if err != nil {
		return nil, err
	}
	return &Claim{t: t, key: key}, nil
}

// acquiring checks what every acquiring call is given.
func (c *Client) acquiring(key string, opts []AcquireOption) (acquireOptions, error) {
	if err := checkKey(key); err != nil {
		return acquireOptions{}, err
	}
	o, err := c.options(opts)
	if err != nil {
		return o, fmt.Errorf("acquiring %q: %w", key, err)
	}
	return o, nil
}

// try acquires the key if that needs no waiting for others.
func (c *Client) try(ctx context.Context, key string, o *acquireOptions, w *workPlan) (*term, error) {
	c.stats.attempts.Add(1)
	t, err := c.acquireLoop(ctx, key, o, w, c.bound(), c.tryOnce)
	if err != nil {
		if errors.Is(err, ErrHeld) {
			c.stats.contended.Add(1)
		}
		return nil, c.acquireError(key, err)
	}
	return t, nil
}

// acquireError names the key, once.
func (c *Client) acquireError(key string, err error) error {
	var held *HeldError
	var work *WorkError
	if errors.As(err, &held) || errors.As(err, &work) || errors.Is(err, ErrClosed) {
		return err
	}
	var lost *LostError
	if errors.As(err, &lost) {
		return err
	}
	if errors.Is(err, errSessionLost) {
		return &LostError{Token: tokenOf(key, 0), Reason: ReasonSessionDead, Err: err}
	}
	return fmt.Errorf("etcdclaims: acquiring %q: %w", key, err)
}

// once makes one attempt in a session with a reserved place. Without a term,
// again says that another attempt makes sense, and err why this one failed.
type once func(ctx context.Context, s *session, key string, o *acquireOptions, w *workPlan) (t *term, again bool, err error)

// acquireLoop makes attempts until one has an answer, for as long as ctx allows,
// and about the bound if there is one.
func (c *Client) acquireLoop(ctx context.Context, key string, o *acquireOptions, w *workPlan, bound time.Duration, once once) (*term, error) {
	began := time.Now()
	for try := 0; ; try++ {
		if try == 1 && bound > 0 {
			// The first attempt is bounded by the timeouts of its requests:
			// most calls need no clock of their own.
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, bound-time.Since(began))
			defer cancel()
		}
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
			// No claim was tried for yet: the outcome is known.
			if isPassing(err) && backOff(ctx, try, c.closing) {
				continue
			}
			return nil, c.ended(failed(wire.WithCause(ctx, err)))
		}
		t, again, err := once(ctx, s, key, o, w)
		if t != nil {
			return t, nil
		}
		s.unreserve()
		if !again {
			return nil, c.ended(err)
		}
		if err == nil && try < 3 {
			continue // it has learnt something
		}
		if !backOff(ctx, try, c.closing) {
			return nil, c.ended(wire.WithCause(ctx, err))
		}
	}
}

// tryOnce takes the key or leaves it.
func (c *Client) tryOnce(ctx context.Context, s *session, key string, o *acquireOptions, w *workPlan) (t *term, again bool, err error) {
	a := c.newAttempt(s, key, o, w)
	defer c.over(a.id)
	if o.supersede {
		a.over = c.held(key)
	}
	resp, rev, err := a.send(ctx, a.tryOnce())
	switch {
	case err != nil:
		return nil, s.gone(ctx, err, len(o.ops) > 0) || isTransient(err), err
	case resp == nil && rev == 0:
		return nil, true, nil
	case resp != nil && !resp.Succeeded:
		if rev, err = a.failed(ctx, resp); rev == 0 {
			return nil, err == nil, err
		}
	case resp != nil:
		rev = resp.Header.Revision
	}
	t, err = c.grant(ctx, a, rev)
	return t, false, err
}

// grant makes the term of an attempt that succeeded, if its session is good for
// it.
func (c *Client) grant(ctx context.Context, a *attempt, rev int64) (*term, error) {
	fence := a.epoch.fence(rev)
	switch before := c.held(a.key); {
	case before == nil:
	case before.fence > fence:
		// Word of a hand-over was on its way for so long that this client has
		// claimed the key anew meanwhile.
		a.undo()
		return nil, &LostError{Token: tokenOf(a.key, fence), Reason: ReasonSuperseded}
	default:
		// Superseded on purpose, or taken away and this client yet to be told:
		// etcd has one owner.
		before.lose(ReasonSuperseded, nil)
	}
	t := a.s.newTerm(a, a.key, fence)
	if t == nil {
		a.undo()
		return nil, a.s.lossOf(a.key)
	}
	return c.confirm(ctx, a, t)
}

// confirm returns the term of an attempt that succeeded, if it is good to start
// work under.
func (c *Client) confirm(ctx context.Context, a *attempt, t *term) (*term, error) {
	if !a.s.fresh() || a.granted > 0 && a.granted <= a.s.verified.Load() {
		// A long wait or a slow answer has used up the time in which work may
		// start; or word of a hand-over was on its way for longer than it takes
		// to verify claims, and may be about one that was taken away since.
		if err := a.s.renewVerified(ctx); err != nil || !a.s.fresh() {
			t.giveUp(a)
			a.s.again()
			if cause := wire.ContextError(ctx); cause != nil {
				return nil, cause
			}
			return nil, &LostError{Token: t.token(), Reason: ReasonSessionDead, Err: fmt.Errorf("it was not renewed before work may start: %w", errors.Join(err, errSessionLost))}
		}
	}
	if err := t.ended(); err != nil {
		a.undo()
		a.s.again()
		return nil, err
	}
	c.stats.acquired.Add(1)
	if a.work != nil && a.work.orphan() {
		c.stats.tookOver.Add(1)
	}
	if hook := c.cfg.Hooks.Acquired; hook != nil {
		hook(t.token())
	}
	return t, nil
}

// giveUp ends a term that its caller never got, and deletes it in the
// background.
func (t *term) giveUp(a *attempt) {
	_ = t.begin()
	a.undo()
	t.finish(ErrReleased)
}

// again takes a place in the session once more, for a caller that gives it back.
func (s *session) again() {
	s.mu.Lock()
	s.reserved++
	s.mu.Unlock()
}

// share returns the term in which this client holds the key, with one handle
// more, or nil.
func (c *Client) share(key string) *term {
	t := c.held(key)
	if t == nil || t.work {
		return nil
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.phase != phaseHeld {
		return nil
	}
	t.refs++
	return t
}
