package store

import (
	"context"

	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// KV returns the KV of the client's etcd, counted.
func (s *Store) KV() clientv3.KV { return countedKV{KV: s.etcd.KV, s: s} }

// countedKV counts the requests of a KV.
type countedKV struct {
	clientv3.KV
	s *Store
}

func (k countedKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return Counted(ctx, k.s, RequestRange, func() (*clientv3.GetResponse, error) { return k.KV.Get(ctx, key, opts...) })
}

func (k countedKV) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return Counted(ctx, k.s, RequestPut, func() (*clientv3.PutResponse, error) { return k.KV.Put(ctx, key, val, opts...) })
}

func (k countedKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return Counted(ctx, k.s, RequestDelete, func() (*clientv3.DeleteResponse, error) { return k.KV.Delete(ctx, key, opts...) })
}

func (k countedKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	kind := RequestTxn
	switch {
	case op.IsGet():
		kind = RequestRange
	case op.IsPut():
		kind = RequestPut
	case op.IsDelete():
		kind = RequestDelete
	}
	return Counted(ctx, k.s, kind, func() (clientv3.OpResponse, error) { return k.KV.Do(ctx, op) })
}

func (k countedKV) Txn(ctx context.Context) clientv3.Txn {
	return txn.New(func(cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
		return Counted(ctx, k.s, RequestTxn, k.KV.Txn(ctx).If(cmps...).Then(then...).Else(els...).Commit)
	})
}
