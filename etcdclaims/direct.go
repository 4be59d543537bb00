package etcdclaims

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/store"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// KV returns the KV of the client's etcd, counted.
func (b built) KV() clientv3.KV {
	if !b.c.connects() {
		return nil
	}
	return b.c.store.KV()
}

// GrantLease grants a lease that the client does not renew.
func (b built) GrantLease(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	c := b.c
	if !c.connects() {
		return clientv3.NoLease, c.unconnected()
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	resp, err := store.Counted(ctx, c.store, store.RequestGrant, func() (*clientv3.LeaseGrantResponse, error) {
		return c.etcd.Grant(ctx, int64(lease.Seconds(ttl)/time.Second))
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
	_, err := store.Counted(ctx, c.store, store.RequestRevoke, func() (*clientv3.LeaseRevokeResponse, error) {
		return c.etcd.Revoke(ctx, id)
	})
	return c.outage.Explain(err)
}
