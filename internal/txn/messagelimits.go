package txn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// MessageLimits are the sizes of the largest message that a client sends, and of the
// largest reply that it takes, in bytes.
type MessageLimits struct {
	Send, Receive int
}

// callOptions returns what clientv3 sends each request with, and the limits among that:
// those of the client's configuration (MaxCallSendMsgSize and MaxCallRecvMsgSize), or
// clientv3's defaults. It sends nothing.
func callOptions(etcd *clientv3.Client) ([]grpc.CallOption, MessageLimits) {
	var seen recorder
	_, _ = clientv3.NewKVFromKVClient(&seen, etcd).Txn(context.Background()).Commit() // the recorder refuses
	return seen.opts, limitsOf(seen.opts)
}

// recorder keeps the options of what clientv3 was about to send.
type recorder struct {
	pb.KVClient
	opts []grpc.CallOption
}

func (r *recorder) Txn(_ context.Context, _ *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	r.opts = opts
	return nil, errors.ErrUnsupported
}

func limitsOf(opts []grpc.CallOption) MessageLimits {
	limits := MessageLimits{Send: math.MaxInt32, Receive: math.MaxInt32}
	for _, opt := range opts { // the last one counts
		switch opt := opt.(type) {
		case grpc.MaxSendMsgSizeCallOption:
			limits.Send = opt.MaxSendMsgSize
		case grpc.MaxRecvMsgSizeCallOption:
			limits.Receive = opt.MaxRecvMsgSize
		}
	}
	return limits
}

// isServersLimit reports whether the server refused a request of this size for
// its length, before it read it. The client refuses a reply in the same words,
// and then the request was carried out. So the error must name the request's
// size, and a limit other than the client's own: where both limits are equal the
// error stays ambiguous.
func isServersLimit(err error, size, receive int) bool {
	if Code(err) != codes.ResourceExhausted {
		return false
	}
	_, numbers, found := strings.Cut(err.Error(), "received message larger than max (")
	var length, limit int
	if !found {
		return false
	}
	if _, err := fmt.Sscanf(numbers, "%d vs. %d)", &length, &limit); err != nil {
		return false
	}
	return length == size && limit != receive
}
