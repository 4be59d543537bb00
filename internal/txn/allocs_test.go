package txn

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// A request allocates little of its own: of these, clientv3's interceptor has most.
func TestSendAllocations(t *testing.T) {
	const bar = 22
	answer := func(_ context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		reply.(*pb.TxnResponse).Succeeded = true //nolint:forcetypeassert // that of a transaction
		return nil
	}
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(answer)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	s, in := NewSender(etcd), &pb.TxnRequest{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := testing.AllocsPerRun(1000, func() {
		if resp, _, err := s.Send(ctx, in, time.Minute); err != nil || !resp.Succeeded {
			t.Fatal(resp, err)
		}
	})
	if got > bar {
		t.Errorf("%v allocations, want at most %v", got, bar)
	}
	t.Logf("%v allocations", got)
}
