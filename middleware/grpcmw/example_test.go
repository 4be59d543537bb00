package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/middleware/grpcmw"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// listen serves a service, and returns a client for it and what stops both.
func listen(svc grpc_testing.TestServiceServer, guard grpcmw.ServerInterceptors) (grpc_testing.TestServiceClient, func()) {
	server := grpc.NewServer(guard.Options()...)
	grpc_testing.RegisterTestServiceServer(server, svc)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(l) //nolint:errcheck // it ends with the example
	conn, err := grpc.NewClient(l.Addr().String(), append(grpcmw.Stamp(nil).Options(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		log.Fatal(err)
	}
	return grpc_testing.NewTestServiceClient(conn), func() { conn.Close(); server.Stop() }
}

// A service that works on one order at a time asks the stock, which refuses those who
// are late.
func Example() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Owner: "orders-1", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)

	// The message names the order: of a service of yours, m would have a GetOrderId.
	order := grpcmw.MessageKey(func(_ context.Context, m interface {
		GetPayload() *grpc_testing.Payload
	},
	) string {
		return "orders/" + string(m.GetPayload().GetBody())
	})

	var gate fencing.Memory // an early reject: guard the write itself, too
	stock, stop := listen(&service{unary: func(context.Context, *request) (*response, error) {
		return &response{}, nil
	}}, grpcmw.Gate(&gate, order, grpcmw.Config{}))
	defer stop()

	var late context.Context
	orders, stop := listen(&service{unary: func(ctx context.Context, req *request) (*response, error) {
		late = ctx
		return stock.UnaryCall(ctx, req) // the fence goes along
	}}, grpcmw.Exclusive(claims, order, grpcmw.Config{}))
	defer stop()

	pay := &request{Payload: &grpc_testing.Payload{Body: []byte("42")}}
	_, err = orders.UnaryCall(ctx, pay)
	fmt.Println(status.Code(err))

	// Another works on the order.
	claim, err := claims.TryAcquire(ctx, "orders/42")
	if err != nil {
		log.Fatal(err)
	}
	_, err = orders.UnaryCall(ctx, pay)
	fmt.Println(status.Code(err), errors.Is(err, fencing.ErrHeld))

	// It asks the stock, too, and what comes from the first then is late: its own
	// client knows, and what is sent all the same is refused.
	work, done := claim.Bind(ctx)
	defer done()
	_, err = stock.UnaryCall(work, pay)
	fmt.Println(status.Code(err))
	_, err = stock.UnaryCall(late, pay)
	fmt.Println(status.Code(err))
	old, _ := fencing.FromContext(late)
	_, err = stock.UnaryCall(metadata.AppendToOutgoingContext(ctx, fencing.Header, old.String()), pay)
	var stale *fencing.StaleError
	fmt.Println(status.Code(err), errors.As(err, &stale) && stale.Newest == claim.Fence())
	// Output:
	// OK
	// Aborted true
	// OK
	// Aborted
	// FailedPrecondition true
}
