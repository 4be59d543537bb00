package admin

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// RaiseEpoch raises the epoch of all claims under prefix and returns the new
// epoch. An empty prefix means DefaultPrefix. Every fence of the new epoch is
// greater than all earlier fences.
//
// It is for an operator whose etcd was restored from a snapshot without
// --bump-revision, so that its revisions went back. Call it before any client
// claims again.
//
// The new epoch is greater than the stored epoch, and greater than the value of the
// parameter named above. If the epoch was never raised, pass 0. A snapshot can be older
// than the last raise, and so contain an epoch that is already over. In that case pass
// the greatest epoch that was ever used. The ErrRewound of clients that saw the revision
// go back names that epoch. The highest bits of every fence contain the epoch of the fence:
// fence>>47.
//
// All claims of earlier epochs end: writes under their fences are refused.
// Clients that refused to claim, with ErrRewound, claim again. The last epoch
// is 65,535.
//
// If the error matches ErrUnknown, the epoch may have been raised. Raising it
// once more does no harm. ctx should have a deadline.
func RaiseEpoch(ctx context.Context, etcd *clientv3.Client, prefix string, above int64) (int64, error) {
	prefix = cmp.Or(prefix, etcdclaims.DefaultPrefix)
	if err := keyspace.CheckPrefix(prefix); err != nil {
		return 0, fmt.Errorf("etcdclaims: %w", err)
	}
	if above < 0 {
		return 0, fmt.Errorf("etcdclaims: raising the epoch above %d: no epoch is negative", above)
	}
	if etcd == nil {
		return 0, fmt.Errorf("%w: raising an epoch", etcdclaims.ErrPassthrough)
	}
	key := keyspace.EpochKey(prefix)
	kv := txn.KV(etcd)
	ctx = clientv3.WithRequireLeader(ctx)
	act := audit.BeginOn(ctx, kv, prefix, cmp.Or(etcd.Username, "unknown"), clock.For(etcd).Time(), audit.RaiseEpoch, audit.Target{}, "")
	fail := func(err error) (int64, error) {
		return 0, errtext.Call("raise the epoch", key, act.End(ctx, txn.WithCause(ctx, err)))
	}
	for {
		resp, err := kv.Get(ctx, key)
		if err != nil {
			return fail(err)
		}
		now, err := txn.ReadEpoch(resp.Kvs, resp.Header.Revision)
		if err != nil {
			return fail(err)
		}
		last := max(now.Value, above)
		if last >= keyspace.MaxEpoch {
			return fail(fmt.Errorf("%d is the last one there is: use another prefix", int64(keyspace.MaxEpoch)))
		}
		next := last + 1
		act.Detail("to %d", next)
		raised, err := kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", now.Rev)).
			Then(append(act.Ops(), clientv3.OpPut(key, strconv.FormatInt(next, 10)))...).Commit()
		if err != nil {
			return fail(txn.Outcome(ctx, err))
		}
		if raised.Succeeded {
			return next, act.End(ctx, nil)
		} // else another raised it meanwhile, perhaps before etcd was restored
	}
}
