package wire

import (
	"context"
	"reflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
)

// Facts is what is seen of one request on its way, which clientv3 does not
// tell.
type Facts struct {
	In   *pb.TxnRequest   // to be sent in place of what clientv3 has put together
	conn *grpc.ClientConn // nil if the request did not pass onceKV
	peer peer.Peer
}

type factsKey struct{}

// NewContext returns a context whose transaction is seen by f.
func NewContext(ctx context.Context, f *Facts) context.Context {
	return context.WithValue(ctx, factsKey{}, f)
}

// Sent reports whether the request may have left this process: unless there was
// no connection for it, and is none.
func (f *Facts) Sent() bool {
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
		if c := Code(err); err != nil && (c == codes.DeadlineExceeded || c == codes.Canceled) {
			cancel() // which the interceptor takes for the end of the caller
		}
	}))
	if f, ok := ctx.Value(factsKey{}).(*Facts); ok {
		f.conn = k.conn
		if f.In != nil {
			in = f.In
		}
		opts = append(opts, grpc.Peer(&f.peer))
	}
	return k.KVClient.Txn(ctx, in, opts...)
}

// KV returns etcd's KV, sending once, and directly what Facts say. A KV of the
// caller's own, such as one of a namespace, is left as it is, and with it the
// repeating.
func KV(etcd *clientv3.Client) (kv clientv3.KV, direct bool) {
	conn := etcd.ActiveConnection()
	if conn == nil || reflect.TypeOf(etcd.KV) != reflect.TypeOf(clientv3.NewKV(etcd)) {
		return etcd.KV, false
	}
	return clientv3.NewKVFromKVClient(onceKV{pb.NewKVClient(conn), conn}, etcd), true
}
