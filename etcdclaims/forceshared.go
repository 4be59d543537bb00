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
		_, err := c.store.Do(ctx, txn.Request{In: &pb.TxnRequest{
			Compare: []*pb.Compare{txn.ModifiedAt(record.Key, record.ModRevision)},
			Success: []*pb.RequestOp{txn.Delete(record.Key)},
		}})
		switch {
		case err == nil:
			return afterSent(true, c.forceSharers(ctx, key, reason)) // without the record all are lost
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

// forceSharers ends the shared claims of a key whose record is gone, but not those of a record
// that another caller has put since. The reply to this read can be large, so it is no part of
// the request that deletes the record.
func (c *Client) forceSharers(ctx context.Context, key, reason string) error {
	resp, err := c.read(ctx, clientv3.OpGet(c.store.layout.own(key)), clientv3.OpGet(c.store.layout.sharers(key), clientv3.WithPrefix()))
	if err != nil {
		return callError("force the release of", key, err)
	}
	sharers := resp.Responses[1].GetResponseRange().Kvs
	if now := firstKV(resp, 0); now != nil {
		sharers = slices.DeleteFunc(sharers, func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision >= now.CreateRevision })
	}
	return c.forceEach(ctx, sharers, reason)
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
