package testetcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
)

// A Virtual is one etcd member inside a testing/synctest bubble. It is the real
// server with its real gRPC services, on the bubble's clock.
type Virtual struct {
	member  member
	options options

	mu     sync.Mutex
	listen *bufconn.Listener // nil while stopped
	server *etcdserver.EtcdServer
	grpc   *grpc.Server
	served chan struct{} // closed when grpc has stopped serving
}

// connBuffer is how much a connection holds in each direction.
const connBuffer = 64 << 10

// StartVirtual starts a member of its own for the test, which must run inside
// a bubble ([testing/synctest.Test]). It serves when StartVirtual returns, up
// to two virtual seconds later, and is stopped when the test ends.
func StartVirtual(tb testing.TB, opts ...Option) *Virtual {
	tb.Helper()
	// A bubble's clock starts with the year 2000.
	if time.Now().Year() > 2020 {
		tb.Fatal("testetcd: StartVirtual must be called inside a synctest bubble")
	}
	const name = "virtual"
	v := &Virtual{
		member: member{
			name:      name,
			dir:       tb.TempDir(),
			client:    "127.0.0.1:2379", // nobody listens there: see Dial
			peer:      "127.0.0.1:2380",
			bootstrap: name + "=http://127.0.0.1:2380",
		},
		options: newOptions(opts),
	}
	tb.Cleanup(v.stop)
	if err := v.start(); err != nil {
		tb.Fatalf("testetcd: start virtual: %v", err)
	}
	return v
}

// Dial opens a connection to the server. It fails while the server is stopped.
func (v *Virtual) Dial(ctx context.Context) (net.Conn, error) {
	v.mu.Lock()
	l := v.listen
	v.mu.Unlock()
	if l == nil {
		return nil, errors.New("testetcd: connection refused")
	}
	return l.DialContext(ctx)
}

// Client returns a new client that is closed when the test ends.
func (v *Virtual) Client(tb testing.TB) *clientv3.Client {
	tb.Helper()
	dialer := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return v.Dial(ctx) })
	return v.ClientWith(tb, clientv3.Config{DialOptions: []grpc.DialOption{dialer}})
}

// ClientWith is like Client with a configuration of the test's own, which must
// have a dialer among its options, which calls [Virtual.Dial] in the end: tests
// inject faults there.
func (v *Virtual) ClientWith(tb testing.TB, cfg clientv3.Config) *clientv3.Client {
	tb.Helper()
	cfg.Endpoints = v.Endpoints()
	c := NewClient(tb, cfg)
	c.Watcher = NewWatcher(pb.NewWatchClient(c.ActiveConnection()))
	return c
}

// Endpoints returns the one name that the server goes by. Nobody listens there:
// see Dial.
func (v *Virtual) Endpoints() []string { return []string{"http://" + v.member.client} }

// Stop stops the server and keeps its data. Connections break at once.
func (v *Virtual) Stop(tb testing.TB) {
	tb.Helper()
	v.stop()
}

// Restart starts the server again with its data, after stopping it if
// necessary. Like any etcd it then renews all leases in full.
func (v *Virtual) Restart(tb testing.TB) {
	tb.Helper()
	v.stop()
	if err := v.start(); err != nil {
		tb.Fatalf("testetcd: restart virtual: %v", err)
	}
}

func (v *Virtual) start() error {
	cfg := embed.NewConfig()
	v.member.configure(cfg)
	cfg.UnsafeNoFsync = true
	// What runs regularly only to look after a server for months makes virtual
	// hours expensive.
	cfg.MaxSnapFiles, cfg.MaxWalFiles = 0, 0
	cfg.BackendBatchInterval = time.Second
	v.options.apply(cfg)

	sc, err := serverConfig(cfg)
	if err != nil {
		return err
	}
	if err := awaitUnlocked(cfg.Dir); err != nil {
		return err
	}
	s, err := etcdserver.NewServer(sc)
	if err != nil {
		return err
	}
	s.Start()
	select {
	case <-s.ReadyNotify():
	case <-s.StopNotify():
		return errors.New("stopped")
	case <-time.After(patience):
		s.HardStop()
		return errors.New("took too long")
	}

	opts := []grpc.ServerOption{
		// A request in progress must not find the backend closed below it.
		grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: cfg.GRPCKeepAliveMinTime}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:    cfg.GRPCKeepAliveInterval,
			Timeout: cfg.GRPCKeepAliveTimeout,
		}),
	}
	g := v3rpc.Server(s, nil, nil, append(opts, cfg.GRPCAdditionalServerOptions...)...)
	if cfg.ServiceRegister != nil {
		cfg.ServiceRegister(g)
	}
	l := bufconn.Listen(connBuffer)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(l) // it always ends with the listener
	}()
	v.mu.Lock()
	v.listen, v.server, v.grpc, v.served = l, s, g, served
	v.mu.Unlock()
	return nil
}

func (v *Virtual) stop() {
	v.mu.Lock()
	l, s, g, served := v.listen, v.server, v.grpc, v.served
	v.listen = nil
	v.mu.Unlock()
	if l == nil {
		return
	}
	g.Stop()
	<-served
	s.Stop()
}

// serverConfig does what embed does between its configuration and the server's,
// as far as it matters for a member without sockets.
func serverConfig(cfg *embed.Config) (config.ServerConfig, error) {
	if err := cfg.Validate(); err != nil {
		return config.ServerConfig{}, err
	}
	cluster, err := types.NewURLsMap(cfg.InitialCluster)
	if err != nil {
		return config.ServerConfig{}, fmt.Errorf("initial cluster: %w", err)
	}
	return config.ServerConfig{
		Name:                        cfg.Name,
		ClientURLs:                  cfg.AdvertiseClientUrls,
		PeerURLs:                    cfg.AdvertisePeerUrls,
		DataDir:                     cfg.Dir,
		SnapshotCount:               cfg.SnapshotCount,
		SnapshotCatchUpEntries:      cfg.SnapshotCatchUpEntries,
		MaxSnapFiles:                cfg.MaxSnapFiles,
		MaxWALFiles:                 cfg.MaxWalFiles,
		InitialPeerURLsMap:          cluster,
		InitialClusterToken:         cfg.InitialClusterToken,
		NewCluster:                  cfg.IsNewCluster(),
		TickMs:                      cfg.TickMs,
		ElectionTicks:               cfg.ElectionTicks(),
		InitialElectionTickAdvance:  cfg.InitialElectionTickAdvance,
		AutoCompactionMode:          cfg.AutoCompactionMode,
		QuotaBackendBytes:           cfg.QuotaBackendBytes,
		BackendBatchLimit:           cfg.BackendBatchLimit,
		BackendBatchInterval:        cfg.BackendBatchInterval,
		MaxTxnOps:                   cfg.MaxTxnOps,
		MaxRequestBytes:             cfg.MaxRequestBytes,
		MaxConcurrentStreams:        min(cfg.MaxConcurrentStreams, math.MaxUint32),
		StrictReconfigCheck:         cfg.StrictReconfigCheck,
		AuthToken:                   cfg.AuthToken,
		BcryptCost:                  cfg.BcryptCost,
		TokenTTL:                    cfg.AuthTokenTTL,
		CORS:                        cfg.CORS,
		HostWhitelist:               cfg.HostWhitelist,
		CorruptCheckTime:            cfg.CorruptCheckTime,
		CompactHashCheckTime:        cfg.CompactHashCheckTime,
		PreVote:                     cfg.PreVote,
		Logger:                      cfg.GetLogger(),
		UnsafeNoFsync:               cfg.UnsafeNoFsync,
		CompactionBatchLimit:        cfg.CompactionBatchLimit,
		CompactionSleepInterval:     cfg.CompactionSleepInterval,
		WatchProgressNotifyInterval: cfg.WatchProgressNotifyInterval,
		DowngradeCheckTime:          0, // nobody to downgrade with, so never
		WarningApplyDuration:        cfg.WarningApplyDuration,
		WarningUnaryRequestDuration: cfg.WarningUnaryRequestDuration,
		MaxLearners:                 cfg.MaxLearners,
		V2Deprecation:               cfg.V2DeprecationEffective(),
		ServerFeatureGate:           cfg.ServerFeatureGate,
		Metrics:                     cfg.Metrics,
	}, nil
}
