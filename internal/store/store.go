// Package store is the sender's view of etcd: it sends the requests of a client, classifies their outcomes,
// knows the epoch, and notices when etcd's revision goes back. It knows keys, but no claims.
package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// The kinds of requests, as hooks have them.
const (
	RequestTxn       = "txn"
	RequestRange     = "range"
	RequestPut       = "put"
	RequestDelete    = "delete_range"
	RequestGrant     = "lease_grant"
	RequestKeepAlive = "lease_keep_alive"
	RequestRevoke    = "lease_revoke"
	RequestLeaseTTL  = "lease_time_to_live"
)

// Config is what a Store knows of its client.
type Config struct {
	IO      context.Context // of requests that the client sends on its own account
	Etcd    *clientv3.Client
	Log     *zap.Logger
	Layout  protocol.Layout
	Timeout time.Duration // of one request
	// Ops and Bytes are how many operations and bytes a request may have at first.
	Ops, Bytes int
	// Observe learns how each transaction ended. ObserveOther is the same for requests of
	// other kinds, which may need no permission.
	Observe, ObserveOther func(ctx context.Context, t0 time.Time, err error)
	// Requested learns how each request ended, and when it was sent.
	Requested func(kind string, t0 time.Time, err error)
	// OnRewind is called once for each time that the revision went back.
	OnRewind func(error)
}

// Store is the seam between claims and etcd. Every read and write of a client,
// except leases and watches, passes its Do, Send or Each. The batcher lets requests
// share round trips. The store sends them: it sets deadlines, requires a leader,
// classifies outcomes, and notices when etcd's revision goes back.
type Store struct {
	*txn.Batcher
	Layout     protocol.Layout
	Generation Generation

	cfg   Config
	wire  *txn.Sender
	kv    clientv3.KV
	etcd  *clientv3.Client
	lease clientv3.Lease

	requests atomic.Int64 // sent
	seen     atomic.Int64 // the greatest revision seen since the last rewind
	rewinds  atomic.Int64 // how often claims were made again after the revision had gone back
	epoch    atomic.Pointer[txn.Epoch]
	rewound  atomic.Pointer[rewind]
	lower    atomic.Pointer[txn.Epoch] // an epoch below the known one that etcd has had since, or nil

	cluster      atomic.Uint64 // that answered first; zero before
	otherCluster sync.Once
}

// New returns a store that has sent nothing.
func New(cfg Config) *Store {
	s := &Store{
		Layout: cfg.Layout, cfg: cfg, etcd: cfg.Etcd,
		wire: txn.NewSender(cfg.Etcd), kv: txn.KV(cfg.Etcd), lease: cfg.Etcd.Lease,
	}
	s.Batcher = txn.NewBatcher(txn.Config{
		IO: cfg.IO, Send: s.sendMessage, Timeout: cfg.Timeout,
		EpochKey: []byte(cfg.Layout.Epoch()), VoidKey: cfg.Layout.Void,
		Ops: cfg.Ops, Bytes: cfg.Bytes,
	})
	s.epoch.Store(&txn.Epoch{})
	return s
}

// Timeout returns how long one request may take.
func (s *Store) Timeout() time.Duration { return s.cfg.Timeout }

// Requests returns how many requests were sent.
func (s *Store) Requests() int64 { return s.requests.Load() }

// Seen returns the greatest revision that was seen since the last rewind.
func (s *Store) Seen() int64 { return s.seen.Load() }

// ReadAll carries out reads at one revision, in parts if the reply to all is too large. It does
// not try again what failed.
func (s *Store) ReadAll(ctx context.Context, reads ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return retry.InParts(reads, func(ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
		return s.Do(ctx, txn.Request{In: txn.Then(ops...)})
	})
}

// sendMessage carries out a transaction in one round trip.
func (s *Store) sendMessage(ctx context.Context, in *pb.TxnRequest, timeout time.Duration) (*clientv3.TxnResponse, error) {
	since, t0 := era{rewinds: s.rewinds.Load(), floor: s.seen.Load()}, clock.Mono()
	if ctx.Err() == nil {
		s.requests.Add(1)
	}
	resp, sent, err := s.wire.Send(ctx, in, timeout)
	s.cfg.Requested(RequestTxn, t0, err)
	s.cfg.Observe(ctx, t0, err)
	switch {
	case err != nil && !sent:
		return nil, err
	case err != nil:
		return nil, txn.Outcome(ctx, err)
	}
	s.seeCluster(resp.Header.ClusterId)
	if err := s.see(ctx, since, resp.Header.Revision); err != nil {
		return nil, txn.Unknown(err) // answered, but by an etcd that was rewound
	}
	return resp, nil
}

// seeCluster reports, once, a reply of another cluster than the one that answered first: the
// endpoints belong to two, or etcd was restored as another one.
func (s *Store) seeCluster(id uint64) {
	if first := s.cluster.Load(); first == id || first == 0 && s.cluster.CompareAndSwap(0, id) {
		return
	}
	s.otherCluster.Do(func() {
		s.cfg.Log.Error("etcd answered as another cluster; see that all endpoints belong to one",
			zap.String("instance", s.Layout.Instance), zap.String("cluster", fmt.Sprintf("%x", s.cluster.Load())),
			zap.String("other", fmt.Sprintf("%x", id)))
	})
}

// RoundTrip sends one request that is no transaction: bounded, counted, and reported.
func RoundTrip[R any](ctx context.Context, s *Store, kind string, send func(context.Context) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(txn.WithLeader(ctx), s.cfg.Timeout)
	defer cancel()
	return Counted(ctx, s, kind, func() (R, error) { return send(ctx) })
}

// Counted sends one request that is no transaction of the store: counted, and reported. An
// outage is noticed by any request, also by those of what is built on the client.
func Counted[R any](ctx context.Context, s *Store, kind string, send func() (R, error)) (R, error) {
	s.requests.Add(1)
	sent := clock.Mono()
	resp, err := send()
	err = txn.Explain(s.etcd, err)
	s.cfg.Requested(kind, sent, err)
	s.cfg.ObserveOther(ctx, sent, err)
	return resp, err
}
