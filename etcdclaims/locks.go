package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/wire"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Locks is for callers that bring owner names of their own, such as a beat
// scheduler with a pluggable lock backend. A lock belongs to whoever uses its
// owner's name, in any process, and lasts for the TTL it was given unless it is
// renewed: nothing renews it by itself, and nothing tells its owner that it is
// over. Prefer claims, whose identity nobody can share by mistake.
//
// Locks and claims share their keys and exclude each other. The owner's name is
// compared by Locks alone, and only with names that came through it; what is
// then changed is guarded by the fence that goes with the name.
type Locks struct{ c *Client }

// Locks returns the owner-string view of the client.
func (c *Client) Locks() Locks { return Locks{c} }

// lockState is what is known of a key.
type lockState struct {
	holder holder
	kv     *mvccpb.KeyValue
}

// fence returns the fence of the lock.
func (s lockState) fence() int64 { return s.holder.fence(s.kv.ModRevision) }

func (s lockState) ownedBy(owner string) bool {
	return s.kv != nil && s.holder.Kind == kindLock && s.holder.Owner == owner
}

// same is the condition that the state has not changed.
func (s lockState) same(l layout, key string) []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(l.own(key)), "=", s.kv.ModRevision),
		clientv3.Compare(clientv3.LeaseValue(l.own(key)), "=", s.kv.Lease),
	}
}

func (k Locks) check(key, owner string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return checkLockOwner(owner)
}

func checkLockOwner(owner string) error {
	if !printable(owner) || len(owner) > MaxKeyBytes {
		return fmt.Errorf("etcdclaims: owner %.100q must be printable UTF-8 of 1 to %d bytes", owner, MaxKeyBytes)
	}
	return nil
}

func (k Locks) checkTTL(ttl time.Duration) (time.Duration, error) {
	if ttl <= 0 || ttl > longestTTL {
		return 0, fmt.Errorf("etcdclaims: TTL %v of a lock must be above 0 and at most %v; it is rounded up to full seconds, and etcd grants 2 s at least", ttl, longestTTL)
	}
	return seconds(ttl), nil
}

// read returns who has the key.
func (k Locks) read(ctx context.Context, key string) (lockState, error) {
	l := k.c.store.layout
	resp, err := k.c.read(ctx, clientv3.OpGet(l.own(key)), clientv3.OpGet(l.epoch()))
	if err != nil {
		return lockState{}, fmt.Errorf("etcdclaims: lock %q: %w", key, err)
	}
	if err := k.c.store.learnEpoch(resp.Responses[1].GetResponseRange().Kvs, resp.Header.Revision); err != nil {
		return lockState{}, err
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return lockState{}, nil
	}
	h, err := decodeHolder(kvs[0].Value)
	if err != nil {
		h = holder{} // somebody's, but nobody's whom we know
	}
	return lockState{holder: h, kv: kvs[0]}, nil
}

// TryAcquire locks the key for the owner, for the TTL. ok is true if it was
// free, had expired, or is this owner's already: then it lasts for the TTL from
// now. It is false if it is another's, a claim's, or others wait in line for
// it. The fence is that of the lock; locking again with another TTL raises it.
func (k Locks) TryAcquire(ctx context.Context, key, owner string, ttl time.Duration) (fence int64, ok bool, err error) {
	if err := k.check(key, owner); err != nil {
		return 0, false, err
	}
	ttl, err = k.checkTTL(ttl)
	if err != nil || k.c.Passthrough() {
		return 0, err == nil, err
	}
	c := k.c
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for try := 0; ; try++ {
		fence, ok, again, err := k.acquireOnce(ctx, key, owner, ttl)
		if !again {
			return fence, ok, err
		}
		if !backOff(ctx, try, c.closing) {
			return 0, false, fmt.Errorf("etcdclaims: lock %q: %w", key, c.ended(wire.WithCause(ctx, err)))
		}
	}
}

func (k Locks) acquireOnce(ctx context.Context, key, owner string, ttl time.Duration) (fence int64, ok, again bool, err error) {
	c := k.c
	if err := c.store.ready(ctx); err != nil {
		return 0, false, false, err
	}
	st, err := k.read(ctx, key)
	if err != nil {
		return 0, false, false, err
	}
	if st.kv != nil {
		if !st.ownedBy(owner) {
			return 0, false, false, nil
		}
		fence, ok, err := k.extend(ctx, key, owner, st, ttl)
		// A lock that ended in between is free to be had.
		return fence, ok, err == nil && !ok || errors.Is(err, ErrUnknown), err
	}
	fence, ok, err = k.put(ctx, key, owner, ttl, clientv3.Compare(clientv3.CreateRevision(c.store.layout.own(key)), "=", 0), c.nobodyInLine(key))
	if err == nil && !ok {
		st, err := k.read(ctx, key)
		if err != nil || st.kv != nil && !st.ownedBy(owner) {
			return 0, false, false, err
		}
		if st.kv == nil {
			info, err := c.Lookup(ctx, key)
			return 0, false, err == nil && info.Waiting == 0, err // others wait in line
		}
		return 0, false, true, nil
	}
	// A lease that was revoked as soon as it was granted makes room for another.
	return fence, ok, errors.Is(err, ErrUnknown) || errors.Is(err, rpctypes.ErrLeaseNotFound) || err != nil && isTransient(err), err
}

// put puts the lock on a lease of its own under the conditions. If the outcome
// is unknown the caller reads again: the owner's name tells.
func (k Locks) put(ctx context.Context, key, owner string, ttl time.Duration, cmps ...clientv3.Cmp) (fence int64, ok bool, err error) {
	c := k.c
	lease, err := k.grant(ctx, ttl)
	if err != nil {
		return 0, false, fmt.Errorf("etcdclaims: lock %q: granting a lease: %w", key, err)
	}
	e := c.store.epoch.Load()
	l := c.store.layout
	value := holder{Claim: fmt.Sprintf("%x", int64(lease)), Owner: owner, Since: c.clock.Now().Time().UTC(), Kind: kindLock, Epoch: e.value, TTL: int64(ttl / time.Second)}.encode()
	resp, err := c.store.do(ctx, request{
		cmps: append(cmps, c.store.epochIs(e)),
		then: []clientv3.Op{
			clientv3.OpPut(l.own(key), value, clientv3.WithLease(lease)),
			clientv3.OpPut(l.lockIndex(owner, key), emptyValue, clientv3.WithLease(lease)),
		},
		els: []clientv3.Op{clientv3.OpGet(l.epoch())},
	})
	switch {
	case errors.Is(err, ErrUnknown):
		// To be read by the caller. The lease is left alone: a revocation that
		// comes late would end a lock that was reported as held.
		return 0, false, err
	case err != nil:
		k.revoke(lease)
		return 0, false, fmt.Errorf("etcdclaims: lock %q: %w", key, err)
	case !resp.Succeeded:
		k.revoke(lease)
		return 0, false, c.store.learnEpoch(resp.Responses[0].GetResponseRange().Kvs, resp.Header.Revision)
	}
	return e.fence(resp.Header.Revision), true, nil
}

func (k Locks) grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), k.c.store.timeout)
	defer cancel()
	k.c.store.requests.Add(1)
	resp, err := k.c.lease.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return 0, outcome(ctx, err)
	}
	return resp.ID, nil
}

// revoke ends a lease that came to nothing; if it fails the lease expires.
func (k Locks) revoke(lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(k.c.io), k.c.store.timeout)
	defer cancel()
	k.c.store.requests.Add(1)
	_, _ = k.c.lease.Revoke(ctx, lease)
}

// extend makes an owner's lock last for the TTL from now. ok is false if it is
// over.
func (k Locks) extend(ctx context.Context, key, owner string, st lockState, ttl time.Duration) (fence int64, ok bool, err error) {
	c := k.c
	lease := clientv3.LeaseID(st.kv.Lease)
	callCtx, cancel := context.WithTimeout(ctx, c.store.timeout)
	defer cancel()
	_, err = c.keepAlive(callCtx, lease)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("etcdclaims: lock %q: renewing: %w: %w", key, ErrUnknown, err)
	}
	if st.holder.TTL != int64(ttl/time.Second) {
		// A lease cannot change its TTL, so that another lease is needed, and
		// with it another fence.
		fence, ok, err := k.put(ctx, key, owner, ttl, st.same(c.store.layout, key)...)
		if ok {
			k.revoke(lease)
		}
		return fence, ok, err
	}
	// The lease lives, which says nothing of the key.
	now, err := k.read(ctx, key)
	if err != nil {
		return 0, false, err
	}
	if now.kv == nil || now.kv.ModRevision != st.kv.ModRevision || now.kv.Lease != st.kv.Lease {
		return 0, false, nil
	}
	return now.fence(), true, nil
}

// Release unlocks the key. ok is true only if it was this owner's; it is false,
// and nothing is changed, if it is free, has expired or is another's.
func (k Locks) Release(ctx context.Context, key, owner string) (ok bool, err error) {
	if err := k.check(key, owner); err != nil {
		return false, err
	}
	if k.c.Passthrough() {
		return true, nil
	}
	ctx, cancel := k.c.bounded(ctx)
	defer cancel()
	st, err := k.read(ctx, key)
	if err != nil || !st.ownedBy(owner) {
		return false, err
	}
	return k.drop(ctx, key, owner, st)
}

// drop deletes a lock as it was read.
func (k Locks) drop(ctx context.Context, key, owner string, st lockState) (bool, error) {
	c, l := k.c, k.c.store.layout
	sent := false
	for try := 0; ; try++ {
		resp, err := c.store.do(ctx, request{
			cmps: st.same(l, key),
			then: []clientv3.Op{clientv3.OpDelete(l.own(key)), clientv3.OpDelete(l.lockIndex(owner, key))},
		})
		switch {
		case err == nil:
			if resp.Succeeded {
				k.revoke(clientv3.LeaseID(st.kv.Lease))
			}
			// If a request before was lost and the lock is gone, that was it.
			return resp.Succeeded || sent, nil
		case errors.Is(err, ErrUnknown):
			sent = true
		case !isTransient(err):
			return false, fmt.Errorf("etcdclaims: lock %q: %w", key, err)
		}
		if !backOff(ctx, try, c.closing) {
			return false, fmt.Errorf("etcdclaims: lock %q: %w", key, c.ended(wire.WithCause(ctx, err)))
		}
	}
}

// Renew makes the lock last for the TTL from now. ok is true only if it is this
// owner's; it is false if it is free, has expired or is another's. Another TTL
// than before raises the fence.
func (k Locks) Renew(ctx context.Context, key, owner string, ttl time.Duration) (fence int64, ok bool, err error) {
	if err := k.check(key, owner); err != nil {
		return 0, false, err
	}
	ttl, err = k.checkTTL(ttl)
	if err != nil || k.c.Passthrough() {
		return 0, err == nil, err
	}
	ctx, cancel := k.c.bounded(ctx)
	defer cancel()
	for try := 0; ; try++ {
		st, err := k.read(ctx, key)
		if err != nil || !st.ownedBy(owner) {
			return 0, false, err
		}
		fence, ok, err = k.extend(ctx, key, owner, st, ttl)
		if !errors.Is(err, ErrUnknown) || !backOff(ctx, try, k.c.closing) {
			return fence, ok, err
		}
	}
}

// IsLocked reports whether anybody has the key: a lock of any owner, or a claim.
func (k Locks) IsLocked(ctx context.Context, key string) (bool, error) {
	_, ok, err := k.Owner(ctx, key)
	return ok, err
}

// Owner returns who has the key. For a claim, that is its label.
func (k Locks) Owner(ctx context.Context, key string) (owner string, ok bool, err error) {
	if err := checkKey(key); err != nil {
		return "", false, err
	}
	if k.c.Passthrough() {
		return "", false, nil
	}
	st, err := k.read(ctx, key)
	if err != nil || st.kv == nil {
		return "", false, err
	}
	return st.holder.Owner, true, nil
}

// ReleaseAll unlocks all that the owner has locked, and returns how many that
// were.
func (k Locks) ReleaseAll(ctx context.Context, owner string) (int, error) {
	if err := checkLockOwner(owner); err != nil {
		return 0, err
	}
	if k.c.Passthrough() {
		return 0, nil
	}
	root, n := k.c.store.layout.locksOf(owner), 0
	for p, err := range k.c.pages(ctx, root, "") {
		if err != nil {
			return n, fmt.Errorf("etcdclaims: releasing the locks of %q: %w", owner, err)
		}
		for _, kv := range p.kvs {
			ok, err := k.Release(ctx, strings.TrimPrefix(string(kv.Key), root), owner)
			if err != nil {
				return n, err
			}
			if ok {
				n++
			}
		}
	}
	return n, nil
}
