package grpcmw

import (
	"context"

	"google.golang.org/grpc"
)

// ServerInterceptors are both kinds that a server can have: use both, since a call
// of the kind that is left out is not guarded. Neither is ever nil.
type ServerInterceptors struct {
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
}

// Options returns both as options of grpc.NewServer. Those of several go one inside
// the other, the first outermost.
func (i ServerInterceptors) Options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(i.Unary), grpc.ChainStreamInterceptor(i.Stream)}
}

// passOn are interceptors that do nothing.
var passOn = ServerInterceptors{
	Unary: func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return handler(ctx, req)
	},
	Stream: func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return handler(srv, ss)
	},
}

// ClientInterceptors are both kinds that a client can have: use both.
type ClientInterceptors struct {
	Unary  grpc.UnaryClientInterceptor
	Stream grpc.StreamClientInterceptor
}

// Options returns both as options of grpc.NewClient. Those of several go one inside
// the other, the first outermost.
func (i ClientInterceptors) Options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(i.Unary), grpc.WithChainStreamInterceptor(i.Stream)}
}
