package etcdclaims

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// KV returns the KV of the client's etcd, counted.
func (b built) KV() clientv3.KV {
	if !b.c.connects() {
		return nil
	}
	return countedKV{KV: b.c.etcd.KV, s: b.c.store}
}

// GrantLease grants a lease that the client does not renew.
func (b built) GrantLease(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	c := b.c
	if !c.connects() {
		return clientv3.NoLease, c.unconnected()
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	resp, err := counted(ctx, c.store, requestGrant, func() (*clientv3.LeaseGrantResponse, error) {
		return c.lease.Grant(ctx, int64(seconds(ttl)/time.Second))
	})
	if err != nil {
		return clientv3.NoLease, c.outage.Explain(err)
	}
	return resp.ID, nil
}

// RevokeLease revokes a lease of GrantLease.
func (b built) RevokeLease(ctx context.Context, id clientv3.LeaseID) error {
	c := b.c
	if !c.connects() {
		return c.unconnected()
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	_, err := counted(ctx, c.store, requestRevoke, func() (*clientv3.LeaseRevokeResponse, error) {
		return c.lease.Revoke(ctx, id)
	})
	return c.outage.Explain(err)
}

// countedKV counts the requests of a KV.
type countedKV struct {
	clientv3.KV
	s *store
}

func (k countedKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return counted(ctx, k.s, requestRange, func() (*clientv3.GetResponse, error) { return k.KV.Get(ctx, key, opts...) })
}

func (k countedKV) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return counted(ctx, k.s, requestPut, func() (*clientv3.PutResponse, error) { return k.KV.Put(ctx, key, val, opts...) })
}

func (k countedKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return counted(ctx, k.s, requestDelete, func() (*clientv3.DeleteResponse, error) { return k.KV.Delete(ctx, key, opts...) })
}

func (k countedKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	kind := requestTxn
	switch {
	case op.IsGet():
		kind = requestRange
	case op.IsPut():
		kind = requestPut
	case op.IsDelete():
		kind = requestDelete
	}
	return counted(ctx, k.s, kind, func() (clientv3.OpResponse, error) { return k.KV.Do(ctx, op) })
}

func (k countedKV) Txn(ctx context.Context) clientv3.Txn {
	return txn.New(func(cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
		return counted(ctx, k.s, requestTxn, k.KV.Txn(ctx).If(cmps...).Then(then...).Else(els...).Commit)
	})
}
