package etcdclaims

import (
	"context"
	"errors"
	"strings"

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

// removeGhosts removes, in the background, the keys on the client's leases that belong
// to no claim or attempt of its own.
func (c *Client) removeGhosts() {
	for _, s := range c.liveSessions() {
		if s.removingGhosts.Swap(true) {
			continue // it is yet to begin
		}
		c.cleanUp(s, "looking for what a restore brought back", func(context.Context) error {
			s.removingGhosts.Store(false)
			err := c.removeGhostsOf(s)
			if err != nil && isPassing(err) && !s.removingGhosts.Swap(true) {
				return err
			}
			if err != nil {
				// A missed key is held until the session ends, and with it the lease:
				// no claim is wrong by that.
				c.log.Debug("what is on a lease cannot be read", s.fields(zap.Error(err))...)
			}
			return nil
		})
	}
}

func (c *Client) removeGhostsOf(s *session) error {
	ctx, cancel := context.WithTimeout(c.io, c.store.Timeout())
	defer cancel()
	lease, err := c.store.TimeToLive(ctx, s.id, clientv3.WithAttachedKeys())
	if err != nil {
		return err
	}
	var doubtful []string
	for _, key := range lease.Keys {
		if name := string(key); strings.HasPrefix(name, c.store.Layout.Own("")) || strings.HasPrefix(name, c.store.Layout.Lines()) || strings.HasPrefix(name, c.store.Layout.Notices()) {
			doubtful = append(doubtful, name)
		}
	}
	for len(doubtful) > 0 {
		n := min(len(doubtful), c.store.MaxOps())
		ops := make([]clientv3.Op, n)
		for i, name := range doubtful[:n] {
			ops[i] = clientv3.OpGet(name)
		}
		resp, err := c.store.Do(ctx, txn.Request{In: txn.Then(ops...)})
		if txn.IsTooManyOps(err) && n > txn.LeastOps {
			c.store.FewerOps(n)
			continue
		}
		if err != nil {
			return err
		}
		// After they were read: an attempt that put one before that is registered, or
		// has given it up.
		known := c.keys.Known()
		for i := range n {
			if kv := txn.First(resp, i); kv != nil && kv.Lease == int64(s.id) && !known.Has(kv, c.store.Layout) {
				c.removeGhost(s, kv)
			}
		}
		doubtful = doubtful[n:]
	}
	return nil
}

// removeGhost deletes a key as it was read, and what else there is of its claim.
func (c *Client) removeGhost(s *session, kv *mvccpb.KeyValue) {
	name := string(kv.Key)
	c.log.Info("ended claim found, probably restored; removing it", s.fields(zap.String("etcd_key", name))...)
	then := []clientv3.Op{clientv3.OpDelete(name)}
	if key, own := strings.CutPrefix(name, c.store.Layout.Own("")); own {
		then = append(then, clientv3.OpDelete(c.store.Layout.Note(key)))
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
	c.cleanUp(s, "removing a claim that a restore brought back", func(ctx context.Context) error {
		_, err := c.store.Do(ctx, r)
		if errors.Is(err, ErrPermissionDenied) {
			r.In.Success = r.In.Success[:1] // a role that may not write notes has left none
		}
		return err
	})
}
