package grpcmw_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware/grpcmw"
	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
)

// What a wrapped call costs beside a bare one, over the same kind of connection in
// memory: rounds of both in turn, and the median of their ratios.
func BenchmarkOverhead(b *testing.B) {
	svc := &service{
		unary: func(context.Context, *request) (*response, error) { return &response{}, nil },
		chat: func(stream chatServer) error {
			for {
				if _, err := stream.Recv(); err != nil {
					return nil
				}
				if err := stream.Send(&news{}); err != nil {
					return err
				}
			}
		},
	}
	bare := connect(b, svc, passOn)
	tok := fencing.NewContext(b.Context(), token("orders/42", 1234))
	held := fencing.WithCheck(tok, func() error { return nil })
	text, _ := token("orders/42", 1234).MarshalText()
	gated := grpcmw.Gate(new(fencing.Memory), byPayload, grpcmw.Config{})
	for _, bench := range []struct {
		name string
		ctx  context.Context
		c    grpc_testing.TestServiceClient
	}{
		{"Gate", with(b.Context(), string(text)), connect(b, svc, gated)},
		{"Stamp", held, connect(b, svc, passOn, stamped()...)},
		{"Stamp and Gate", held, connect(b, svc, gated, stamped()...)},
	} {
		b.Run(bench.name+"/call", func(b *testing.B) {
			calls := func(ctx context.Context, c grpc_testing.TestServiceClient) func() {
				return func() {
					if _, err := c.UnaryCall(ctx, ask("orders/42")); err != nil {
						b.Fatal(err)
					}
				}
			}
			compare(b, calls(b.Context(), bare), calls(bench.ctx, bench.c))
		})
		b.Run(bench.name+"/message", func(b *testing.B) {
			messages := func(ctx context.Context, c grpc_testing.TestServiceClient) func() {
				chat, err := c.FullDuplexCall(ctx)
				if err != nil {
					b.Fatal(err)
				}
				return func() {
					err := chat.Send(askFor("orders/42"))
					if err == nil {
						_, err = chat.Recv()
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			ctx, cancel := context.WithCancel(bench.ctx)
			defer cancel()
			compare(b, messages(ctx, bare), messages(ctx, bench.c))
		})
	}
}

// compare reports how long a wrapped call takes more than a bare one.
func compare(b *testing.B, bare, wrapped func()) {
	b.Helper()
	const round = 50
	bare()
	wrapped()
	spent := func(f func()) float64 {
		began := time.Now()
		for range round {
			f()
		}
		return float64(time.Since(began)) / round
	}
	var ratios, more []float64
	for i := 0; b.Loop(); i++ {
		first, second := bare, wrapped
		if i%2 > 0 {
			first, second = wrapped, bare
		}
		plain, whole := spent(first), spent(second)
		if i%2 > 0 {
			plain, whole = whole, plain
		}
		ratios, more = append(ratios, whole/plain), append(more, whole-plain)
	}
	slices.Sort(ratios)
	slices.Sort(more)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(more[len(more)/2], "ns-more/op")
	b.ReportMetric(0, "ns/op")
}

// What the interceptors of a server cost by themselves.
func BenchmarkGateAlone(b *testing.B) {
	gate := grpcmw.Gate(new(fencing.Memory), byPayload, grpcmw.Config{})
	ctx, req, handler := metadata.NewIncomingContext(b.Context(), metadata.Pairs(fencing.Header, `1234;key="orders/42"`)), ask("orders/42"), func(context.Context, any) (any, error) { return nil, nil }
	info := &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Pay"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := gate.Unary(ctx, req, info, handler); err != nil {
			b.Fatal(err)
		}
	}
}

// What the interceptor of a client costs by itself.
func BenchmarkStampAlone(b *testing.B) {
	stamp := grpcmw.Stamp(nil)
	ctx := fencing.WithCheck(fencing.NewContext(b.Context(), token("orders/42", 1234)), func() error { return nil })
	invoked := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := stamp.Unary(ctx, "/shop.Orders/Pay", nil, nil, nil, invoked); err != nil {
			b.Fatal(err)
		}
	}
}
