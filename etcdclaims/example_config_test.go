package etcdclaims_test

import (
	"crypto/tls"
	"log"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// The recommended configuration.
func Example_config() {
	logger := zap.Must(zap.NewProduction())
	tlsConfig := &tls.Config{} // with a client certificate
	etcd, err := clientv3.New(clientv3.Config{
		// All members: then one that hangs costs a timeout and not the lease.
		Endpoints: []string{"https://etcd-1:2379", "https://etcd-2:2379", "https://etcd-3:2379"},
		// Zero waits for ever.
		DialTimeout: 5 * time.Second,
		// A connection whose peer vanished is replaced within 13 s. Without these two it looks
		// alive for about 15 minutes on Linux.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		TLS:                  tlsConfig,
		// By default clientv3 logs each failed attempt. The SDK logs an outage once a minute.
		Logger: logger.Named("etcd").WithOptions(zap.IncreaseLevel(zap.ErrorLevel)),
		// By default gRPC waits up to 120 s between attempts to connect.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		})},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Logger: logger})
	if err != nil {
		log.Print(err)
		return
	}
	_ = claims
}
