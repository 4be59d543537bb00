package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Release releases the claim. Call it when the work under the claim has
// stopped, not before. The claim has ended locally even if Release returns an
// error. Releasing again does nothing and returns nil.
//
// The error matches ErrLost if the client knew before that the claim was lost,
// or finds that the key is not its own any more. It matches ErrUnknown if it is
// not known that the key is free; it is then freed in the background, or when
// the lease lapses.
//
// ctx bounds the waiting only. If it has ended before, as at a shutdown, Release takes a time of
// its own: milliseconds, or a sixth of Config.TTL (1 s to 5 s) if etcd does not answer. Release of a claim
// with [LazyRelease] does not wait for etcd.
func (cl *Claim) Release(ctx context.Context) error {
	if cl.owner != nil {
		return cl.owner.Release(ctx)
	}
	if !cl.released.CompareAndSwap(false, true) {
		return nil
	}
	if cl.t == nil {
		return nil
	}
	ctx, cancel := cl.c.releasing(ctx)
	defer cancel()
	return cl.t.Release(ctx)
}

// releasing returns the context of a release: that of its caller, or one of the client's own if
// that has ended. No caller wants a key held that nothing uses any more.
func (c *Client) releasing(ctx context.Context) (context.Context, context.CancelFunc) {
	if txn.ContextError(ctx) == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(c.life.IO, c.store.Timeout())
}

// ReleaseWith releases the claim and carries out ops, in one transaction: both or neither. It
// takes one round trip. Use it to store the result of the work under a claim, or to pass the
// work on. Call it when the work has stopped, not before.
//
// Operations must not change keys under the client's prefix, except in the subtrees sched/ and
// queue/. The key is handed to the first caller in line, as [Claim.Release] does.
//
// ctx bounds the call, and so does the claim's own deadline. The error matches:
//
//   - ErrLost if the claim was lost. Nothing was carried out.
//   - ErrReleased if the claim was released before. Nothing was carried out.
//   - ErrUnknown if the transaction may have been carried out. While the claim lasts it
//     is retried in the background. The key is released in any case. If a reply was lost,
//     ReleaseWith learns the outcome only from a Put among ops.
//   - ErrPassthrough if there are operations and the client is without etcd. The claim is
//     still held.
//
// After any other error nothing was carried out and the claim is still held: call ReleaseWith
// again, or Release. Such errors are those of etcd, of invalid operations, and of a claim that
// cannot end in this way: it has a MinHold that is not over, or other handles (Reentrant). Use [Claim.Txn] and then Release for these.
func (cl *Claim) ReleaseWith(ctx context.Context, ops ...clientv3.Op) error {
	if cl.owner != nil {
		return cl.owner.ReleaseWith(ctx, ops...)
	}
	if cl.t == nil {
		if len(ops) > 0 {
			return callError("release", cl.key, fmt.Errorf("%w: operations cannot be carried out", ErrPassthrough))
		}
		return cl.Release(ctx)
	}
	if err := cl.c.checkOps(nil, ops); err != nil {
		return callError("release", cl.key, err)
	}
	if err := cl.checkSure(); err != nil {
		return cl.afterRelease("release", err)
	}
	if err := cl.t.EndsWhole(); err != nil {
		return callError("release", cl.key, err)
	}
	e := &term.Ending{Call: "release", Ops: ops, HandsOver: true}
	return cl.afterRelease("release", cl.end(ctx, e))
}

// end ends the claim, unless that is refused.
func (cl *Claim) end(ctx context.Context, e *term.Ending) error {
	err := cl.t.End(ctx, e)
	if err == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrLost) {
		cl.released.Store(true)
	}
	return err
}
