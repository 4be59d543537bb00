package etcdclaims

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// KV returns the KV of [Client.Etcd] with its requests counted: Stats and
// Hooks.Requested include them, and an outage is noticed by them. It is for packages that are built on claims and
// keep keys of their own. It adds nothing else to a request, so the caller sets
// timeouts and retries. A request that clientv3 repeats by itself counts once.
// Compact and GetStream are not counted. KV is nil for a passthrough client.
func (c *Client) KV() clientv3.KV {
	if !c.connects() {
		return nil
	}
	return countedKV{KV: c.etcd.KV, s: c.store}
}

// GrantLease grants a lease of etcd, counted as the requests of KV are. The ttl
// is rounded up to full seconds. The client does not renew the lease. GrantLease returns
// the errors of clientv3, and ErrPassthrough for a passthrough client. It ends after
// max(Config.TTL/2, 5 s). If the reply is lost, a lease without keys stays for the ttl.
func (c *Client) GrantLease(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	if !c.connects() {
		return clientv3.NoLease, c.unconnected()
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	resp, err := counted(ctx, c.store, RequestGrant, func() (*clientv3.LeaseGrantResponse, error) {
		return c.lease.Grant(ctx, int64(seconds(ttl)/time.Second))
	})
	if err != nil {
		return clientv3.NoLease, err
	}
	return resp.ID, nil
}

// RevokeLease revokes a lease of etcd, counted as the requests of KV are, and with it
// deletes the keys that are bound to it. It must be a lease of GrantLease: the leases of
// claims are revoked by Close. RevokeLease returns the errors of clientv3, and
// ErrPassthrough for a passthrough client. It ends after max(Config.TTL/2, 5 s).
func (c *Client) RevokeLease(ctx context.Context, id clientv3.LeaseID) error {
	if !c.connects() {
		return c.unconnected()
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	_, err := counted(ctx, c.store, RequestRevoke, func() (*clientv3.LeaseRevokeResponse, error) {
		return c.lease.Revoke(ctx, id)
	})
	return err
}

// countedKV counts the requests of a KV.
type countedKV struct {
	clientv3.KV
	s *store
}

func (k countedKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return counted(ctx, k.s, RequestRange, func() (*clientv3.GetResponse, error) { return k.KV.Get(ctx, key, opts...) })
}

func (k countedKV) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return counted(ctx, k.s, RequestPut, func() (*clientv3.PutResponse, error) { return k.KV.Put(ctx, key, val, opts...) })
}

func (k countedKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return counted(ctx, k.s, RequestDelete, func() (*clientv3.DeleteResponse, error) { return k.KV.Delete(ctx, key, opts...) })
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
	return counted(ctx, k.s, kind, func() (clientv3.OpResponse, error) { return k.KV.Do(ctx, op) })
}

func (k countedKV) Txn(ctx context.Context) clientv3.Txn {
	return txn.New(func(cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
		return counted(ctx, k.s, RequestTxn, k.KV.Txn(ctx).If(cmps...).Then(then...).Else(els...).Commit)
	})
}
