package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/wire"
	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// store is the seam between claims and etcd: every read and write of the
// package, but for leases and watches, passes do or each, which give it a
// deadline, require a leader, watch over the revision and say what is known of
// an outcome. Requests that come while others are under way share a round trip.
type store struct {
	traffic
	kv      clientv3.KV
	direct  bool            // kv sends what wire.Facts say
	io      context.Context // ends with the client
	layout  layout
	timeout time.Duration // of one request

	epochKey []byte

	requests  atomic.Int64 // sent
	opLimit   atomic.Int64 // of the server, as far as known
	byteLimit atomic.Int64 // of what shares a round trip, likewise
	seen      atomic.Int64 // the greatest revision seen
	epoch     atomic.Pointer[epoch]
	turns     turns
	rewound   atomic.Pointer[rewind]
	onRewind  func(error) // called once for each time that the revision went back

	observe func(ctx context.Context, t0 time.Time, err error) // learns how each request ended
}

type rewind struct{ from, to, epoch int64 }

func newStore(io context.Context, kv clientv3.KV, direct bool, l layout, timeout time.Duration) *store {
	s := &store{io: io, kv: kv, direct: direct, layout: l, timeout: timeout, epochKey: []byte(l.epoch())}
	s.opLimit.Store(defaultOpLimit)
	s.byteLimit.Store(maxRequestBytes / 2)
	s.aboard = make(map[string]bool)
	s.epoch.Store(&epoch{})
	return s
}

// send carries out one request in a round trip of its own.
func (s *store) send(ctx context.Context, r request) (*clientv3.TxnResponse, error) {
	resp, err := s.sendAsIs(ctx, r)
	if errors.Is(err, rpctypes.ErrNoSpace) && s.untouched(ctx, r)[0] {
		return nil, failed(err)
	}
	return resp, err
}

func (s *store) sendAsIs(ctx context.Context, r request) (*clientv3.TxnResponse, error) {
	if r.built == nil && r.ticket == nil && r.epoch == nil && r.void == nil && !s.direct {
		return s.exchange(ctx, s.timeoutOf(r), func(ctx context.Context, _ *wire.Facts) (*clientv3.TxnResponse, error) {
			return s.kv.Txn(ctx).If(r.cmps...).Then(r.then...).Else(r.els...).Commit()
		})
	}
	in := r.proto()
	shared := s.shared(r.ticket, r.epoch)
	switch {
	case r.nested:
		in = &pb.TxnRequest{Compare: shared, Success: []*pb.RequestOp{txnOp(in)}, Failure: []*pb.RequestOp{getOp(s.epochKey)}}
	case len(shared) > 0:
		in = &pb.TxnRequest{Compare: append(shared, in.Compare...), Success: in.Success, Failure: in.Failure}
	case r.void != nil:
		in = &pb.TxnRequest{Compare: in.Compare, Success: in.Success, Failure: append(slices.Clip(in.Failure), s.voidOp(r.void))}
	}
	return s.sendBuilt(ctx, in, s.timeoutOf(r))
}

// timeoutOf returns how long a request may take from now on.
func (s *store) timeoutOf(r request) time.Duration {
	if r.until.IsZero() {
		return s.timeout
	}
	return min(s.timeout, time.Until(r.until))
}

// shared are the conditions of a ticket and an epoch, where there are such.
func (s *store) shared(ticket *string, e *epoch) []*pb.Compare {
	if ticket == nil && e == nil {
		return nil
	}
	cmps := make([]*pb.Compare, 0, 4)
	if e != nil {
		cmps = append(cmps, modifiedAt(s.epochKey, e.rev))
	}
	if ticket != nil {
		cmps = append(cmps, createdAt([]byte(s.layout.void(*ticket)), 0))
	}
	return cmps
}

func (s *store) sendBuilt(ctx context.Context, in *pb.TxnRequest, timeout time.Duration) (*clientv3.TxnResponse, error) {
	return s.exchange(ctx, timeout, func(ctx context.Context, facts *wire.Facts) (*clientv3.TxnResponse, error) {
		if s.direct {
			facts.In = in
			return s.kv.Txn(ctx).Commit()
		}
		return throughKV(ctx, s.kv, in)
	})
}

// exchange is one round trip.
func (s *store) exchange(ctx context.Context, timeout time.Duration, commit func(context.Context, *wire.Facts) (*clientv3.TxnResponse, error)) (*clientv3.TxnResponse, error) {
	floor, t0 := s.seen.Load(), time.Now()
	resp, sent, err := wire.Exchange(ctx, timeout, func(ctx context.Context, facts *wire.Facts) (*clientv3.TxnResponse, error) {
		s.requests.Add(1)
		return commit(ctx, facts)
	})
	s.observe(ctx, t0, err)
	switch {
	case err != nil && !sent:
		return nil, err
	case err != nil:
		return nil, outcome(ctx, err)
	}
	if err := s.see(ctx, floor, resp.Header.Revision); err != nil {
		return nil, unknownError{err} // answered, but by an etcd that was rewound
	}
	return resp, nil
}

// see notes a revision, and fails closed if it is lower than one that was seen
// before the request was sent.
func (s *store) see(ctx context.Context, floor, rev int64) error {
	for {
		seen := s.seen.Load()
		if rev <= seen || s.seen.CompareAndSwap(seen, rev) {
			break
		}
	}
	if rev >= floor {
		return nil
	}
	// A member that slept can answer a linearizable read from its past
	// (etcd-io/etcd#20418). A write cannot be answered so: deleting a key that
	// nobody has goes through consensus, and changes nothing.
	s.requests.Add(1)
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.timeout)
	defer cancel()
	resp, err := s.kv.Delete(ctx, s.layout.void(uuid.NewString()))
	if err != nil {
		return fmt.Errorf("revision %d came after %d, and asking again failed: %w", rev, floor, err)
	}
	if resp.Header.Revision >= floor {
		return fmt.Errorf("a member of etcd answered from its past, revision %d after %d", rev, floor)
	}
	if s.seen.Load() < floor {
		return fmt.Errorf("etcd was restored while the request was under way, revision %d after %d", rev, floor) // dealt with already
	}
	rw := &rewind{from: floor, to: resp.Header.Revision, epoch: s.epoch.Load().value}
	if s.rewound.CompareAndSwap(nil, rw) {
		s.turns.turn()
		if s.onRewind != nil {
			s.onRewind(rw.err(s.layout))
		}
	}
	return rw.err(s.layout)
}

func (rw *rewind) err(l layout) error {
	return fmt.Errorf("%w: from %d to %d; restore snapshots with --bump-revision, or raise %s above %d (RaiseEpoch, or etcdctl put) and claim again",
		ErrRewound, rw.from, rw.to, l.epoch(), rw.epoch)
}

// ready says whether claims may be made: not while the revision is known to
// have gone back and no greater epoch has been set since.
func (s *store) ready(ctx context.Context) error {
	rw := s.rewound.Load()
	if rw == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.timeout)
	defer cancel()
	s.requests.Add(1)
	resp, err := s.kv.Get(ctx, s.layout.epoch())
	if err != nil {
		return fmt.Errorf("%w (reading the epoch: %w)", rw.err(s.layout), err)
	}
	if err := s.learnEpoch(resp.Kvs, resp.Header.Revision); err != nil {
		return err
	}
	if s.epoch.Load().value <= rw.epoch {
		return rw.err(s.layout)
	}
	s.seen.Store(resp.Header.Revision)
	s.rewound.CompareAndSwap(rw, nil)
	return nil
}

// epochIs is the condition under which a fence made of the known epoch is good.
func (s *store) epochIs(e *epoch) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.layout.epoch()), "=", e.rev)
}

// learnEpoch takes over what the epoch's key says at a revision.
func (s *store) learnEpoch(kvs []*mvccpb.KeyValue, asOf int64) error {
	e := &epoch{asOf: asOf}
	if len(kvs) > 0 {
		v, err := parseEpoch(kvs[0])
		if err != nil {
			return err
		}
		e.value, e.rev = v, kvs[0].ModRevision
	}
	for {
		have := s.epoch.Load()
		switch {
		case asOf < have.asOf && s.rewound.Load() == nil:
			return nil // replies overtake each other
		case e.value < have.value:
			return fmt.Errorf("%w: so did its epoch, from %d to %d; raise %s above %d (RaiseEpoch, or etcdctl put) and claim again",
				ErrRewound, have.value, e.value, s.layout.epoch(), have.value)
		case s.epoch.CompareAndSwap(have, e):
			if !e.is(have) {
				s.turns.turn()
			}
			return nil
		}
	}
}

// leastOps is below what etcd can sensibly be limited to.
const leastOps = 8

// fewerOps learns that etcd refused so many, as too many.
func (s *store) fewerOps(n int) { lower(&s.opLimit, n, leastOps) }

// leastBytes is less than what one request may take.
const leastBytes = 16 << 10

// fewerBytes learns that etcd refused a request of so many, as too large.
func (s *store) fewerBytes(n int) { lower(&s.byteLimit, n, leastBytes) }

// lower halves a limit, as often as it takes to be below what was too much: not
// once more for each of several that were refused at the same time.
func lower(limit *atomic.Int64, tooMuch, least int) {
	for {
		have := limit.Load()
		now := have
		for now >= int64(tooMuch) && now > int64(least) {
			now = max(now/2, int64(least))
		}
		if now == have || limit.CompareAndSwap(have, now) {
			return
		}
	}
}

// firstKV returns what the i-th operation of a reply read first, or nil.
func firstKV(resp *clientv3.TxnResponse, i int) *mvccpb.KeyValue {
	if kvs := resp.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// backOff waits with full jitter before the next try; it returns false, with
// the wait cut short, if ctx or any of the channels ended first.
func backOff(ctx context.Context, try int, ends ...<-chan struct{}) bool {
	limit := min(20*time.Millisecond<<min(try, 6), time.Second)
	t := time.NewTimer(time.Millisecond + rand.N(limit))
	defer t.Stop()
	waits := make([]reflect.SelectCase, 0, 2+len(ends))
	waits = append(waits,
		reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(t.C)},
		reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())})
	for _, end := range ends {
		waits = append(waits, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(end)})
	}
	first, _, _ := reflect.Select(waits)
	return first == 0
}
