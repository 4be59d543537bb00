package testclaims

import (
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// EtcdFunc is a claimtest.Etcd whose clients the test makes, one for each call. It closes what it
// returns when the test ends.
type EtcdFunc func(tb testing.TB) *clientv3.Client

// Etcd implements claimtest.Etcd.
func (f EtcdFunc) Etcd(tb testing.TB) *clientv3.Client {
	tb.Helper()
	return f(tb)
}

// MaxTxnOps limits the number of operations in one transaction. The default is etcd's, 128.
func MaxTxnOps(n uint) claimtest.Option {
	return claimtest.Tweak(func(cfg *embed.Config) { cfg.MaxTxnOps = n })
}

// Quota limits the backend to this many bytes.
func Quota(bytes int64) claimtest.Option {
	return claimtest.Tweak(func(cfg *embed.Config) { cfg.QuotaBackendBytes = bytes })
}

// Key is the etcd key of the claim on key, of clients with this prefix. An empty prefix means the
// default.
func Key(prefix, key string) string {
	if prefix == "" {
		prefix = etcdclaims.DefaultPrefix
	}
	return prefix + "own/" + key
}
