package etcdclaims

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/ownwait"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TryAcquire claims the key if it is free and no other caller waits in line
// for it. It does not wait for a holder. It takes one round trip once the
// client has a session.
//
// ctx bounds the call, not the claim. The call also ends after
// max(Config.TTL/2, 5 s). If it ends while the outcome is open, the error
// matches ErrUnknown and, if ctx ended, its cause. A claim that the request may
// have made is then undone in the background.
//
// Calls of one client for one key that are made at the same time share a
// request and its answer. With Slots they share refusals.
//
// The error matches:
//
//   - ErrInvalidKey if the key is invalid or kept for the SDK, ErrTooLarge if the options
//     exceed a limit.
//   - ErrHeld if the key is held or other callers wait in line; it is a
//     *HeldError.
//   - ErrRefused if a condition given with If does not hold.
//   - ErrUnknown if the outcome is not known.
//   - ErrLost, with ReasonSessionDead, if the client's session was lost
//     during the call. Call again.
//   - ErrClosed, ErrRewound or ErrPermissionDenied.
//
// Other errors are those of etcd; see go.etcd.io/etcd/api/v3/v3rpc/rpctypes.
func (c *Client) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Claim, error) {
	o, err := acquiring(c, key, opts)
	if err != nil {
		return nil, err
	}
	if c.Passthrough() {
		return passthroughClaim(o), nil
	}
	t, err := c.try(ctx, key, o)
	if err != nil {
		return nil, err
	}
	return t.claim(), nil
}

// acquiring checks what every acquiring call is given.
func acquiring[O any](c *Client, key string, opts []O) (*acquireOptions, error) {
	o, err := optionsOf(c, opts)
	if invalid := o.checkKey(key); invalid != nil {
		return nil, cmp.Or(c.refusal(), invalid)
	}
	if err == nil {
		o.from = ownwait.Caller()
	}
	if err == nil {
		o.mode, err = o.kind.of(c.layout(), key)
	}
	if err != nil {
		return o, callError("acquire", key, err)
	}
	if o.beside != nil {
		o.beside.Begin(beside.Call{TTL: o.ttl, Note: o.note, Supersede: o.supersede, OutOfTurn: o.supersede || o.prefers})
	}
	return o, nil
}

// try acquires the key if that needs no waiting for others.
func (c *Client) try(ctx context.Context, key string, o *acquireOptions) (*term, error) {
	c.stats.attempts.Add(1)
	o.until = clock.Mono().Add(c.bound())
	o.shares = len(o.cmps)+len(o.ops) == 0 && !o.supersede
	call := Call{Key: key}
	o.hooked = c.events.callBegan(ctx, call)
	t, err := c.acquireLoop(ctx, key, o, c.tryOnce)
	if err != nil {
		if errors.Is(err, ErrHeld) {
			c.stats.contended.Add(1)
		}
		err = c.acquireError(key, err)
	}
	c.events.callEnded(o.hooked, call, o.inLine, err)
	return t, err
}

// acquireError names the call and the key, once.
func (c *Client) acquireError(key string, err error) error {
	var held *HeldError
	var verdict *beside.Verdict
	var lost *LostError
	var wait *WaitError
	if errors.As(err, &held) || errors.As(err, &verdict) || errors.As(err, &lost) || errors.As(err, &wait) {
		return err
	}
	if errors.Is(err, errSessionLost) {
		return &LostError{Token: tokenOf(key, 0), Reason: ReasonSessionDead, Err: err}
	}
	return callError("acquire", key, c.outage.Explain(err))
}

// attemptFunc makes one attempt in a session with a reserved place. Without a term,
// again is true if another attempt makes sense, and err is why this one failed.
type attemptFunc func(ctx context.Context, s *session, key string, o *acquireOptions) (t *term, again bool, err error)

// mostRefusals is how often a call for a shared key tries again without a pause: others put
// and delete its record all the time.
const mostRefusals = 32

// acquireLoop makes attempts until one has an answer, for as long as ctx and the
// call's own end allow.
func (c *Client) acquireLoop(ctx context.Context, key string, o *acquireOptions, makeAttempt attemptFunc) (*term, error) {
	for try := 0; ; try++ {
		if try == 1 && !o.until.IsZero() {
			// The first attempt keeps to its time without a context: most calls
			// need no clock of their own.
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, o.until)
			defer cancel()
			defer c.outage.Await(key)()
		}
		if o.reentrant {
			if t := c.share(key); t != nil {
				return t, nil
			}
		}
		if err := txn.ContextError(ctx); err != nil && try == 0 {
			return nil, c.ended(notAttempted(err))
		}
		if o.beside != nil {
			if err := o.beside.Prepare(ctx); err != nil {
				if isPassing(err) && retry.PauseUnless(ctx, c.closing, try) {
					continue // no claim was tried for yet
				}
				return nil, c.ended(txn.WithCause(ctx, err))
			}
		}
		var t *term
		var again bool
		var err error
		if o.shares {
			t, again, err = c.attemptTogether(ctx, key, o, makeAttempt)
		} else {
			t, again, err = c.attemptAlone(ctx, key, o, makeAttempt)
		}
		if o.reentrant && errors.Is(err, ErrHeld) {
			t, again = c.shareAfter(err, key)
		}
		again = again || o.supersede && c.supersedable(err, key)
		if t != nil {
			return t, nil
		}
		if !again {
			return nil, c.ended(err)
		}
		if err == nil && (try < 3 || o.mode.Keys().Mark != "" && try < mostRefusals) {
			continue // it has learnt something
		}
		if !retry.PauseUnless(ctx, c.closing, try) {
			return nil, c.ended(txn.WithCause(ctx, err))
		}
	}
}

// attemptAlone makes one attempt.
func (c *Client) attemptAlone(ctx context.Context, key string, o *acquireOptions, makeAttempt attemptFunc) (t *term, again bool, err error) {
	s, err := c.session(ctx, o.ttl, o.manual)
	if err != nil {
		// No claim was tried for yet: the outcome is known.
		return nil, isPassing(err), txn.WithCause(ctx, txn.Failed(err))
	}
	if t, again, err = makeAttempt(ctx, s, key, o); t == nil {
		s.unreserve()
	}
	return t, again, err
}

// tryOnce takes the key or leaves it.
func (c *Client) tryOnce(ctx context.Context, s *session, key string, o *acquireOptions) (t *term, again bool, err error) {
	a := c.newAttempt(s, o.mode, o)
	defer c.keys.Unregister(a.ID)
	if o.supersede {
		a.supersede(c.keys.Term(key))
	}
	resp, err := c.store.Do(ctx, a.takeOnce())
	return c.conclude(ctx, a, resp, err)
}

// conclude makes of the reply to a take, or its failure, a term, an error, or the wish for another
// attempt.
func (c *Client) conclude(ctx context.Context, a *attempt, resp *clientv3.TxnResponse, err error) (t *term, again bool, _ error) {
	resp, rev, err := a.settled(ctx, resp, err)
	switch {
	case err != nil:
		return nil, a.leaseGone(ctx, err) || txn.IsTransient(err), err
	case resp == nil && rev == 0:
		return nil, true, nil
	case resp != nil:
		if rev, err = a.judged(ctx, resp); rev == 0 {
			return nil, err == nil, err
		}
	}
	t, err = c.grant(ctx, a, rev)
	return t, false, err
}

// grant makes the term of an attempt that succeeded, if its session is good for
// it.
func (c *Client) grant(ctx context.Context, a *attempt, rev int64) (t *term, err error) {
	fence := a.Epoch.Fence(rev)
	defer func() {
		if !errors.Is(err, ErrLost) {
			err = afterSent(len(a.opts.ops) > 0, err) // they were carried out with the claim
		}
	}()
	if a.opts.beside != nil {
		a.overtakes = a.opts.beside.Granted(a.supersedes != nil)
	}
	switch before := c.keys.Term(a.claimKey()); {
	case before == nil:
	case before.Fence > fence:
		// Word of a hand-over was on its way for so long that this client has
		// claimed the key anew meanwhile.
		a.undo()
		return nil, &LostError{Token: protocol.Token(a.Mode, fence), Reason: ReasonSuperseded}
	default:
		// Superseded on purpose, or taken away without this client noticing yet:
		// etcd has one owner.
		before.lose(ReasonSuperseded, nil)
	}
	if t = a.s.newTerm(a, fence); t == nil {
		a.undo()
		if c.open.Err() != nil {
			return nil, ErrClosed
		}
		return nil, a.s.lossOf(protocol.Token(a.Mode, fence))
	}
	return c.confirm(ctx, a, t)
}

// confirm returns the term of an attempt that succeeded, if it is good to start
// work under.
func (c *Client) confirm(ctx context.Context, a *attempt, t *term) (*term, error) {
	if why, lost := c.keys.Taken(t.ID, t.Key); lost { // word of that has overtaken the reply
		t.lose(why.reason, why.err)
	}
	if !a.s.fresh() || a.granted > 0 && a.granted <= a.s.verified.Load() {
		// A long wait or a slow answer has used up the time in which work may
		// start. Or the handoff notice took longer to arrive than a verification
		// takes, and the claim may have been taken away since.
		if err := c.renewFirst(ctx, a, t); err != nil {
			return nil, err
		}
	} else if a.s.manual && !a.s.young() {
		// Its holder may count on all of the lease, not on what the wait has left.
		if err := c.renewFirst(ctx, a, t); err != nil {
			return nil, err
		}
	}
	if err := t.ended(); err != nil {
		a.undo()
		a.s.again()
		return nil, err
	}
	if c.open.Err() != nil {
		t.giveUp(a)
		a.s.again()
		return nil, ErrClosed
	}
	t.mayBeShared()
	c.stats.acquired.Add(1)
	c.events.termBegan(t, a)
	return t, nil
}

// renewFirst renews the session before work may start under the term, or gives the
// term up.
func (c *Client) renewFirst(ctx context.Context, a *attempt, t *term) error {
	renewing, cancel := ctx, context.CancelFunc(func() {})
	if !a.opts.until.IsZero() {
		renewing, cancel = context.WithDeadline(ctx, a.opts.until)
	}
	err := a.s.renewVerified(renewing)
	cancel()
	if err == nil && a.s.fresh() {
		return nil
	}
	t.giveUp(a)
	a.s.again()
	if cause := txn.ContextError(ctx); cause != nil {
		return cause
	}
	return &LostError{Token: t.Token(), Reason: ReasonSessionDead, Err: fmt.Errorf("it was not renewed before work may start: %w", errors.Join(err, errSessionLost))}
}

// giveUp ends a term that its caller never got, and deletes it in the
// background, unless others share it by now.
func (t *term) giveUp(a *attempt) {
	t.s.mu.Lock()
	if t.refs > 1 && t.phase != phaseEnded {
		t.refs--
		t.s.mu.Unlock()
		return
	}
	_ = t.beginLocked()
	t.s.mu.Unlock()
	a.undo()
	t.finish(ErrReleased)
}

// again takes a place in the session once more, for a caller that gives it back.
func (s *session) again() {
	s.mu.Lock()
	s.reserved++
	s.mu.Unlock()
}

// shareAfter shares the claim that a refusal names, if it is this client's: another
// goroutine was faster. again is true if that will happen soon.
func (c *Client) shareAfter(refusal error, key string) (t *term, again bool) {
	var held *HeldError
	if !errors.As(refusal, &held) {
		return nil, false
	}
	again = c.keys.IsUnderWay(held.Info.Claim)
	return c.share(key), again
}

// share returns the term in which this client holds the key, with one handle
// more, or nil.
func (c *Client) share(key string) *term {
	t := c.keys.Term(key)
	if t == nil {
		return nil
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if !t.shareableLocked() {
		return nil
	}
	t.refs++
	return t
}

// shareable reports whether share would return a term.
func (c *Client) shareable(key string) bool {
	t := c.keys.Term(key)
	if t == nil {
		return false
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.shareableLocked()
}

// mayShare reports whether an attempt in line can get a claim of its own client instead.
func (a *attempt) mayShare() bool {
	return a.opts.reentrant && a.granted == 0 && a.s.c.shareable(a.user)
}

// shareableLocked reports whether others may share the term. A term whose handlers must
// stop is not shared: no work may start under it. Nor is one that its first caller may
// still give up.
func (t *term) shareableLocked() bool {
	return t.put == nil && t.begun && t.phase == phaseHeld && t.stopCause == nil && t.s.fresh()
}

func (t *term) isOn(key string) bool { return t.Key == key }

// mayBeShared lets others share the term, and wakes those that wait in line for its key.
func (t *term) mayBeShared() {
	t.s.mu.Lock()
	t.begun = true
	t.s.mu.Unlock()
	t.s.c.wakeSharing(t.isOn)
}
