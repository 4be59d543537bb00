// Package locks has locks that belong to owner names, for callers that bring their own, such as
// celery-beat. Prefer claims, whose identity cannot be shared by mistake.
//
// A lock belongs to every process that uses its owner's name. It lasts for the
// TTL that it was given. Nothing renews it, and its owner is not notified when
// it ends.
//
// Locks and claims use the same keys and exclude each other. Only locks
// compare owner names, and only with names of locks. Each
// change is conditional: it is carried out only if the lock still has the fence
// that was read together with the owner's name.
//
// admin.RaiseEpoch ends locks as it ends claims. The key of an ended lock stays held
// until the lock's TTL is over. Only its owner can lock the key before that,
// with a greater fence.
//
// A request whose reply was lost is read back. If it was not carried out it is
// voided, so that it cannot lock the key after a later Release. A caller that
// gives up before that is known gets ErrUnknown, and the check continues in
// the background.
package locks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Locks are the locks of a client. Errors are those of the client, such as
// etcdclaims.ErrUnknown. All methods may be called from several goroutines.
//
// ctx bounds each call. A call for one key also ends after
// max(Config.TTL/2, 5 s).
type Locks struct {
	claims *etcdclaims.Client
	core   core.Client
	puts   *puts // all Locks of the client have the same
}

// New returns the locks of a client. It does no I/O. Those of a nil client, as the zero Locks,
// refuse every call with etcdclaims.ErrNoClient.
func New(claims *etcdclaims.Client) Locks {
	c := core.Of(claims)
	return Locks{claims: claims, core: c, puts: putsOf(c)}
}

// longestTTL is as long as that of a claim.
const longestTTL = 365 * 24 * time.Hour

// index is the prefix of the keys that name what an owner has locked.
func (k Locks) index(owner string) string {
	return k.claims.Prefix() + "lock/" + keyspace.Digest(owner) + "/"
}

// named makes the error of a call name it and the key.
func named(call, key string, err *error) {
	if *err != nil && !errors.Is(*err, etcdclaims.ErrInvalidKey) { // which may be long
		*err = errtext.Call(call, key, *err)
	}
}

// refusal returns ErrNoClient unless there is a client.
func (k Locks) refusal() error {
	if k.core == nil {
		return etcdclaims.ErrNoClient
	}
	return k.core.Refusal()
}

func (k Locks) check(key, owner string) error {
	if err := k.refusal(); err != nil {
		return err
	}
	if err := k.core.CheckClaimed(key); err != nil {
		return err
	}
	return checkOwner(owner)
}

func checkOwner(owner string) error {
	if !keyspace.Printable(owner) || len(owner) > etcdclaims.MaxKeyBytes {
		return fmt.Errorf("etcdclaims: owner %.100q must be printable UTF-8 of 1 to %d bytes", owner, etcdclaims.MaxKeyBytes)
	}
	return nil
}

func (k Locks) checkTTL(ttl time.Duration) (time.Duration, error) {
	if ttl <= 0 || ttl > longestTTL {
		return 0, fmt.Errorf("etcdclaims: TTL %v of a lock must be above 0 and at most %v; "+
			"it is rounded up to full seconds, and etcd grants 2 s at least", ttl, longestTTL)
	}
	return (ttl + time.Second - 1).Truncate(time.Second), nil
}

// TryAcquire locks the key for the owner. The lock lasts for ttl, which is
// rounded up to full seconds; etcd grants at least 2 s.
//
// If the key is free, has expired or is already locked by the owner,
// TryAcquire returns the fence of the lock and true. A lock that the owner
// already has then lasts for ttl from now; a different ttl raises its fence.
//
// ok is false, without an error, if another owner or a claim holds the key.
// The same holds if other callers wait in line for it.
func (k Locks) TryAcquire(ctx context.Context, key, owner string, ttl time.Duration) (fence int64, ok bool, err error) {
	defer named("lock", key, &err)
	if err := k.check(key, owner); err != nil {
		return 0, false, err
	}
	ttl, err = k.checkTTL(ttl)
	if err != nil || k.claims.Passthrough() {
		return 0, err == nil, err
	}
	c := k.core
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	defer k.settleLater(key, owner)
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		fence, ok, again, err := k.acquireOnce(ctx, key, owner, ttl)
		if !again {
			return fence, ok, txn.AfterSent(sent, err)
		}
		sent = sent || errors.Is(err, etcdclaims.ErrUnknown)
		if !retry.PauseUnless(ctx, c.Closing(), try) {
			return 0, false, txn.AfterSent(sent, c.Ended(txn.WithCause(ctx, err)))
		}
	}
}

func (k Locks) acquireOnce(ctx context.Context, key, owner string, ttl time.Duration) (fence int64, ok, again bool, err error) {
	c := k.core
	if err := c.Store().Ready(ctx); err != nil {
		return 0, false, false, err
	}
	if err := k.settle(ctx, key, owner); err != nil {
		return 0, false, false, err
	}
	st, err := k.read(ctx, key)
	if err != nil {
		return 0, false, false, err
	}
	e := c.Store().Epoch()
	if st.kv != nil {
		switch {
		case st.shared():
			n, err := c.ClearShared(ctx, key, st.kv)
			again := err == nil && n == 0 || errors.Is(err, etcdclaims.ErrUnknown) || txn.IsTransient(err)
			return 0, false, again, txn.Failed(err) // nothing of a lock was sent
		case !st.ownedBy(owner):
			return 0, false, false, nil
		case st.outdated(e):
			fence, ok, err = k.replace(ctx, key, owner, st, ttl, e)
		default:
			fence, ok, err = k.extend(ctx, key, owner, st, ttl)
		}
		// The key of a lock that ended in between is free.
		return fence, ok, err == nil && !ok || errors.Is(err, etcdclaims.ErrUnknown) || txn.IsTransient(err), err
	}
	free := clientv3.Compare(clientv3.CreateRevision(c.Layout().Own(key)), "=", 0)
	fence, ok, err = k.put(ctx, key, owner, ttl, e, free, core.NobodyInLine(c.Layout(), key))
	if err == nil && !ok {
		st, err := k.read(ctx, key)
		if err != nil || st.kv != nil && !st.ownedBy(owner) {
			return 0, false, false, err
		}
		if st.kv == nil {
			info, err := k.claims.Lookup(ctx, key)
			return 0, false, err == nil && info.Waiting == 0, err // others wait in line
		}
		return 0, false, true, nil
	}
	// A lease that was revoked as soon as it was granted makes room for another.
	again = errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, rpctypes.ErrLeaseNotFound) ||
		err != nil && txn.IsTransient(err)
	return fence, ok, again, err
}

// replace puts a lock in the place of the owner's own, on another lease and so with
// another fence. ok is false if that is over.
func (k Locks) replace(
	ctx context.Context, key, owner string, st state, ttl time.Duration, e *txn.Epoch,
) (fence int64, ok bool, err error) {
	fence, ok, err = k.put(ctx, key, owner, ttl, e, st.same(k.core.Layout(), key)...)
	if ok {
		k.revoke(ctx, clientv3.LeaseID(st.kv.Lease))
	}
	return fence, ok, err
}

// extend makes an owner's lock last for the TTL from now. ok is false if it is
// over.
func (k Locks) extend(ctx context.Context, key, owner string, st state, ttl time.Duration) (fence int64, ok bool, err error) {
	c := k.core
	lease := clientv3.LeaseID(st.kv.Lease)
	err = c.Leases().KeepAlive(ctx, lease)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("renewing its lease: %w", txn.Outcome(ctx, err))
	}
	if e := c.Store().Epoch(); st.holder.TTL != int64(ttl/time.Second) {
		if st.outdated(e) {
			return 0, false, nil
		}
		return k.replace(ctx, key, owner, st, ttl, e) // a lease cannot change its TTL
	}
	// The lease lives, but the key may be gone.
	now, err := k.read(ctx, key)
	if err != nil {
		return 0, false, err
	}
	if now.kv == nil || now.kv.ModRevision != st.kv.ModRevision || now.kv.Lease != st.kv.Lease || now.outdated(c.Store().Epoch()) {
		return 0, false, nil
	}
	return now.fence(), true, nil
}

// Release unlocks the key. It returns true if the owner had it locked. If the
// key is free, has expired or is held by another owner, Release returns false
// and changes nothing. A lock that a raised epoch has ended is removed, and
// the result is false.
//
// The error matches etcdclaims.ErrUnknown if the reply to the removal was lost and its
// outcome could not be found out. If the lock is gone then, it is not known whether
// this call removed it or it expired before.
func (k Locks) Release(ctx context.Context, key, owner string) (ok bool, err error) {
	defer named("unlock", key, &err)
	if err := k.check(key, owner); err != nil {
		return false, err
	}
	if k.claims.Passthrough() {
		return true, nil
	}
	ctx, cancel := k.core.Bounded(ctx)
	defer cancel()
	if err := k.settle(ctx, key, owner); err != nil {
		return false, err
	}
	st, err := k.read(ctx, key)
	if err != nil || !st.ownedBy(owner) {
		return false, err
	}
	return k.drop(ctx, key, owner, st)
}

// drop deletes a lock. It was read as st, and may be another revision of the owner's by now.
func (k Locks) drop(ctx context.Context, key, owner string, st state) (bool, error) {
	c, l := k.core, k.core.Layout()
	sent := false // a request that may have deleted the lock as it is in st
	for try := 0; ; try++ {
		resp, err := c.Store().Do(ctx, txn.Request{
			In: txn.Of(
				st.same(l, key),
				[]clientv3.Op{clientv3.OpDelete(l.Own(key)), clientv3.OpDelete(k.index(owner) + key)},
				[]clientv3.Op{clientv3.OpGet(l.Own(key))},
			),
		})
		switch {
		case err == nil && resp.Succeeded:
			k.revoke(ctx, clientv3.LeaseID(st.kv.Lease))
			return !st.outdated(c.Store().Epoch()), nil
		case err == nil:
			now := k.stateOf(txn.First(resp, 0))
			if sent && !now.follows(st) {
				return k.dropped(ctx, st)
			}
			if !now.ownedBy(owner) {
				return false, nil
			}
			st, sent = now, false // renewed by another process of its owner
		case errors.Is(err, etcdclaims.ErrUnknown):
			sent = true
		case !txn.IsTransient(err):
			return false, txn.AfterSent(sent, err)
		}
		if !retry.PauseUnless(ctx, c.Closing(), try) {
			return false, txn.AfterSent(sent, c.Ended(txn.WithCause(ctx, err)))
		}
	}
}

// dropped reports whether a request whose reply was lost has removed the lock, which
// is gone: it did if the lock's lease lives.
func (k Locks) dropped(ctx context.Context, st state) (bool, error) {
	lease, err := k.core.Leases().TimeToLive(ctx, clientv3.LeaseID(st.kv.Lease))
	switch {
	case err != nil:
		return false, txn.Unknown(fmt.Errorf("the lock is gone, by this call or before: %w", txn.WithCause(ctx, err)))
	case lease.TTL <= 0:
		return false, txn.Unknown(errors.New("the lock is gone, by this call or by the end of its TTL"))
	}
	k.revoke(ctx, clientv3.LeaseID(st.kv.Lease))
	return !st.outdated(k.core.Store().Epoch()), nil
}

// Renew extends the owner's lock to last for ttl from now, and returns its
// fence and true. A ttl different from before raises the fence. If the key is
// free, has expired or is held by another owner, Renew returns false.
func (k Locks) Renew(ctx context.Context, key, owner string, ttl time.Duration) (fence int64, ok bool, err error) {
	defer named("renew the lock", key, &err)
	if err := k.check(key, owner); err != nil {
		return 0, false, err
	}
	ttl, err = k.checkTTL(ttl)
	if err != nil || k.claims.Passthrough() {
		return 0, err == nil, err
	}
	ctx, cancel := k.core.Bounded(ctx)
	defer cancel()
	defer k.settleLater(key, owner)
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		if err := k.settle(ctx, key, owner); err != nil {
			return 0, false, err
		}
		st, err := k.read(ctx, key)
		if err != nil || !st.ownedBy(owner) || st.outdated(k.core.Store().Epoch()) {
			return 0, false, txn.AfterSent(sent, err)
		}
		fence, ok, err = k.extend(ctx, key, owner, st, ttl)
		if ok || err != nil && !errors.Is(err, etcdclaims.ErrUnknown) && !txn.IsTransient(err) {
			return fence, ok, txn.AfterSent(sent, err)
		}
		sent = sent || errors.Is(err, etcdclaims.ErrUnknown)
		// Without an error the lock is not as it was read: it is over, or another process
		// of its owner has renewed it.
		if !retry.PauseUnless(ctx, k.core.Closing(), try) {
			return 0, false, txn.AfterSent(sent, k.core.Ended(txn.WithCause(ctx, err)))
		}
	}
}

// ReleaseAll releases all locks of the owner and returns their number. It
// continues after a failure. The error joins the first ten failures.
func (k Locks) ReleaseAll(ctx context.Context, owner string) (int, error) {
	err := k.refusal()
	if err == nil {
		err = checkOwner(owner)
	}
	if err != nil || k.claims.Passthrough() {
		return 0, err
	}
	const most = 10 // errors
	var mu sync.Mutex
	var errs []error
	root, n, failures := k.index(owner), 0, 0
	settling, cancel := k.core.Bounded(ctx)
	defer cancel()
	if err := k.settle(settling, "", owner); err != nil {
		errs, failures = append(errs, err), 1
	}
	for p, err := range k.core.Pages(ctx, root, 512) {
		if err != nil {
			errs, failures = append(errs, err), failures+1
			break
		}
		core.EachOf(p.Kvs, func(kv *mvccpb.KeyValue) {
			ok, err := k.Release(ctx, strings.TrimPrefix(string(kv.Key), root), owner)
			mu.Lock()
			defer mu.Unlock()
			if ok {
				n++
			}
			if err != nil {
				if failures++; len(errs) < most {
					errs = append(errs, err)
				}
			}
		})
	}
	if failures > 0 {
		return n, errtext.CallOfAll(fmt.Sprintf("unlock all of owner %q: %d failures", owner, failures), errors.Join(errs...))
	}
	return n, nil
}
