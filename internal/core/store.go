package core

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Store sends requests. It shares round trips, classifies outcomes, and knows the epoch.
type Store interface {
	// Do carries out a request.
	Do(ctx context.Context, r txn.Request) (*clientv3.TxnResponse, error)
	// Ready returns ErrRewound while no claims may be made.
	Ready(ctx context.Context) error
	// Epoch returns the epoch as it is known.
	Epoch() *txn.Epoch
	// LearnEpoch takes over the value of the epoch's key at a revision.
	LearnEpoch(kvs []*mvccpb.KeyValue, asOf int64) error
	// Timeout is how long one request may take.
	Timeout() time.Duration
	// MaxOps returns how many operations a request may have. FewerOps notes that a number was refused.
	MaxOps() int
	FewerOps(refused int)
}

// Leases sends requests for leases: once each, within the timeout of a request.
type Leases interface {
	// Grant grants a lease of full seconds. One whose reply is lost lapses.
	Grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error)
	// KeepAlive renews a lease. It returns ErrLeaseNotFound if etcd has no such lease.
	KeepAlive(ctx context.Context, id clientv3.LeaseID) error
	// Revoke ends a lease, with all keys on it.
	Revoke(ctx context.Context, id clientv3.LeaseID) error
	// TimeToLive reads how long a lease lasts. The TTL of the response is negative if there is no
	// such lease.
	TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error)
}

// EpochIs is the condition under which a fence made of the known epoch is good.
func EpochIs(l protocol.Layout, e *txn.Epoch) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(l.Epoch()), "=", e.Rev)
}

// NobodyInLine is the condition under which a newcomer may take a free key.
func NobodyInLine(l protocol.Layout, key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.Waiting(key)).WithPrefix(), "=", 0)
}
