package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/etcdclaims/claims/fencing"
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
func (c *Client) ForceRelease(ctx context.Context, key, reason string) error {
	return c.forceRelease(ctx, key, 0, reason)
}

// ForceReleaseTerm frees a key as ForceRelease does, but only if the fence of
// its holder is that of t. Use it when a person has looked at the holder and
// decided: the key may have changed hands since.
//
// The error matches ErrRefused if the key has another holder or is free, and
// nothing was changed. That includes a term that was over before the call. If
// there is another holder, the error is a *HeldError too. A nil error means
// that the term of t has ended during the call. ErrUnknown means that it may have.
func (c *Client) ForceReleaseTerm(ctx context.Context, t fencing.Token, reason string) error {
	if err := c.checkKey(t.Key); err != nil {
		return err
	}
	if t.Fence <= 0 {
		return fmt.Errorf("%w: %q has no term with fence %d", ErrRefused, t.Key, t.Fence)
	}
	return c.forceRelease(ctx, t.Key, t.Fence, reason)
}

// forceRelease frees a key. If fence is not 0 the holder must have it.
func (c *Client) forceRelease(ctx context.Context, key string, fence int64, reason string) error {
	if err := c.checkKey(key); err != nil {
		return err
	}
	if len(reason) > MaxKeyBytes {
		return fmt.Errorf("%w: a reason of %d bytes, the limit is %d", ErrTooLarge, len(reason), MaxKeyBytes)
	}
	if c.Passthrough() {
		return nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	first, sent := int64(0), false // sent is a request that may have been carried out
	for try := 0; ; try++ {
		resp, err := c.read(ctx, clientv3.OpGet(c.store.layout.own(key)))
		if err != nil {
			return callError("force the release of", key, afterSent(sent, err))
		}
		own := firstKV(resp, 0)
		if first == 0 && fence != 0 {
			if i := c.info(key, own, nil, 0); i.Fence != fence {
				return notTheTerm(i, fence)
			}
		}
		if own == nil && first == 0 && !strings.Contains(key, sharedSuffix) {
			return c.forceSharers(ctx, key, reason)
		}
		if own == nil {
			return nil
		}
		if first != 0 && own.ModRevision != first {
			return nil // the term has ended, and the next one must stay
		}
		first = own.ModRevision
		if err := releasable(key, own); err != nil {
			return callError("force the release of", key, err)
		}
		if isShared(own) {
			return c.forceShared(ctx, key, own, reason)
		}
		freed, err := c.forceOnce(ctx, key, own, reason)
		unknown := errors.Is(err, ErrUnknown)
		sent = sent || unknown
		switch {
		case freed:
			return nil
		case err != nil && !unknown && !txn.IsTransient(err):
			return callError("force the release of", key, afterSent(sent, err))
		}
		if !retry.PauseUnless(ctx, c.closing, try) {
			return callError("force the release of", key, afterSent(sent, c.ended(txn.WithCause(ctx, err))))
		}
	}
}

// releasable refuses what stands in the place of a claim and is the record of slots, or of
// a newer version and perhaps a record: only records are on no lease. Without its record, a
// key that is held in parts would look free.
func releasable(key string, own *mvccpb.KeyValue) error {
	h, err := decodeHolder(own.Value)
	switch {
	case err == nil && h.Kind == kindSlots:
		return fmt.Errorf("%w: the key has %d; name one of them, as %q", ErrSlots, h.Slots, SlotKey(key, 0))
	case h.Version > valueVersion && own.Lease == int64(clientv3.NoLease):
		return fmt.Errorf("it may be held by several, use a newer version: %w", err)
	}
	return nil
}

// forceOnce frees the key and notifies its holder, if the key still has that holder.
func (c *Client) forceOnce(ctx context.Context, key string, own *mvccpb.KeyValue, reason string) (freed bool, err error) {
	l := c.store.layout
	drop := []clientv3.Op{clientv3.OpDelete(l.own(key)), clientv3.OpDelete(l.note(key))}
	h, err := decodeHolder(own.Value)
	if err == nil && h.Claim != "" {
		drop = append(drop, clientv3.OpDelete(l.notice(h.Instance, h.Claim)))
	}
	then := drop
	if err == nil && h.Instance != "" && h.Claim != "" && own.Lease != 0 {
		notice := encode(eviction{Version: valueVersion, Key: key, Claim: h.Claim, By: c.cfg.Owner, Reason: reason})
		then = append(drop[:len(drop):len(drop)], clientv3.OpPut(l.evict(h.Instance, h.Claim), notice, clientv3.WithLease(clientv3.LeaseID(own.Lease))))
	}
	same := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(l.own(key)), "=", own.ModRevision),
		clientv3.Compare(clientv3.LeaseValue(l.own(key)), "=", own.Lease),
	}
	got, err := c.store.Do(ctx, txn.Request{In: txn.Of(same, then, nil)})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrNoSpace) {
		// There is no holder to notify, as the lease has just ended, and the key with it;
		// or no space for the notice: then the holder learns of it by verification.
		sent := errors.Is(err, ErrUnknown)
		got, err = c.store.Do(ctx, txn.Request{In: txn.Of(same, drop, nil)})
		err = afterSent(sent, err)
	}
	return err == nil && got.Succeeded, err
}

// notTheTerm is the error of a forced release whose term is not the present one.
func notTheTerm(i Info, fence int64) error {
	if !i.Held {
		return fmt.Errorf("%w: %q is free, the term with fence %d is over", ErrRefused, i.Key, fence)
	}
	return fmt.Errorf("%w: the term with fence %d is over: %w", ErrRefused, fence, heldFor{&HeldError{Info: i}})
}
