package scenarios_test

import (
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/contract"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/server/v3/embed"
)

// namespaced returns clients that see a part of the key space as all of it.
func namespaced(etcd claimtest.Etcd, prefix string) claimtest.Etcd {
	return testclaims.EtcdFunc(func(tb testing.TB) *clientv3.Client {
		tb.Helper()
		c := etcd.Etcd(tb)
		c.KV = namespace.NewKV(c.KV, prefix)
		c.Watcher = namespace.NewWatcher(c.Watcher, prefix)
		c.Lease = namespace.NewLease(c.Lease, prefix)
		return c
	})
}

// virtually runs the suite in virtual time, each case on an etcd of its own.
func virtually(t *testing.T, start func(tb testing.TB) claimtest.Etcd) {
	t.Helper()
	for _, c := range contract.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			testetcd.Third(t)
			synctest.Test(t, func(t *testing.T) { c.Run(t, start(t)) })
		})
	}
}

func started(opts ...claimtest.Option) func(tb testing.TB) claimtest.Etcd {
	return func(tb testing.TB) claimtest.Etcd {
		tb.Helper()
		return claimtest.Start(tb, opts...)
	}
}

func TestClaimsVirtual(t *testing.T)     { virtually(t, started()) }
func TestClaimsLowTxnLimit(t *testing.T) { virtually(t, started(testclaims.MaxTxnOps(16))) }

func TestClaimsNamespace(t *testing.T) {
	virtually(t, func(tb testing.TB) claimtest.Etcd {
		tb.Helper()
		return namespaced(claimtest.Start(tb), "/tenant/")
	})
}

// unsynced spares the disk: what is tested is not that.
var unsynced = claimtest.Tweak(func(cfg *embed.Config) { cfg.UnsafeNoFsync = true })

// In real time, since each login costs a hash, and in virtual time each case
// would make users of its own.
func TestClaimsAuth(t *testing.T) {
	testetcd.SkipUnlessLong(t, "waits for leases of five seconds")
	t.Parallel()
	contract.TestClaims(t, claimtest.Start(t, unsynced, claimtest.Auth()))
}

func TestClaimsCluster(t *testing.T) {
	testetcd.SkipUnlessLong(t, "waits for leases of five seconds")
	t.Parallel()
	contract.TestClaims(t, claimtest.Cluster(t, 3, unsynced))
}
