package etcdclaims

import (
	"cmp"
	"context"
	"errors"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/ownwait"
	"github.com/etcdclaims/claims/internal/term"
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
	return c.claim(t), nil
}

// acquiring checks what every acquiring call is given.
func acquiring[O any](c *Client, key string, opts []O) (*acquireOptions, error) {
	o, err := optionsOf(c, opts)
	if invalid := o.checkKey(key); invalid != nil {
		return nil, cmp.Or(c.refusal(), invalid)
	}
	if err == nil {
		o.From = ownwait.Caller()
	}
	if err == nil {
		o.Mode, err = o.kind.of(c.layout(), key)
	}
	if err != nil {
		return o, callError("acquire", key, err)
	}
	if o.Beside != nil {
		o.Beside.Begin(beside.Call{TTL: o.TTL, Note: o.Note, Supersede: o.Supersede, OutOfTurn: o.Supersede || o.Prefers})
	}
	return o, nil
}

// try acquires the key if that needs no waiting for others.
func (c *Client) try(ctx context.Context, key string, o *acquireOptions) (*term.Term, error) {
	c.line.Attempts.Add(1)
	o.Until = clock.Mono().Add(c.cfg.bound())
	return c.called(ctx, Call{Key: key}, o, c.line.Try)
}

// called carries out an acquiring call, and reports it to the hooks.
func (c *Client) called(ctx context.Context, call Call, o *acquireOptions,
	acquire func(context.Context, string, *acquire.Call) (*term.Term, error),
) (*term.Term, error) {
	o.Hooked = c.events.callBegan(ctx, call)
	t, err := acquire(ctx, call.Key, &o.Call)
	if err != nil {
		if errors.Is(err, ErrHeld) && !call.Wait {
			c.line.Contended.Add(1)
		}
		err = c.acquireError(call.Key, err)
	}
	c.events.callEnded(o.Hooked, call, o.InLine, err)
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
	if errors.Is(err, claimerr.ErrSession) {
		return &LostError{Token: fencing.Token{Key: key}, Reason: ReasonSessionDead, Err: err}
	}
	return callError("acquire", key, c.outage.Explain(err))
}

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
	t, err := c.called(ctx, Call{Key: key, Wait: true}, o, c.line.Acquire)
	if err != nil {
		return nil, err
	}
	return c.claim(t), nil
}
