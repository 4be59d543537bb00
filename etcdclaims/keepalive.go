package etcdclaims

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// keepAlive renews a lease, in one attempt. It returns ErrLeaseNotFound if there
// is none. clientv3's KeepAliveOnce would try again without a pause where etcd
// answers that it is unavailable, for as long as it does.
func (c *Client) keepAlive(ctx context.Context, id clientv3.LeaseID) (time.Duration, error) {
	c.store.requests.Add(1)
	conn := c.etcd.ActiveConnection()
	if conn == nil {
		resp, err := c.lease.KeepAliveOnce(ctx, id)
		if err != nil {
			return 0, err
		}
		return time.Duration(resp.TTL) * time.Second, nil
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx, grpc.WaitForReady(true))
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
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
