package scenarios_test

import (
	"context"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// proxy forwards transactions to etcd. It answers the first with Canceled after etcd
// has carried it out.
type proxy struct {
	pb.UnimplementedKVServer
	etcd pb.KVClient
	txns atomic.Int32
}

func (p *proxy) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := p.etcd.Txn(ctx, r)
	if p.txns.Add(1) == 1 && err == nil {
		return nil, status.Error(codes.Canceled, "the proxy has given up")
	}
	return resp, err
}

// TestTxnIsRepeated shows that clientv3 repeats a transaction that was carried out: the
// client that has taken a free key is told that the key is taken.
func TestTxnIsRepeated(t *testing.T) {
	etcd := startPlain(t)
	p := &proxy{etcd: pb.NewKVClient(etcd.ActiveConnection())}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, p)
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{lis.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	resp, err := client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision("lock"), "=", 0)).
		Then(clientv3.OpPut("lock", "me")).
		Else(clientv3.OpGet("lock")).Commit()
	if err != nil || p.txns.Load() == 1 {
		t.Fatalf("clientv3 returned %v after %d attempts: it did not repeat the transaction, and the fault is mended", err, p.txns.Load())
	}
	if resp.Succeeded {
		t.Fatalf("%d attempts, and the last has succeeded", p.txns.Load())
	}
	owner := resp.Responses[0].GetResponseRange().Kvs[0].Value
	t.Logf("sent once by the caller, %d times by clientv3; its answer is that %q has the lock", p.txns.Load(), owner)
	if string(owner) != "me" {
		t.Errorf("the lock is held by %q", owner)
	}
}

// startPlain returns a client of an etcd with one member.
func startPlain(t *testing.T) *clientv3.Client {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.LogLevel = "fatal"
	anyPort := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = []url.URL{anyPort}, []url.URL{anyPort}
	cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = []url.URL{anyPort}, []url.URL{anyPort}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd does not start")
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Clients[0].Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
