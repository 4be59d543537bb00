package term

import (
	"context"
	"errors"
	"strings"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A restore from a snapshot brings back claims, places in line and notices that their
// clients have given up since. Their leases are still renewed, so such a key would stay
// held without a holder. No client can see that etcd was restored, but each can see
// which keys on its leases are not its own. It looks whenever there may have been a
// restore: when its watch was compacted, and when the epoch is another.

// RemoveGhosts removes, in the background, the keys on the client's leases that belong
// to no claim or attempt of its own.
func (ts *Terms) RemoveGhosts() {
	for _, s := range ts.Pool.Live() {
		s.CleanUpOnce("looking for what a restore brought back", func(context.Context) error {
			err := ts.removeGhostsOf(s)
			if err != nil && claimerr.IsPassing(err) {
				return err
			}
			if err != nil {
				// A missed key is held until the session ends, and with it the lease:
				// no claim is wrong by that.
				ts.Log.Debug("what is on a lease cannot be read", s.Fields(zap.Error(err))...)
			}
			return nil
		})
	}
}

func (ts *Terms) removeGhostsOf(s *lease.Session) error {
	ctx, cancel := context.WithTimeout(ts.Life.IO, ts.Store.Timeout())
	defer cancel()
	on, err := ts.Store.TimeToLive(ctx, s.ID(), clientv3.WithAttachedKeys())
	if err != nil {
		return err
	}
	var doubtful []string
	l := ts.Store.Layout
	for _, key := range on.Keys {
		if name := string(key); strings.HasPrefix(name, l.Own("")) || strings.HasPrefix(name, l.Lines()) || strings.HasPrefix(name, l.Notices()) {
			doubtful = append(doubtful, name)
		}
	}
	for len(doubtful) > 0 {
		n := min(len(doubtful), ts.Store.MaxOps())
		ops := make([]clientv3.Op, n)
		for i, name := range doubtful[:n] {
			ops[i] = clientv3.OpGet(name)
		}
		resp, err := ts.Store.Do(ctx, txn.Request{In: txn.Then(ops...)})
		if txn.IsTooManyOps(err) && n > txn.LeastOps {
			ts.Store.FewerOps(n)
			continue
		}
		if err != nil {
			return err
		}
		// After they were read: an attempt that put one before that is registered, or
		// has given it up.
		known := ts.Keys.Known()
		for i := range n {
			if kv := txn.First(resp, i); kv != nil && kv.Lease == int64(s.ID()) && !known.Has(kv, l) {
				ts.removeGhost(s, kv)
			}
		}
		doubtful = doubtful[n:]
	}
	return nil
}

// removeGhost deletes a key as it was read, and what else there is of its claim.
func (ts *Terms) removeGhost(s *lease.Session, kv *mvccpb.KeyValue) {
	name := string(kv.Key)
	ts.Log.Info("ended claim found, probably restored; removing it", s.Fields(zap.String("etcd_key", name))...)
	then := []clientv3.Op{clientv3.OpDelete(name)}
	if key, own := strings.CutPrefix(name, ts.Store.Layout.Own("")); own {
		then = append(then, clientv3.OpDelete(ts.Store.Layout.Note(key)))
	}
	r := txn.Request{
		In: txn.Of(
			[]clientv3.Cmp{
				clientv3.Compare(clientv3.ModRevision(name), "=", kv.ModRevision),
				clientv3.Compare(clientv3.LeaseValue(name), "=", kv.Lease),
			},
			then,
			nil,
		),
	}
	s.CleanUp("removing a claim that a restore brought back", func(ctx context.Context) error {
		_, err := ts.Store.Do(ctx, r)
		if errors.Is(err, txn.ErrPermissionDenied) {
			r.In.Success = r.In.Success[:1] // a role that may not write notes has left none
		}
		return err
	})
}
