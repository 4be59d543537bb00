package etcdclaims

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// forceShared ends all shared claims of a key: first the record, without which no
// shared claim is held. Then each of them, so that its client is notified. Claims that
// share the key anew have another record and are not meant.
func (c *Client) forceShared(ctx context.Context, key string, record *mvccpb.KeyValue, reason string) error {
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		all := txn.Range(c.store.layout.sharers(key))
		resp, err := c.store.Do(ctx, txn.Request{In: &pb.TxnRequest{
			Compare: []*pb.Compare{txn.ModifiedAt(record.Key, record.ModRevision)},
			Success: []*pb.RequestOp{txn.Delete(record.Key), all},
			Failure: []*pb.RequestOp{txn.Get(record.Key), all},
		}})
		switch {
		case err == nil:
			sharers := resp.Responses[1].GetResponseRange().Kvs
			if now := resp.Responses[0].GetResponseRange(); now != nil && len(now.Kvs) > 0 {
				sharers = slices.DeleteFunc(sharers, func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision >= now.Kvs[0].CreateRevision })
			}
			return afterSent(true, c.forceEach(ctx, sharers, reason)) // without the record all are lost
		case errors.Is(err, ErrUnknown):
			sent = true
		case !txn.IsTransient(err):
			return callError("force the release of", key, afterSent(sent, err))
		}
		if !retry.PauseUnless(ctx, c.closing, try) {
			return callError("force the release of", key, afterSent(sent, c.ended(txn.WithCause(ctx, err))))
		}
	}
}

// forceLeft ends the shared claims of a key that has no record: an earlier call was
// interrupted.
func (c *Client) forceLeft(ctx context.Context, key, reason string) error {
	resp, err := c.read(ctx, clientv3.OpGet(c.store.layout.sharers(key), clientv3.WithPrefix()), clientv3.OpGet(c.store.layout.own(key)))
	if err != nil {
		return callError("force the release of", key, err)
	}
	if firstKV(resp, 1) != nil {
		return nil // it is held anew
	}
	return c.forceEach(ctx, resp.Responses[0].GetResponseRange().Kvs, reason)
}

// forceEach frees the keys of shared claims, several at a time.
func (c *Client) forceEach(ctx context.Context, sharers []*mvccpb.KeyValue, reason string) (err error) {
	const atOnce = 32
	var wg sync.WaitGroup
	var mu sync.Mutex
	room := make(chan struct{}, atOnce)
	for _, kv := range sharers {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if ferr := c.forceRelease(ctx, strings.TrimPrefix(string(kv.Key), c.store.layout.own("")), 0, reason); ferr != nil {
				mu.Lock()
				defer mu.Unlock()
				err = ferr
			}
		})
	}
	wg.Wait()
	return err
}
