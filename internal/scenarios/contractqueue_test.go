package scenarios_test

import (
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/contract"
)

// queueVirtually runs the suite of queues in virtual time, each case on an etcd of its
// own.
func queueVirtually(t *testing.T, start func(tb testing.TB) claimtest.Etcd) {
	t.Helper()
	for _, c := range contract.QueueCases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { c.Run(t, start(t)) })
		})
	}
}

func TestQueueVirtual(t *testing.T) { queueVirtually(t, started()) }

func TestQueueNamespace(t *testing.T) {
	queueVirtually(t, func(tb testing.TB) claimtest.Etcd {
		tb.Helper()
		return namespaced(claimtest.Start(tb), "/tenant/")
	})
}

func TestQueueReal(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an etcd in real time")
	}
	t.Parallel()
	contract.TestQueue(t, claimtest.Start(t, unsynced))
}
