package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ForceRelease frees a key that any client may hold. It is for an operator who
// has decided that the holder must not have the key any more. A free key is not
// an error.
//
// The client of the holder is notified within a second if it can reach etcd.
// Its claim is lost with ReasonDeleted, and LostError.Err contains the reason.
// While etcd is out of space there is no notice. The client then finds the claim
// lost at its next renewal, or within TTL + 1 s if its lease has more than 1,024
// claims.
//
// A key that has slots returns ErrSlots: release one of them, by its SlotKey. If callers
// share the key, all of them lose it. A lost reply is resolved: the key is read again. If
// that does not succeed before the call ends, the error matches ErrUnknown. The holder may
// be another by then: to call again, use ForceReleaseTerm.
// A value without a lease that a newer version of this package has put is not deleted: it
// may be the record of several holders.
//
// A reason longer than MaxKeyBytes returns ErrTooLarge. As with every loss,
// the handler may run on for a while: only fences stop its writes.
func ForceRelease(ctx context.Context, claims *etcdclaims.Client, key, reason string) error {
	act := audit.Begin(ctx, claims, audit.Release, audit.Target{Key: key}, reason)
	return act.End(ctx, of(claims).forceRelease(ctx, act, key, 0, 0, reason))
}

// ForceReleaseTerm frees a key as ForceRelease does, but only if the fence of
// its holder is that of t. Use it when a person has looked at the holder and
// decided: the key may have changed hands since.
//
// The error matches ErrRefused if the key has another holder or is free, and
// nothing was changed. That includes a term that was over before the call. If
// there is another holder, the error is a *HeldError too. A nil error means
// that the term of t has ended during the call. ErrUnknown means that it may have.
func ForceReleaseTerm(ctx context.Context, claims *etcdclaims.Client, t fencing.Token, reason string) error {
	c := of(claims)
	if err := c.CheckKey(t.Key); err != nil {
		return err
	}
	if t.Fence <= 0 {
		return fmt.Errorf("%w: %q has no term with fence %d", etcdclaims.ErrRefused, t.Key, t.Fence)
	}
	act := audit.Begin(ctx, claims, audit.Release, audit.Target{Key: t.Key, Detail: fmt.Sprintf("fence %d", t.Fence)}, reason)
	return act.End(ctx, c.forceRelease(ctx, act, t.Key, t.Fence, 0, reason))
}

// forceRelease frees a key. If fence is not 0 the holder must have it. If first is not 0, only the claim that was put at
// that revision is ended.
func (c client) forceRelease(ctx context.Context, act *audit.Act, key string, fence, first int64, reason string) error {
	if err := c.CheckKey(key); err != nil {
		return err
	}
	if len(reason) > etcdclaims.MaxKeyBytes {
		return fmt.Errorf("%w: a reason of %d bytes, the limit is %d", etcdclaims.ErrTooLarge, len(reason), etcdclaims.MaxKeyBytes)
	}
	if c.claims.Passthrough() {
		return nil
	}
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		resp, err := c.Read(ctx, clientv3.OpGet(c.Layout().Own(key)))
		if err != nil {
			return errtext.Call("force the release of", key, txn.AfterSent(sent, err))
		}
		own := txn.First(resp, 0)
		if first == 0 && fence != 0 {
			if err := c.mustBeTerm(key, own, fence); err != nil {
				return err
			}
		}
		if own == nil && first == 0 && !strings.Contains(key, keyspace.SharedSuffix) {
			return c.forceSharers(ctx, act, key, reason)
		}
		if own == nil {
			return nil
		}
		if first != 0 && own.ModRevision != first {
			return nil // the term has ended, and the next one must stay
		}
		first = own.ModRevision
		if err := releasable(key, own); err != nil {
			return errtext.Call("force the release of", key, err)
		}
		if protocol.IsShared(own) {
			return c.forceShared(ctx, act, key, own, reason)
		}
		freed, err := c.forceOnce(ctx, act, key, own, reason)
		unknown := errors.Is(err, etcdclaims.ErrUnknown)
		sent = sent || unknown
		switch {
		case freed:
			return nil
		case err != nil && !unknown && !txn.IsTransient(err):
			return errtext.Call("force the release of", key, txn.AfterSent(sent, err))
		}
		if !retry.PauseUnless(ctx, c.Closing(), try) {
			return errtext.Call("force the release of", key, txn.AfterSent(sent, c.Ended(txn.WithCause(ctx, err))))
		}
	}
}

// releasable refuses what stands in the place of a claim and is the record of slots, or of
// a newer version and perhaps a record: only records are on no lease. Without its record, a
// key that is held in parts would look free.
func releasable(key string, own *mvccpb.KeyValue) error {
	h, err := protocol.DecodeHolder(own.Value)
	switch {
	case err == nil && h.Kind == protocol.KindSlots:
		return fmt.Errorf("%w: the key has %d; name one of them, as %q", etcdclaims.ErrSlots, h.Slots, etcdclaims.SlotKey(key, 0))
	case h.Version > protocol.Version && own.Lease == int64(clientv3.NoLease):
		return fmt.Errorf("it may be held by several, use a newer version: %w", err)
	}
	return nil
}

// forceOnce frees the key and notifies its holder, if the key still has that holder.
func (c client) forceOnce(ctx context.Context, act *audit.Act, key string, own *mvccpb.KeyValue, reason string) (freed bool, err error) {
	step := protocol.Force{Layout: c.Layout(), Key: key, Own: own, By: c.claims.Owner(), Reason: reason}
	got, err := c.Store().Do(ctx, recorded(step.Build(), act))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrNoSpace) {
		// There is no holder to notify, as the lease has just ended, and the key with it;
		// or no space for the notice: then the holder learns of it by verification.
		sent := errors.Is(err, etcdclaims.ErrUnknown)
		got, err = audit.Send(act, func(act *audit.Act) (*clientv3.TxnResponse, error) {
			return c.Store().Do(ctx, recorded(step.Silently(), act))
		})
		err = txn.AfterSent(sent, err)
	}
	return err == nil && got.Succeeded, err
}

// recorded is a request that records the action, too.
func recorded(r txn.Request, act *audit.Act) txn.Request {
	r.In = act.With(r.In)
	return r
}

// mustBeTerm returns the error of a forced release whose term is not the present one, or nil.
func (c client) mustBeTerm(key string, own *mvccpb.KeyValue, fence int64) error {
	if own == nil {
		return fmt.Errorf("%w: %q is free, the term with fence %d is over", etcdclaims.ErrRefused, key, fence)
	}
	if h, _ := protocol.DecodeHolder(own.Value); h.Fence(own.ModRevision) == fence {
		return nil
	}
	return fmt.Errorf("%w: the term with fence %d is over: %w", etcdclaims.ErrRefused, fence, c.Held(key, own, 0))
}
