package doctor

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// proxied starts etcd's grpc-proxy before the server, as etcd grpc-proxy does, and returns its
// endpoint.
func proxied(t *testing.T, server *testetcd.Server) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	etcd := server.ClientWith(t, clientv3.Config{Context: ctx, DialOptions: []grpc.DialOption{
		grpc.WithUnaryInterceptor(grpcproxy.AuthUnaryClientInterceptor), grpc.WithStreamInterceptor(grpcproxy.AuthStreamClientInterceptor),
	}})
	// The proxy's own watch is refused, and made again, while it has no user. If clientv3's
	// watcher is closed before it has noticed the end of a watch that was refused, Close
	// waits for ever for that end (watchGRPCStream.addSubstream forgets such a watch).
	etcd.Watcher = testetcd.NewWatcher(pb.NewWatchClient(etcd.ActiveConnection()))
	proxy := grpc.NewServer()
	kv, kvDone := grpcproxy.NewKvProxy(etcd)
	watch, watchDone := grpcproxy.NewWatchProxy(ctx, zap.NewNop(), etcd)
	lease, leaseDone := grpcproxy.NewLeaseProxy(ctx, etcd)
	pb.RegisterKVServer(proxy, kv)
	pb.RegisterWatchServer(proxy, watch)
	pb.RegisterLeaseServer(proxy, lease)
	pb.RegisterMaintenanceServer(proxy, grpcproxy.NewMaintenanceProxy(etcd))
	pb.RegisterAuthServer(proxy, grpcproxy.NewAuthProxy(etcd))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = proxy.Serve(l) }()
	t.Cleanup(func() {
		proxy.Stop()
		cancel()
		<-kvDone
		<-watchDone
		<-leaseDone
	})
	return "http://" + l.Addr().String()
}

// through returns an examination by a client that connects to the endpoint.
func through(t *testing.T, endpoint string, cfg clientv3.Config) *Examination {
	t.Helper()
	cfg.Endpoints = []string{endpoint}
	claims := claimtest.NewClient(t, testclaims.EtcdFunc(func(tb testing.TB) *clientv3.Client {
		tb.Helper()
		return testetcd.NewClient(tb, cfg)
	}), etcdclaims.Config{})
	return &Examination{Claims: claims, Limit: 100, Leases: 100, Patience: 2 * time.Second, Answer: 2 * time.Second}
}

// etcd's grpc-proxy passes all on that claims need.
func TestProxy(t *testing.T) {
	t.Parallel()
	e := through(t, proxied(t, testetcd.Start(t)), clientv3.Config{})
	e.Try(t.Context())
	for _, check := range []string{"write", "watch", "renewal"} {
		e.has(t, OK, check, "")
	}
}

// withUsers makes the server require a user, and adds root.
func withUsers(t *testing.T, server *testetcd.Server) {
	t.Helper()
	root, ctx := server.Client(t), t.Context()
	_, err := root.UserAdd(ctx, "root", "secret")
	if err == nil {
		_, err = root.UserGrantRole(ctx, "root", "root")
	}
	if err == nil {
		_, err = root.AuthEnable(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// etcd's grpc-proxy renews leases without the user of its client.
func TestProxyWithPasswords(t *testing.T) {
	t.Parallel()
	server := testetcd.Start(t)
	withUsers(t, server)
	e := through(t, proxied(t, server), clientv3.Config{Username: "root", Password: "secret"})
	e.Try(t.Context())
	e.has(t, OK, "write", "a lease and a claim took")
	e.has(t, Error, "renewal", "a lease cannot be renewed, so that each claim is lost at its first deadline: ")
}

// leasing.NewKV answers reads from its own cache, which misses a claim of a client without it.
func TestLeasingReadsAreStale(t *testing.T) {
	t.Parallel()
	server := testetcd.Start(t)
	kv, done, err := leasing.NewKV(server.Client(t), "/leasing/")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	claims := claimtest.NewClient(t, testclaims.EtcdFunc(server.Client), etcdclaims.Config{})
	count := func() int64 {
		t.Helper()
		resp, err := kv.Get(t.Context(), claims.OwnKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		return resp.Count
	}
	before := count()
	if _, err := claims.TryAcquire(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if after := count(); before != 0 || after != 0 {
		t.Errorf("%d keys before and %d after a claim: leasing has no cache any more; correct docs/operations.md", before, after)
	}
}
