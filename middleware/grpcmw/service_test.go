package grpcmw_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware/grpcmw"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// What generated code calls the messages is long.
type (
	request  = grpc_testing.SimpleRequest
	response = grpc_testing.SimpleResponse
	order    = grpc_testing.StreamingOutputCallRequest
	news     = grpc_testing.StreamingOutputCallResponse
	part     = grpc_testing.StreamingInputCallRequest
	receipt  = grpc_testing.StreamingInputCallResponse

	watchServer  = grpc.ServerStreamingServer[news]
	uploadServer = grpc.ClientStreamingServer[part, receipt]
	chatServer   = grpc.BidiStreamingServer[order, news]
)

// service is a server with a method of each kind, as generated code calls it.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
	unary  func(ctx context.Context, req *request) (*response, error)
	watch  func(req *order, stream watchServer) error
	upload func(stream uploadServer) error
	chat   func(stream chatServer) error
}

func (s *service) UnaryCall(ctx context.Context, req *request) (*response, error) {
	return s.unary(ctx, req)
}

func (s *service) StreamingOutputCall(req *order, stream watchServer) error {
	return s.watch(req, stream)
}
func (s *service) StreamingInputCall(stream uploadServer) error { return s.upload(stream) }
func (s *service) FullDuplexCall(stream chatServer) error       { return s.chat(stream) }

func payload(text string) *grpc_testing.Payload { return &grpc_testing.Payload{Body: []byte(text)} }
func ask(key string) *request                   { return &request{Payload: payload(key)} }
func askFor(key string) *order                  { return &order{Payload: payload(key)} }
func partOf(key string) *part                   { return &part{Payload: payload(key)} }

// byPayload is the key that a message names.
var byPayload = grpcmw.MessageKey(func(_ context.Context, m interface {
	GetPayload() *grpc_testing.Payload
},
) string {
	return string(m.GetPayload().GetBody())
})

// fixed is a key that is known when a call begins.
func fixed(key string) grpcmw.Key {
	return grpcmw.CallKey(func(context.Context, string) string { return key })
}

// connect serves a service over a connection of its own. With client it is stamped.
func connect(tb testing.TB, svc grpc_testing.TestServiceServer, server grpcmw.ServerInterceptors, dial ...grpc.DialOption) grpc_testing.TestServiceClient {
	tb.Helper()
	return connectWith(tb, svc, server.Options(), dial...)
}

func connectWith(tb testing.TB, svc grpc_testing.TestServiceServer, server []grpc.ServerOption, dial ...grpc.DialOption) grpc_testing.TestServiceClient {
	tb.Helper()
	s := grpc.NewServer(append(server, grpc.WaitForHandlers(true))...)
	grpc_testing.RegisterTestServiceServer(s, svc)
	l := bufconn.Listen(256 << 10)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	tb.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			tb.Errorf("serving: %v", err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///test", append(dial,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return grpc_testing.NewTestServiceClient(conn)
}

// stamped are the options of a client with Stamp.
func stamped() []grpc.DialOption { return grpcmw.Stamp(nil).Options() }

// with returns a context with these values of the token's metadata.
func with(ctx context.Context, values ...string) context.Context {
	for _, v := range values {
		ctx = metadata.AppendToOutgoingContext(ctx, fencing.Header, v)
	}
	return ctx
}

// refusedAs fails unless a call was refused with the code and reason, as any client in
// any language sees it, and as a stamped one does.
func refusedAs(tb testing.TB, err error, code codes.Code, reason string) *grpcmw.RefusedError {
	tb.Helper()
	st, ok := status.FromError(err)
	if !ok || st.Code() != code {
		tb.Fatalf("got %v, want %v %s", err, code, reason)
	}
	var info *errdetails.ErrorInfo
	for _, detail := range st.Details() {
		if d, ok := detail.(*errdetails.ErrorInfo); ok {
			info = d
		}
	}
	if info.GetReason() != reason || info.GetDomain() != "etcdclaims" {
		tb.Fatalf("got %v with %v, want %v %s", err, info, code, reason)
	}
	var r *grpcmw.RefusedError
	if !errors.As(err, &r) {
		tb.Fatalf("%v is no RefusedError", err)
	}
	if r.Code != code || r.Reason != reason || r.Message == "" || r.Error() == "" {
		tb.Fatalf("got %+v, want %v %s", r, code, reason)
	}
	return r
}
