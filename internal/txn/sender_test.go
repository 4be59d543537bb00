package txn

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/ordering"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// server answers transactions as a test says, and counts them.
type server struct {
	pb.UnimplementedKVServer
	requests atomic.Int32
	reads    atomic.Int32
	answer   func(ctx context.Context, in *pb.TxnRequest) (*pb.TxnResponse, error)
}

func (s *server) Txn(ctx context.Context, in *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.requests.Add(1)
	return s.answer(ctx, in)
}

func (s *server) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	s.reads.Add(1)
	return nil, rpctypes.ErrGRPCPermissionDenied // an answer
}

func (s *server) start(t *testing.T) *clientv3.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	pb.RegisterKVServer(g, s)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return dial(t, l.Addr().String())
}

func dial(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	return etcd
}

// A request is sent once, and its error says whether it can have been carried out.
func TestSend(t *testing.T) {
	t.Parallel()
	in := &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("k")}}}
	hangs := func(ctx context.Context, _ *pb.TxnRequest) (*pb.TxnResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	fails := func(err error) func(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
		return func(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) { return nil, err }
	}
	for name, tt := range map[string]struct {
		answer func(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
		want   error
	}{
		"answered": {answer: func(_ context.Context, got *pb.TxnRequest) (*pb.TxnResponse, error) {
			return &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 7}, Succeeded: string(got.Compare[0].Key) == "k"}, nil
		}},
		"no answer":        {hangs, ErrNoAnswer},
		"server's timeout": {fails(status.Error(codes.DeadlineExceeded, "context deadline exceeded")), nil},
		"no leader":        {fails(rpctypes.ErrGRPCNoLeader), rpctypes.ErrNoLeader},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{answer: tt.answer}
			timeout := time.Minute
			if name == "no answer" {
				timeout = 100 * time.Millisecond
			}
			etcd := s.start(t)
			// The connection is there once any request has an answer: the timeout is not for that.
			if _, err := etcd.Get(t.Context(), "k"); Code(err) != codes.PermissionDenied {
				t.Fatal(err)
			}
			resp, sent, err := NewSender(etcd).Send(t.Context(), in, timeout)
			// It may be 0 if the timeout came before the request had left or had arrived.
			if !sent || s.requests.Load() > 1 || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("sent %v, %d requests, %v", sent, s.requests.Load(), err)
			}
			if name == "answered" && (err != nil || !resp.Succeeded || resp.Header.Revision != 7) || name != "answered" && err == nil {
				t.Errorf("reply %v, %v", resp, err)
			}
			if name == "server's timeout" && Code(err) != codes.DeadlineExceeded {
				t.Errorf("%v, as if its caller had ended it", err)
			}
		})
	}
}

// A request for which there is no connection, or no caller any more, is not sent.
func TestNotSent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // nobody listens there
	s := NewSender(dial(t, l.Addr().String()))
	if _, sent, err := s.Send(t.Context(), &pb.TxnRequest{}, 100*time.Millisecond); sent || !errors.Is(err, ErrNotSent) {
		t.Errorf("without a connection: sent %v, %v", sent, err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, sent, err := s.Send(ctx, &pb.TxnRequest{}, time.Minute); sent || !errors.Is(err, gone) {
		t.Errorf("without a caller: sent %v, %v", sent, err)
	}
}

// A KV of the caller's own cannot say whether it had a connection for a request: the sender finds out before.
func TestNotSentByAnotherKV(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	answers := &server{answer: func(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
		return &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true}, nil
	}}
	in := &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("k"), TargetUnion: &pb.Compare_ModRevision{ModRevision: 1}}}}
	violation := func(clientv3.Op, clientv3.OpResponse, int64) error { return nil }
	for name, wrap := range map[string]func(*clientv3.Client) clientv3.KV{
		"namespace":    func(etcd *clientv3.Client) clientv3.KV { return namespace.NewKV(etcd.KV, "n/") },
		"of a client":  func(etcd *clientv3.Client) clientv3.KV { return namespace.NewKV(etcd, "n/") },
		"ordering":     func(etcd *clientv3.Client) clientv3.KV { return ordering.NewKV(etcd.KV, violation) },
		"in a client":  func(etcd *clientv3.Client) clientv3.KV { etcd.KV = namespace.NewKV(etcd.KV, "n/"); return etcd },
		"the KV alone": func(etcd *clientv3.Client) clientv3.KV { return etcd.KV },
	} {
		s := NewSender(wrap(dial(t, l.Addr().String())))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, sent, err := s.Send(ctx, in, time.Minute); sent || !errors.Is(err, ErrNotSent) ||
			!errors.Is(err, context.DeadlineExceeded) || MayBeDone(err) {
			t.Errorf("%s: sent %v, %v", name, sent, err)
		}
		if _, sent, err := s.Send(t.Context(), in, 50*time.Millisecond); sent || !errors.Is(err, ErrNotSent) {
			t.Errorf("%s: sent %v, %v", name, sent, err)
		}
		cancel()

		etcd := answers.start(t)
		s = NewSender(wrap(etcd))
		requests, reads := answers.requests.Load(), answers.reads.Load()
		for range 3 {
			if resp, sent, err := s.Send(t.Context(), in, time.Minute); err != nil || !sent || !resp.Succeeded {
				t.Errorf("%s: %v, sent %v, %v", name, resp, sent, err)
			}
		}
		want := int32(1)
		if name == "in a client" {
			want = 0
		}
		if got := answers.reads.Load() - reads; got != want && time.Since(*s.answered.Load()) < provenFor ||
			answers.requests.Load()-requests != 3 {
			t.Errorf("%s: %d reads, want %d; %d requests", name, got, want, answers.requests.Load()-requests)
		}
		_ = etcd.Close()
		if _, sent, err := s.Send(t.Context(), in, 50*time.Millisecond); name == "in a client" && (sent || !errors.Is(err, ErrNotSent)) {
			t.Errorf("%s, closed: sent %v, %v", name, sent, err)
		}
	}
}
