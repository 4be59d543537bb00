package etcdclaims

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
	"github.com/etcdclaims/claims/internal/wire"
	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// store is the seam between claims and etcd. Every read and write of the package,
// except leases and watches, passes its Do, Send or Each. The batcher lets requests
// share round trips. The store sends them: it sets deadlines, requires a leader,
// classifies outcomes, and notices when etcd's revision goes back.
type store struct {
	*txn.Batcher
	wire    *wire.Sender
	kv      clientv3.KV
	etcd    *clientv3.Client
	layout  protocol.Layout
	timeout time.Duration // of one request

	epochKey []byte

	requests   atomic.Int64 // sent
	seen       atomic.Int64 // the greatest revision seen since the last rewind
	rewinds    atomic.Int64 // how often claims were made again after the revision had gone back
	epoch      atomic.Pointer[txn.Epoch]
	generation generation
	rewound    atomic.Pointer[rewind]
	onRewind   func(error) // called once for each time that the revision went back

	lower        atomic.Pointer[txn.Epoch]     // an epoch below the known one that etcd has had since, or nil
	onLowerEpoch func(known, found *txn.Epoch) // called once for each such value

	cluster        atomic.Uint64 // that answered first; zero before
	otherCluster   sync.Once
	onOtherCluster func(first, other uint64) // called once

	observe func(ctx context.Context, t0 time.Time, err error) // learns how each transaction ended
	// observeOther is observe for requests of other kinds, which may need no permission.
	observeOther func(ctx context.Context, t0 time.Time, err error)
	events       *events
}

type rewind struct{ from, to, epoch int64 }

func newStore(io context.Context, etcd *clientv3.Client, l protocol.Layout, timeout time.Duration) *store {
	s := &store{wire: wire.NewSender(etcd), kv: wire.KV(etcd), etcd: etcd, layout: l, timeout: timeout, epochKey: []byte(l.Epoch())}
	s.Batcher = txn.NewBatcher(txn.Config{
		IO: io, Send: s.sendMessage, Timeout: timeout,
		EpochKey: s.epochKey, VoidKey: l.Void,
		Ops: defaultOpLimit, Bytes: maxRequestBytes / 2,
	})
	s.epoch.Store(&txn.Epoch{})
	return s
}

// readAll carries out reads at one revision, in parts if the reply to all is too large. It does
// not try again what failed.
func (s *store) readAll(ctx context.Context, reads ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return retry.InParts(reads, func(ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
		return s.Do(ctx, txn.Request{In: txn.Then(ops...)})
	})
}

// sendMessage carries out a transaction in one round trip.
func (s *store) sendMessage(ctx context.Context, in *pb.TxnRequest, timeout time.Duration) (*clientv3.TxnResponse, error) {
	since, t0 := era{rewinds: s.rewinds.Load(), floor: s.seen.Load()}, clock.Mono()
	if ctx.Err() == nil {
		s.requests.Add(1)
	}
	resp, sent, err := s.wire.Send(ctx, in, timeout)
	s.events.requested(requestTxn, t0, err)
	s.observe(ctx, t0, err)
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
func (s *store) seeCluster(id uint64) {
	if first := s.cluster.Load(); first == id || first == 0 && s.cluster.CompareAndSwap(0, id) {
		return
	}
	s.otherCluster.Do(func() { s.onOtherCluster(s.cluster.Load(), id) })
}

// era is what a request knows of etcd's revisions when it is sent.
type era struct{ rewinds, floor int64 }

// isOver reports whether the revision was found to have gone back, and claims were made again,
// since a request of the era was sent.
func (s *store) isOver(e era) bool { return s.rewinds.Load() != e.rewinds || s.seen.Load() < e.floor }

// see notes the revision of a reply, and fails closed if it is lower than one that was seen
// before the request was sent.
func (s *store) see(ctx context.Context, sent era, rev int64) error {
	for {
		seen := s.seen.Load()
		if s.isOver(sent) { // rev may be of before the rewind, and would look like the newest
			return restoredMeanwhile(sent, rev)
		}
		if rev <= seen || s.seen.CompareAndSwap(seen, rev) {
			break
		}
	}
	if rev >= sent.floor {
		return nil
	}
	// A member that slept can answer a linearizable read from its past
	// (etcd-io/etcd#20418). A write cannot be answered so: deleting a key that does not
	// exist goes through consensus, and changes nothing.
	resp, err := roundTrip(ctx, s, requestDelete, func(ctx context.Context) (*clientv3.DeleteResponse, error) {
		return s.kv.Delete(ctx, s.layout.Void(uuid.NewString()))
	})
	if err != nil {
		return fmt.Errorf("revision %d came after %d, and asking again failed: %w", rev, sent.floor, err)
	}
	if resp.Header.Revision >= sent.floor {
		return &pastError{"a member of etcd answered from its past", rev, sent.floor}
	}
	rw := &rewind{from: sent.floor, to: resp.Header.Revision, epoch: s.epoch.Load().Value}
	began := s.rewound.CompareAndSwap(nil, rw)
	if s.isOver(sent) { // dealt with already, so that rw compares with the epoch after that
		s.rewound.CompareAndSwap(rw, nil)
		return restoredMeanwhile(sent, rev)
	}
	if began {
		s.generation.advance()
		if s.onRewind != nil {
			s.onRewind(rw.err(s.layout))
		}
	}
	return rw.err(s.layout)
}

func restoredMeanwhile(sent era, rev int64) error {
	return &pastError{"etcd was restored while the request was under way", rev, sent.floor}
}

// pastError says that a reply was of a revision before one that was seen. The same call may
// succeed when it is made again.
type pastError struct {
	what       string
	rev, floor int64
}

// Error returns what is known, with both revisions.
func (e *pastError) Error() string {
	return fmt.Sprintf("%s, revision %d after %d", e.what, e.rev, e.floor)
}

// GRPCStatus makes callers take the error for that of a member that is unavailable.
func (e *pastError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

func (rw *rewind) err(l protocol.Layout) error {
	return fmt.Errorf("%w: from %d to %d; restore snapshots with --bump-revision, or raise %s above %d (RaiseEpoch, or etcdctl put) and claim again",
		ErrRewound, rw.from, rw.to, l.Epoch(), rw.epoch)
}

// ready returns ErrRewound while no claims may be made: the revision is known to
// have gone back, and no greater epoch has been set since.
func (s *store) ready(ctx context.Context) error {
	rw := s.rewound.Load()
	if rw == nil {
		return nil
	}
	resp, err := roundTrip(ctx, s, requestRange, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.kv.Get(ctx, s.layout.Epoch())
	})
	if err != nil {
		return fmt.Errorf("%w (reading the epoch: %w)", rw.err(s.layout), err)
	}
	if err := s.learnEpoch(resp.Kvs, resp.Header.Revision); err != nil {
		return err
	}
	if s.epoch.Load().Value <= rw.epoch {
		return rw.err(s.layout)
	}
	if s.rewound.Load() != rw { // another call has dealt with it
		return s.ready(ctx)
	}
	s.rewinds.Add(1) // in this order: see isOver
	s.seen.Store(resp.Header.Revision)
	s.rewound.CompareAndSwap(rw, nil)
	return nil
}

// learnEpoch takes over the value of the epoch's key at a revision.
func (s *store) learnEpoch(kvs []*mvccpb.KeyValue, asOf int64) error {
	e := &txn.Epoch{AsOf: asOf}
	if len(kvs) > 0 {
		v, err := parseEpoch(kvs[0])
		if err != nil {
			return err
		}
		e.Value, e.Rev = v, kvs[0].ModRevision
	}
	for {
		have := s.epoch.Load()
		switch {
		case asOf < have.AsOf && s.rewound.Load() == nil:
			return nil // replies overtake each other
		case e.Value < have.Value:
			s.seeLower(have, e)
			return fmt.Errorf("%w: so did its epoch, from %d to %d; raise %s above %d (RaiseEpoch, or etcdctl put) and claim again",
				ErrRewound, have.Value, e.Value, s.layout.Epoch(), have.Value)
		case s.epoch.CompareAndSwap(have, e):
			if low := s.lower.Load(); low != nil && (low.AsOf < asOf || s.rewound.Load() != nil) {
				s.lower.CompareAndSwap(low, nil)
			}
			if !e.Is(have) {
				s.generation.advance()
			}
			return nil
		}
	}
}

// seeLower notes an epoch below the known one, and reports it unless the same value was found
// before. After a restore that went back, that has been reported already.
func (s *store) seeLower(known, found *txn.Epoch) {
	for s.rewound.Load() == nil {
		last := s.lower.Load()
		if last != nil && last.AsOf >= found.AsOf {
			return
		}
		if s.lower.CompareAndSwap(last, found) {
			if last == nil || !last.Is(found) {
				s.onLowerEpoch(known, found)
			}
			return
		}
	}
}

// roundTrip sends one request that is no transaction: bounded, counted, and reported.
func roundTrip[R any](ctx context.Context, s *store, kind string, send func(context.Context) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.timeout)
	defer cancel()
	return counted(ctx, s, kind, func() (R, error) { return send(ctx) })
}

// counted sends one request that is no transaction of the store: counted, and reported. An
// outage is noticed by any request, also by those of what is built on the client.
func counted[R any](ctx context.Context, s *store, kind string, send func() (R, error)) (R, error) {
	s.requests.Add(1)
	sent := clock.Mono()
	resp, err := send()
	err = wire.Explain(s.etcd, err)
	s.events.requested(kind, sent, err)
	s.observeOther(ctx, sent, err)
	return resp, err
}
