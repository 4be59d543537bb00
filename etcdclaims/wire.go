package etcdclaims

import (
	"context"
	"errors"
	"reflect"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
)

// wireFacts is what is seen of one request on its way, which clientv3 does not
// tell.
type wireFacts struct {
	in   *pb.TxnRequest   // to be sent in place of what clientv3 has put together
	conn *grpc.ClientConn // nil if the request did not pass onceKV
	peer peer.Peer
}

type wireFactsKey struct{}

// sent reports whether the request may have left this process: unless there was
// no connection for it, and is none.
func (f *wireFacts) sent() bool {
	return f.conn == nil || f.peer.Addr != nil || f.conn.GetState() == connectivity.Ready
}

// onceKV sends a transaction once. clientv3's interceptor repeats any request,
// changes included, that ended with the server's word that a deadline passed or
// the request was cancelled, while the caller's context goes on
// (client/v3/retry_interceptor.go, isContextError): a server whose clock for the
// deadline runs a little ahead says just that, of what it may have carried out.
type onceKV struct {
	pb.KVClient
	conn *grpc.ClientConn
}

func (k onceKV) Txn(ctx context.Context, in *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opts = append(opts, grpc.OnFinish(func(err error) {
		if c := code(err); err != nil && (c == codes.DeadlineExceeded || c == codes.Canceled) {
			cancel() // which the interceptor takes for the end of the caller
		}
	}))
	if f, ok := ctx.Value(wireFactsKey{}).(*wireFacts); ok {
		f.conn = k.conn
		if f.in != nil {
			in = f.in
		}
		opts = append(opts, grpc.Peer(&f.peer))
	}
	return k.KVClient.Txn(ctx, in, opts...)
}

// plainKV returns etcd's KV, sending once, and directly what wireFacts say. A KV
// of the caller's own, such as one of a namespace, is left as it is, and with it
// the repeating.
func plainKV(etcd *clientv3.Client) (kv clientv3.KV, direct bool) {
	conn := etcd.ActiveConnection()
	if conn == nil || reflect.TypeOf(etcd.KV) != reflect.TypeOf(clientv3.NewKV(etcd)) {
		return etcd.KV, false
	}
	return clientv3.NewKVFromKVClient(onceKV{pb.NewKVClient(conn), conn}, etcd), true
}

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

// errNotSent says that a request never left this process.
var errNotSent = errors.New("no connection to etcd")
