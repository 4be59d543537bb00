package etcdclaims

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/txn"
)

// Run does what TryRun does, but waits in line while the key is held, as
// Acquire does. If the key is not acquired the error is that of Acquire.
func (c *Client) Run(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...AcquireOption) error {
	if fn == nil {
		return callError("run", key, errNilFunc)
	}
	cl, err := c.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	return cl.run(ctx, fn, cl.releaseAfter)
}

// TryRun acquires the key if it is free, calls fn, and releases the key when
// fn has returned. If the key is not acquired, fn is not called and the error
// is that of TryAcquire.
//
// The context of fn carries the values of ctx and the token of the claim. It
// ends when ctx ends, when the claim is about to expire or is lost, and when the
// client is closed. With MaxHold it ends one drain (Config.Drain) before that time.
// fn then has one drain to return.
//
// A handler that does not return within its drain is a zombie. Its key is
// moved to a new term without an owner. The key stays held until the lease of
// that term lapses, and writes under the old fence are refused. Hooks.Zombie
// is called. TryRun still returns only when fn has returned.
//
// The error is that of fn. It is joined with a *LostError if the claim was
// lost before fn returned. In that case fn may have overlapped with another
// owner, unless its effects were fenced.
//
// A panic in fn, or runtime.Goexit, also releases the key and then continues.
//
// The release takes milliseconds, or a sixth of Config.TTL (1 s to 5 s) if etcd does not answer. A
// key that is not released by then is released in the background.
func (c *Client) TryRun(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...AcquireOption) error {
	if fn == nil {
		return callError("run", key, errNilFunc)
	}
	cl, err := c.TryAcquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	return cl.run(ctx, fn, cl.releaseAfter)
}

// Run calls fn while the claim is held and releases the claim when fn has
// returned, as TryRun does with the claim that it acquires. Use it when fn
// needs the claim itself, for example for [Claim.Txn]. Call it once.
func (cl *Claim) Run(ctx context.Context, fn func(ctx context.Context) error) error {
	if cl.owner != nil {
		return cl.owner.Run(ctx, fn)
	}
	if fn == nil {
		return callError("run", cl.key, errNilFunc)
	}
	return cl.run(ctx, fn, cl.releaseAfter)
}

// run calls fn and then end. end gives the claim up, and returns an error if fn must
// not count as successful.
func (cl *Claim) run(ctx context.Context, fn func(context.Context) error, end func(far beside.Far, err error) error) (err error) {
	if cl.t == nil {
		ctx, cancel := cl.Bind(ctx)
		defer cancel()
		if ctx.Err() != nil {
			return txn.ContextError(ctx)
		}
		return fn(ctx)
	}
	ctx, stop := context.WithCancelCause(ctx)
	ctx, unbind := cl.Bind(ctx)
	r := &run{in: &cl.c.runs, t: cl.t, stop: stop, done: make(chan struct{})}
	if !cl.c.runs.add(r) {
		stop(ErrClosed)
	}
	forget := context.AfterFunc(ctx, func() { r.drain(context.Cause(ctx)) })
	far := beside.NotCalled
	defer func() {
		// Also after a panic or Goexit, which then continue.
		forget()
		r.finish()
		defer r.forget() // Close waits for the release, too
		unbind()
		stop(nil)
		lost := cl.t.Err()
		if eerr := end(far, err); lost == nil || errors.Is(lost, ErrReleased) {
			lost = eerr // found by the end itself
		}
		if lost != nil && !errors.Is(err, lost) {
			err = errtext.Both(err, lost)
		}
	}()
	if err := cl.Check(); err != nil {
		return cl.afterRelease("run", err)
	}
	if ctx.Err() != nil {
		return txn.ContextError(ctx)
	}
	far = beside.Called
	err = fn(ctx)
	far = beside.Returned
	return err
}

// releaseAfter releases a claim whose handler has returned. Its time is the
// client's own: the caller's context may be over.
func (cl *Claim) releaseAfter(beside.Far, error) error {
	ctx, cancel := context.WithTimeout(cl.c.life.IO, cl.c.store.Timeout())
	defer cancel()
	return ignoreUnknown(cl.Release(ctx))
}

// ignoreUnknown is for the release after a handler: whether that is known changes nothing for the
// caller.
func ignoreUnknown(err error) error {
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	return err
}

var errNilFunc = errors.New("the function is nil")
