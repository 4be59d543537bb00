package etcdclaims

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/wire"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// grantLease grants a lease of full seconds. One whose reply is lost lapses.
func (c *Client) grantLease(ctx context.Context, ttl time.Duration) (*clientv3.LeaseGrantResponse, error) {
	return roundTrip(ctx, c.store, RequestGrant, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return c.lease.Grant(ctx, int64(seconds(ttl)/time.Second))
	})
}

// revokeLease ends a lease, with all keys on it. If it fails, the lease lapses unless
// somebody renews it.
func (c *Client) revokeLease(ctx context.Context, id clientv3.LeaseID) error {
	_, err := roundTrip(ctx, c.store, RequestRevoke, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return c.lease.Revoke(ctx, id)
	})
	return err
}

// timeToLive reads how long a lease lasts. The TTL of the response is negative if
// there is no such lease.
func (c *Client) timeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	return roundTrip(ctx, c.store, RequestLeaseTTL, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return c.lease.TimeToLive(ctx, id, opts...)
	})
}

// leaseGone reports whether there is no such lease, and with it no key that was on it. A
// lease whose time is over, and that etcd has not ended yet, is there.
func (c *Client) leaseGone(ctx context.Context, id clientv3.LeaseID) (bool, error) {
	resp, err := c.timeToLive(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return true, nil
	}
	return err == nil && resp.TTL < 0 && resp.GrantedTTL == 0, err
}

// keepAlive renews a lease, in one attempt that the context bounds. It returns
// ErrLeaseNotFound if etcd has no such lease. clientv3's KeepAliveOnce would try again
// without a pause while etcd answers that it is unavailable.
func (c *Client) keepAlive(ctx context.Context, id clientv3.LeaseID) (ttl time.Duration, err error) {
	c.store.requests.Add(1)
	sent := clock.Mono()
	defer func() { c.store.answered(RequestKeepAlive, sent, err) }()
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	conn := c.etcd.ActiveConnection()
	if conn == nil {
		resp, err := c.lease.KeepAliveOnce(ctx, id)
		if err != nil {
			return 0, err
		}
		return time.Duration(resp.TTL) * time.Second, nil
	}
	stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx, grpc.WaitForReady(true))
	if err != nil {
		return 0, wire.CallError(ctx, err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		if _, rerr := stream.Recv(); rerr != nil {
			err = rerr // why the stream is over
		}
		return 0, clientv3.ContextError(ctx, err)
	}
	resp, err := stream.Recv()
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	if resp.TTL <= 0 {
		return 0, rpctypes.ErrLeaseNotFound
	}
	_ = stream.CloseSend()
	return time.Duration(resp.TTL) * time.Second, nil
}
