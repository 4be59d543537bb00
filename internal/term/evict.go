package term

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// lossBy is how a claim is lost that was taken from its holder.
func lossBy(e protocol.Eviction) claimerr.Loss {
	why := errors.New(e.Reason) //nolint:err113 // the text of another client
	if e.Suspected {
		return claimerr.Loss{Reason: claimerr.Superseded, Err: fmt.Errorf("%w by %s: %w", claimerr.ErrSuspected, e.By, why)}
	}
	return claimerr.Loss{Reason: claimerr.Deleted, Err: fmt.Errorf("release forced by %s: %w", e.By, why)}
}

// Evicted ends the claim that a notice speaks of, and removes the notice.
func (ts *Terms) Evicted(kv *mvccpb.KeyValue) { ts.evicted(kv) }

// evicted returns the term if that was still held.
func (ts *Terms) evicted(kv *mvccpb.KeyValue) (lost *Term) {
	var e protocol.Eviction
	if err := json.Unmarshal(kv.Value, &e); err != nil || e.Version > protocol.Version {
		// What it is about, the next verification finds: that is now.
		ts.Log.Warn("a notice of eviction cannot be read", zap.ByteString("notice", kv.Key), zap.Int("version", e.Version), zap.Error(err))
		for _, s := range ts.Pool.Live() {
			if int64(s.ID()) == kv.Lease {
				s.RenewSoon()
			}
		}
		return nil
	}
	why := lossBy(e)
	ts.Keys.SetTaken(e.Claim, e.Key, why) // before looking: it may be about to hold the key
	if t := ts.Keys.Term(e.Key); t != nil && t.ID == e.Claim && t.TakeAway(why) {
		lost = t
	}
	for _, s := range ts.Pool.Live() {
		if int64(s.ID()) == kv.Lease {
			s.CleanUp("removing a notice of eviction", func(ctx context.Context) error {
				// A newer one may be about another key that was claimed together with this one.
				same := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)}
				_, err := ts.Store.Do(ctx, txn.Request{In: txn.Of(same, []clientv3.Op{clientv3.OpDelete(string(kv.Key))}, nil)})
				return err
			})
		}
	}
	return lost
}
