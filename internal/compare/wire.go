package main

import (
	"context"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// A wire counts what goes over the connections that were dialled with it: each
// message sent is a request, on a stream too, and each time that it is sent.
type wire struct{ sent, bytes atomic.Int64 }

// A gauge is how a wire counts.
type gauge int

const (
	plain   gauge = iota // not at all
	counted              // requests, by interceptors: these cost next to nothing
	metered              // bytes too, which costs both sides of a comparison something
)

// dial returns a client of etcd with a connection of its own. Nothing is sent
// yet.
func (w *wire) dial(st *stage, g gauge) (*clientv3.Client, error) {
	cfg := clientv3.Config{Endpoints: st.etcd.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()}
	switch g {
	case counted:
		cfg.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(w.unary), grpc.WithChainStreamInterceptor(w.stream)}
	case metered:
		cfg.DialOptions = []grpc.DialOption{grpc.WithStatsHandler(meter{w})}
	}
	return clientv3.New(cfg)
}

func (w *wire) requests() int64 { return w.sent.Load() }

func (w *wire) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	w.sent.Add(1)
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (w *wire) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return countedStream{s, w}, nil
}

type countedStream struct {
	grpc.ClientStream
	w *wire
}

func (s countedStream) SendMsg(m any) error {
	s.w.sent.Add(1)
	return s.ClientStream.SendMsg(m)
}

// A meter tells a wire of messages and their sizes.
type meter struct{ *wire }

func (m meter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (m meter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (m meter) HandleConn(context.Context, stats.ConnStats)                       {}

func (m meter) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.OutPayload:
		m.sent.Add(1)
		m.bytes.Add(int64(s.WireLength))
	case *stats.InPayload:
		m.bytes.Add(int64(s.WireLength))
	}
}
