package wire

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
)

// Facts is what is seen of one request on its way, which clientv3 does not
// tell.
type Facts struct {
	In       *pb.TxnRequest   // to be sent in place of what clientv3 has put together
	If       []*pb.Compare    // to be sent along: clientv3 would copy each twice
	conn     *grpc.ClientConn // nil if the request did not pass onceKV
	peer     peer.Peer
	tooLarge bool // the server refused the request before it read it
}

type factsKey struct{}

// ErrNoAnswer ends a request that took too long.
var ErrNoAnswer = fmt.Errorf("etcd does not answer: %w", context.DeadlineExceeded)

// Exchange carries out one round trip, of a transaction that commit sends. An
// error says whether it was sent: else nothing can have been carried out.
func Exchange(ctx context.Context, timeout time.Duration, commit func(context.Context, *Facts) (*clientv3.TxnResponse, error)) (resp *clientv3.TxnResponse, sent bool, err error) {
	if ctx.Err() != nil {
		return nil, false, ContextError(ctx)
	}
	facts := new(Facts)
	// The request's own timeout is kept here alone. As a deadline of the context
	// it would be sent along, which costs 20 µs on either side, and an etcd whose
	// clock runs ahead would use it first.
	callCtx, cancel := context.WithCancelCause(context.WithValue(clientv3.WithRequireLeader(ctx), factsKey{}, facts))
	defer cancel(nil)
	defer time.AfterFunc(timeout, func() { cancel(ErrNoAnswer) }).Stop()
	resp, err = commit(callCtx, facts)
	if err == nil {
		return resp, true, nil
	}
	if errors.Is(context.Cause(callCtx), ErrNoAnswer) {
		err = ErrNoAnswer
	}
	if facts.tooLarge {
		return nil, true, fmt.Errorf("%w: %w", rpctypes.ErrRequestTooLarge, err)
	}
	if !facts.sent() {
		return nil, false, WithCause(ctx, fmt.Errorf("%w: %w", ErrNotSent, err))
	}
	return nil, true, err
}

// sent reports whether the request may have left this process: unless there was
// no connection for it, and is none.
func (f *Facts) sent() bool {
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
	f, ok := ctx.Value(factsKey{}).(*Facts)
	if !ok {
		return k.KVClient.Txn(ctx, in, opts...)
	}
	f.conn = k.conn
	if f.In != nil {
		in = f.In
	}
	in.Compare = append(in.Compare, f.If...)
	resp, err := k.KVClient.Txn(ctx, in, append(opts, grpc.Peer(&f.peer))...)
	f.tooLarge = err != nil && isServersLimit(err, proto.Size(in), limitsOf(opts).Receive)
	return resp, err
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
