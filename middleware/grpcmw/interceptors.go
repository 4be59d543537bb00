package grpcmw

import (
	"context"

	"google.golang.org/grpc"
)

// ServerInterceptors is a pair of interceptors for a server. Use both: calls of
// the kind that is left out are not guarded. Neither is ever nil.
type ServerInterceptors struct {
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
}

// Options returns both interceptors as options of grpc.NewServer. The
// interceptors of several options are nested in order, the first outermost.
func (i ServerInterceptors) Options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(i.Unary), grpc.ChainStreamInterceptor(i.Stream)}
}

// passthroughInterceptors pass every call on unchanged.
var passthroughInterceptors = ServerInterceptors{
	Unary: func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return handler(ctx, req)
	},
	Stream: func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return handler(srv, ss)
	},
}

// ClientInterceptors is a pair of interceptors for a client. Use both.
type ClientInterceptors struct {
	Unary  grpc.UnaryClientInterceptor
	Stream grpc.StreamClientInterceptor
}

// Options returns both interceptors as options of grpc.NewClient. The
// interceptors of several options are nested in order, the first outermost.
func (i ClientInterceptors) Options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(i.Unary), grpc.WithChainStreamInterceptor(i.Stream)}
}
