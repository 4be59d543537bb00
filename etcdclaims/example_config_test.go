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

// The recommended configuration; docs/operations.md has the reasons.
func Example_config() {
	logger := zap.Must(zap.NewProduction())
	tlsConfig := &tls.Config{} // with a client certificate
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"https://etcd-1:2379", "https://etcd-2:2379", "https://etcd-3:2379"},
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		TLS:                  tlsConfig,
		Logger:               logger.Named("etcd").WithOptions(zap.IncreaseLevel(zap.ErrorLevel)),
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
