package etcdguard_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// A write that fits by itself fits beside others, whatever limits client and
// server have, and takes few requests once they are known.
func TestSharedRequestsFit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		client  clientv3.Config
		server  testetcd.Option
		size    int // of a value
		options []clientv3.OpOption
		most    int32 // requests for the last 16 writes
	}{
		"client sends little":          {clientv3.Config{MaxCallSendMsgSize: 200 << 10, MaxCallRecvMsgSize: 8 << 20}, testetcd.NoSync(), 60 << 10, nil, 10},
		"client takes little":          {clientv3.Config{MaxCallSendMsgSize: 1 << 20, MaxCallRecvMsgSize: 1 << 20}, testetcd.NoSync(), 200 << 10, []clientv3.OpOption{clientv3.WithPrevKV()}, 16},
		"server takes small requests":  {clientv3.Config{}, maxRequest(100 << 10), 30 << 10, nil, 13},
		"server takes small messages":  {clientv3.Config{}, maxRequest(1 << 10), 500, nil, 16},
		"as clients and servers are":   {clientv3.Config{}, testetcd.NoSync(), 10 << 10, nil, 3},
		"as they are, previous values": {clientv3.Config{}, testetcd.NoSync(), 10 << 10, []clientv3.OpOption{clientv3.WithPrevKV()}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testetcd.Start(t, testetcd.NoSync(), tt.server)
			held := claim(t, newClient(t, s.Client(t), testetcd.Prefix(t)), "k")
			var gate *gated
			tt.client.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				return gate.intercept(ctx, method, req, reply, cc, invoker, opts...)
			})}
			etcd := s.ClientWith(t, tt.client)
			kv := etcdguard.NewKV(etcd, held)
			const rounds, writes = 50, 16
			fewest := int32(writes)
			for round := 0; round < rounds && fewest > tt.most; round++ {
				gate = newGated()
				var wg sync.WaitGroup
				for i := range int32(2) {
					wg.Go(func() {
						if _, err := kv.Put(t.Context(), fmt.Sprint("/first/", i), ""); err != nil {
							t.Error(err)
						}
					})
					gate.wait(t, i+1)
				}
				for i := range writes {
					wg.Go(func() {
						if _, err := kv.Put(t.Context(), key(i), strings.Repeat(fmt.Sprint(round), tt.size), tt.options...); err != nil {
							t.Errorf("round %d: %v", round, err)
						}
					})
				}
				time.Sleep(20 * time.Millisecond) // until they are in line
				gate.open()
				wg.Wait()
				fewest = min(fewest, gate.started.Load()-2)
			}
			if fewest > tt.most { // on a busy machine not all are in line in each round
				t.Errorf("at least %d requests for %d writes, want at most %d", fewest, writes, tt.most)
			}
		})
	}
}

func maxRequest(bytes uint) testetcd.Option {
	return testetcd.Tweak(func(cfg *embed.Config) { cfg.MaxRequestBytes = bytes })
}

// A write that etcd refuses for its size was not carried out; one whose reply the
// client refuses may have been, and here was.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	s := testetcd.Start(t, testetcd.NoSync())
	claims := newClient(t, s.Client(t), testetcd.Prefix(t))
	held := claim(t, claims, "k")
	big := clientv3.Config{MaxCallSendMsgSize: 16 << 20, MaxCallRecvMsgSize: 32 << 20}
	for name, tt := range map[string]struct {
		client  clientv3.Config
		size    int
		want    error
		options []clientv3.OpOption
		done    bool
	}{
		"for etcd":                 {big, 1600 << 10, rpctypes.ErrRequestTooLarge, nil, false},
		"for the server's gRPC":    {big, 3 << 20, rpctypes.ErrRequestTooLarge, nil, false},
		"for the client's gRPC":    {clientv3.Config{MaxCallSendMsgSize: 1 << 20}, 1100 << 10, nil, nil, false},
		"the reply for the client": {clientv3.Config{MaxCallSendMsgSize: 64 << 10, MaxCallRecvMsgSize: 64 << 10}, 1 << 10, fencing.ErrUnknown, []clientv3.OpOption{clientv3.WithPrevKV()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			etcd := s.ClientWith(t, tt.client)
			if _, err := s.Client(t).Put(t.Context(), "/big", strings.Repeat("x", 100<<10)); err != nil {
				t.Fatal(err)
			}
			value := strings.Repeat("y", tt.size)
			_, err := etcdguard.NewKV(etcd, held).Put(t.Context(), "/big", value, tt.options...)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || errors.Is(err, fencing.ErrUnknown) != tt.done {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if got, err := s.Client(t).Get(t.Context(), "/big"); err != nil || (string(got.Kvs[0].Value) == value) != tt.done {
				t.Errorf("it was carried out: %v, want %v (%v)", !tt.done, tt.done, err)
			}
		})
	}
}

// A write that found no connection is not unknown, whatever KV sends it.
func TestNotSent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{l.Addr().String()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	holder := etcdguard.Bearer("", fencing.Token{Key: "k", Fence: 7})
	for name, kv := range map[string]clientv3.KV{
		"client": etcd, "namespace": namespace.NewKV(etcd, "n/"),
		"namespace of its KV": namespace.NewKV(etcd.KV, "n/"),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := etcdguard.NewKV(kv, holder).Put(ctx, "/data", "v")
		if cancel(); err == nil || errors.Is(err, fencing.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "no connection to etcd") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
