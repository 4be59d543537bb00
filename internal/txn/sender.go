package txn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
)

// ErrNoAnswer ends a request that took too long.
var ErrNoAnswer = fmt.Errorf("etcd does not answer: %w", context.DeadlineExceeded)

// Unanswered returns the error of a request that had a time limit of its own, below that of
// the caller's ctx. If that limit has passed it is ErrNoAnswer: the bare error of the limit
// reads as if ctx had ended.
func Unanswered(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ContextError(ctx) == nil {
		return ErrNoAnswer
	}
	return err
}

// Sender sends transactions, each in one request. If Direct is set it is sent once, as
// its message stands; otherwise by a KV of the caller's own, such as one of a namespace.
type Sender struct {
	Limits   MessageLimits
	Direct   bool
	kv       clientv3.KV
	conn     *grpc.ClientConn  // of the client; nil if only its KV is known
	opts     []grpc.CallOption // that clientv3 gives each request
	limits   timeLimits
	answered atomic.Pointer[time.Time] // when etcd has answered the last time; see connected
}

// NewSender returns the sender of a client, or of another KV.
func NewSender(kv clientv3.KV) *Sender {
	etcd, ok := kv.(*clientv3.Client)
	if !ok {
		return &Sender{kv: kv}
	}
	s := &Sender{kv: etcd.KV, conn: etcd.ActiveConnection()}
	s.opts, s.Limits = callOptions(etcd)
	_, s.Direct = once(etcd)
	return s
}

// Send carries out one round trip, in at most timeout. After an error, sent says
// whether the request may have left this process: else nothing can have been carried
// out.
func (s *Sender) Send(ctx context.Context, in *pb.TxnRequest, timeout time.Duration) (resp *clientv3.TxnResponse, sent bool, err error) {
	if ctx.Err() != nil {
		return nil, false, ContextError(ctx)
	}
	// The request's own timeout is kept here alone. As a deadline of the context
	// it would be sent along, which costs 20 µs on either side, and an etcd whose
	// clock runs ahead would use it first.
	callCtx, cancel := context.WithCancelCause(WithLeader(ctx))
	defer cancel(nil)
	defer s.limits.begin(timeout, cancel).end(&s.limits)
	to, tooLarge, own := net.Addr(nil), false, error(nil)
	if s.Direct {
		var r *pb.TxnResponse
		r, to, err = sendOnce(callCtx, cancel, s.conn, in, s.opts)
		if err == nil {
			return (*clientv3.TxnResponse)(r), true, nil
		}
		tooLarge = isServersLimit(err, proto.Size(in), s.Limits.Receive)
		own, err = err, clientv3.ContextError(unlessOnce(callCtx, ctx), err)
	} else {
		if err := s.connected(callCtx, in); err != nil {
			return nil, false, WithCause(ctx, fmt.Errorf("%w: %w", ErrNotSent, err))
		}
		cmps, then, els := Operations(in)
		resp, err = s.kv.Txn(callCtx).If(cmps...).Then(then...).Else(els...).Commit()
		s.note(err)
		if err == nil {
			return resp, true, nil
		}
	}
	if errors.Is(context.Cause(callCtx), ErrNoAnswer) {
		err = ErrNoAnswer
	}
	if tooLarge {
		return nil, true, fmt.Errorf("%w: %w", rpctypes.ErrRequestTooLarge, err)
	}
	// There was no connection for it, and is none.
	if s.Direct && to == nil && s.conn.GetState() != connectivity.Ready {
		return nil, false, explained(own, WithCause(ctx, fmt.Errorf("%w: %w", ErrNotSent, err)))
	}
	return nil, true, err
}

// provenFor is how long an answer shows that there is a connection.
const provenFor = time.Second

// connected waits for a connection to etcd before a request that a KV of the caller's own
// sends. After the request that KV cannot say whether there was one. If the client is not
// known either, a read that any member answers shows it, unless one was answered just now.
func (s *Sender) connected(ctx context.Context, in *pb.TxnRequest) error {
	if s.conn != nil {
		for state := s.conn.GetState(); state != connectivity.Ready; state = s.conn.GetState() {
			s.conn.Connect()
			if state == connectivity.Shutdown || !s.conn.WaitForStateChange(ctx, state) {
				return fmt.Errorf("the connection is %v: %w", state, WithCause(ctx, context.Canceled))
			}
		}
		return nil
	}
	if at := s.answered.Load(); at != nil && time.Since(*at) < provenFor || len(in.Compare) == 0 {
		return nil
	}
	_, err := s.kv.Get(ctx, string(in.Compare[0].Key), clientv3.WithSerializable(), clientv3.WithCountOnly())
	if s.note(err); s.answered.Load() == nil {
		return err
	}
	return nil
}

// note remembers whether etcd has answered a request that ended with err.
func (s *Sender) note(err error) {
	if err != nil && MayBeDone(err) {
		s.answered.Store(nil)
		return
	}
	now := clock.Mono()
	s.answered.Store(&now)
}

// errOnce ends the context of a request that clientv3 would repeat.
var errOnce = errors.New("a transaction is sent once")

// unlessOnce returns the context of a request, or its caller's if it was ended to send the request once.
func unlessOnce(ctx, callers context.Context) context.Context {
	if errors.Is(context.Cause(ctx), errOnce) {
		return callers
	}
	return ctx
}

// sending is what a request is sent with, allocated together.
type sending struct {
	cancel context.CancelCauseFunc
	to     peer.Peer // that has it
	reply  pb.TxnResponse
	opts   [8]grpc.CallOption
}

// sendOnce sends a transaction once, and returns which endpoint has it, if any. cancel is that
// of ctx. clientv3's interceptor repeats any request, changes included, that ended with the
// server's word that a deadline passed or the request was cancelled, while the caller's context
// goes on (client/v3/retry_interceptor.go, isContextError): a server whose clock for the deadline
// runs a little ahead says just that, of what it may have carried out.
func sendOnce(ctx context.Context, cancel context.CancelCauseFunc, conn *grpc.ClientConn, in *pb.TxnRequest, opts []grpc.CallOption,
) (reply *pb.TxnResponse, to net.Addr, err error) {
	s := &sending{cancel: cancel}
	all := append(append(s.opts[:0], opts...), grpc.StaticMethod(), grpc.Peer(&s.to), grpc.OnFinish(s.finished))
	if err := conn.Invoke(ctx, pb.KV_Txn_FullMethodName, in, &s.reply, all...); err != nil {
		return nil, s.to.Addr, err
	}
	return &s.reply, s.to.Addr, nil
}

// finished ends the context after what the interceptor would repeat, which it takes for the end of the caller.
func (s *sending) finished(err error) {
	if err == nil {
		return
	}
	if c := Code(err); c == codes.DeadlineExceeded || c == codes.Canceled {
		s.cancel(errOnce)
	}
}

// onceKV sends a transaction once.
type onceKV struct {
	pb.KVClient
	conn *grpc.ClientConn
}

func (k onceKV) Txn(ctx context.Context, in *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, _, err := sendOnce(ctx, cancel, k.conn, in, opts)
	return resp, err
}

// once returns a client that sends transactions once, unless the client has a KV of the
// caller's own.
func once(etcd *clientv3.Client) (kv onceKV, ok bool) {
	conn := etcd.ActiveConnection()
	if conn == nil || reflect.TypeOf(etcd.KV) != reflect.TypeOf(clientv3.NewKV(etcd)) {
		return onceKV{}, false
	}
	return onceKV{pb.NewKVClient(conn), conn}, true
}

// KV returns etcd's KV, which sends transactions once. A KV of the caller's own, such
// as one of a namespace, is left as it is, and with it the repeating.
func KV(etcd *clientv3.Client) clientv3.KV {
	if kv, ok := once(etcd); ok {
		return clientv3.NewKVFromKVClient(kv, etcd)
	}
	return etcd.KV
}
