package admin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// forceShared ends all shared claims of a key: first the record, without which no
// shared claim is held. Then each of them, so that its client is notified. Claims that
// share the key anew have another record and are not meant.
func (c client) forceShared(ctx context.Context, act *audit.Act, key string, record *mvccpb.KeyValue, reason string) error {
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		_, err := audit.Send(act, func(act *audit.Act) (*clientv3.TxnResponse, error) {
			return c.Store().Do(ctx, recorded(txn.Request{In: &pb.TxnRequest{
				Compare: []*pb.Compare{txn.ModifiedAt(record.Key, record.ModRevision)},
				Success: []*pb.RequestOp{txn.Delete(record.Key)},
			}}, act))
		})
		switch {
		case err == nil:
			return txn.AfterSent(true, c.forceSharers(ctx, act, key, reason)) // without the record all are lost
		case errors.Is(err, etcdclaims.ErrUnknown):
			sent = true
		case !txn.IsTransient(err):
			return errtext.Call("force the release of", key, txn.AfterSent(sent, err))
		}
		if !retry.PauseUnless(ctx, c.Closing(), try) {
			return errtext.Call("force the release of", key, txn.AfterSent(sent, c.Ended(txn.WithCause(ctx, err))))
		}
	}
}

// forceSharers ends the shared claims of a key whose record is gone, but not those of a record
// that another caller has put since. The reply to this read can be large, so it is no part of
// the request that deletes the record.
func (c client) forceSharers(ctx context.Context, act *audit.Act, key, reason string) error {
	resp, err := c.Read(ctx, clientv3.OpGet(c.Layout().Own(key)), clientv3.OpGet(c.Layout().Sharers(key), clientv3.WithPrefix()))
	if err != nil {
		return errtext.Call("force the release of", key, err)
	}
	sharers := txn.Kvs(resp, 1)
	if now := txn.First(resp, 0); now != nil {
		sharers = slices.DeleteFunc(sharers, func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision >= now.CreateRevision })
	}
	return c.forceEach(ctx, act, sharers, reason)
}

// forceEach frees the keys of shared claims, several at a time.
func (c client) forceEach(ctx context.Context, act *audit.Act, sharers []*mvccpb.KeyValue, reason string) (err error) {
	var mu sync.Mutex
	core.EachOf(sharers, func(kv *mvccpb.KeyValue) {
		ferr := c.forceRelease(ctx, act, strings.TrimPrefix(string(kv.Key), c.Layout().Own("")), 0, kv.ModRevision, reason)
		if ferr != nil {
			mu.Lock()
			defer mu.Unlock()
			err = ferr
		}
	})
	return err
}
