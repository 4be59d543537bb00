package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
)

// session is what this process has items by: a claim, which lasts for as long as
// the process lives. Its transactions carry the claim's guard, so nothing is changed
// under a session that is over.
type session struct {
	q     *store
	all   *sessions
	id    string
	ttl   time.Duration
	claim *etcdclaims.Claim

	io     context.Context // of what the batchers send
	endIO  context.CancelCauseFunc
	verbs  *txn.Batcher
	puts   *txn.Batcher // of items
	shared sync.Map     // keys of the calls of both that share round trips
	mu     sync.Mutex
	takes  txn.Doubt // whether the items of a claiming request are claimed jointly
	adds   txn.Doubt // the same for those of EnqueueAll
	gen    int64     // ModRevision of worker/<id>: the session's generation
	seen   int64     // a revision that etcd had when it last answered
	leases map[lease]struct{}
	unsure int       // how often items may have been taken that no lease is of; 0: there are none
	busy   int       // claiming requests under way
	over   error     // why its leases have been ended, and it gets no more
	used   time.Time // when it was last asked for
}

// lease is what a session has an item by: a Delivery.
type lease interface {
	snapshot() (s *session, held item.Held, err error)
	end(why error)
	missed(ctx context.Context, rev int64)
}

// idleAfter is how long a session lasts of which nothing was asked and that has no
// items. A duration that was used once costs no renewals for ever. The keeper asks for
// one more often than each TTL.
func (s *session) idleAfter() time.Duration { return max(time.Minute, s.q.cfg.TTL) }

// use notes that the session is in use.
func (s *session) use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = clock.Mono()
}

// begin notes a claiming request, until done is called: the session lasts until it is known
// what the request took.
func (s *session) begin() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
	}
}

// idle returns how long it is until the session has been idle for idleAfter.
func (s *session) idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leases) > 0 || s.unsure > 0 || s.busy > 0 {
		return s.idleAfter()
	}
	return s.idleAfter() - time.Since(s.used)
}

// watch ends the session when it has been unused for a while, and its leases when it is
// lost.
func (s *session) watch() {
	for {
		select {
		case <-time.After(max(s.idle(), time.Second)):
			if s.all.retire(s) {
				ctx, cancel := context.WithTimeout(s.q.ctx, 2*requestTimeout)
				defer cancel()
				if err := s.close(ctx); err != nil && s.q.ctx.Err() == nil {
					s.q.log.Warn("idle queue session not ended", zap.String("session", s.id), zap.Error(err))
				}
				return
			}
			continue
		case <-s.claim.Done():
			s.all.drop(s)
			s.mourn()
			s.answered(s.q.ctx)
			s.unbatch()
		case <-s.q.ctx.Done():
			s.mourn() // close gives the items back
		}
		return
	}
}

// answered waits for requests under way, so that their callers know the outcome.
func (s *session) answered(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s.verbs.Idle(ctx)
	s.puts.Idle(ctx)
}

// mourn ends the leases of the session, and logs it if it was lost.
func (s *session) mourn() {
	var lost *etcdclaims.LostError
	if err := s.claim.Err(); errors.As(err, &lost) {
		s.mu.Lock()
		n := len(s.leases)
		s.mu.Unlock()
		if n > 0 {
			s.q.log.Warn("queue session lost, its items go to other workers", zap.String("session", s.id), zap.Int("items", n), zap.Error(err))
		}
	}
	s.endAll()
}

// endAll ends the leases of the session locally.
func (s *session) endAll() {
	why := ErrExpired
	if s.q.closed() != nil && s.claim.Err() == nil {
		why = errDeliveryClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = why
	}
	for l := range s.leases {
		if now, _, _ := l.snapshot(); now == s { // else it was to come here from another session
			l.end(s.over)
		}
	}
	clear(s.leases)
}

// usable reports whether the session can have further items. If its claim was renewed so late
// that the claim's context had ended, the claim stands, but its context stays ended, and with it
// that of each item.
func (s *session) usable() bool {
	return s.claim.Err() == nil && s.claim.Context().Err() == nil
}

// add makes the lease one of the session's; forget is its opposite. A lease that comes
// when the session is over, as that of a request that was answered during Close,
// ends at once.
func (s *session) add(l lease) {
	if over := s.expect(l); over != nil {
		l.end(over)
	}
}

// expect makes the lease one of those of which the session has items, or may have soon. It
// fails if the session is over.
func (s *session) expect(l lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.leases[l] = struct{}{}
	}
	return s.over
}

// doubt notes that items may be taken under the session that no lease is of, and has
// them given back.
func (s *session) doubt() {
	s.mu.Lock()
	s.unsure++
	s.mu.Unlock()
	s.all.tidy()
}

func (s *session) forget(l lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, l)
}

// send carries out a transaction under the guard of the session's claim.
func (s *session) send(ctx context.Context, in *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := txn.CommitMessage(s.claim.Txn(ctx), in)
	return (*pb.TxnResponse)(resp), ofQueue(err)
}

// commit carries out a transaction that is not guarded by an item's fence. It carries
// the session's generation, so that it cannot come late: see void. If a condition
// does not hold the response is that of the second branch. again is set if it was the generation,
// which is known now.
func (s *session) commit(ctx context.Context, in *pb.TxnRequest) (resp *pb.TxnResponse, again bool, err error) {
	return s.ofGeneration(ctx, in, func(in *pb.TxnRequest) (*pb.TxnResponse, error) { return s.send(ctx, in) })
}

// commitAll is commit for a transaction whose operations from the n-th on are nested, one for each
// item, when probably all of their conditions hold. etcd needs less for them as one. If one does not
// hold nothing was carried out, and the transaction is sent as it is.
func (s *session) commitAll(
	ctx context.Context, in *pb.TxnRequest, n int, doubt *txn.Doubt,
) (resp *pb.TxnResponse, again bool, err error) {
	if len(in.Success) <= n+1 || !doubt.Over() {
		return s.commit(ctx, in)
	}
	joint := txn.Join(in, n)
	if !s.q.size.Fits(joint, opsOfGuard) {
		return s.commit(ctx, in)
	}
	resp, again, err = s.commit(ctx, joint)
	switch {
	case txn.IsTooManyOps(err):
		s.q.size.Exceeded(joint, opsOfGuard)
	case err != nil || again:
		return resp, again, err
	default:
		parts := txn.Part(in, n, resp)
		if doubt.Learn(parts == nil); parts != nil {
			return parts, false, nil
		}
	}
	return s.commit(ctx, in)
}

// commitAct is commit for what an operator does, which is recorded with it.
func (s *session) commitAct(ctx context.Context, act *audit.Act, in *pb.TxnRequest) (resp *pb.TxnResponse, again bool, err error) {
	resp, err = audit.Send(act, func(act *audit.Act) (*pb.TxnResponse, error) {
		resp, again, err = s.commit(ctx, act.With(in))
		return resp, err
	})
	return resp, again, err
}

// put is commit for an item that is enqueued, which may share a round trip
// with others. It notes that the queue has work.
func (s *session) put(ctx context.Context, it item.Enqueue) (resp *pb.TxnResponse, again bool, err error) {
	return s.ofGeneration(ctx, it.Build(), func(in *pb.TxnRequest) (*pb.TxnResponse, error) {
		// What an enqueue expects, it can find again after it was carried out: when the item is
		// completed and forgotten.
		return s.share(ctx, s.puts, txn.Request{Key: it.ID, In: in, Open: true})
	})
}

// generation is that of the requests that are sent now.
func (s *session) generation() item.Generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return item.Generation{Keys: s.q.keys, Session: s.id, Rev: s.gen}
}

// ofGeneration has a transaction sent that requires the session's generation, too.
func (s *session) ofGeneration(
	ctx context.Context, in *pb.TxnRequest, send func(*pb.TxnRequest) (*pb.TxnResponse, error),
) (resp *pb.TxnResponse, again bool, err error) {
	gen := s.generation()
	if resp, err = send(gen.Require(in)); err != nil {
		return resp, false, err
	}
	s.mu.Lock()
	s.seen = max(s.seen, resp.Header.Revision)
	s.mu.Unlock()
	if resp.Succeeded {
		return resp, false, nil
	}
	now := gen.Judge(resp)
	if now < gen.Rev { // it was deleted, and perhaps the spec with it, or etcd was restored from a snapshot
		s.q.specOK.Store(false)
		_, err := s.void(ctx)
		return nil, true, err
	}
	// A void whose reply was lost may have come late itself.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gen = max(s.gen, now)
	return resp, now != gen.Rev, nil
}

// lastSeen returns a revision that etcd has had.
func (s *session) lastSeen() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// void reads, and in the same transaction makes void all requests that were sent under
// the session's generation so far: after it returns, they are not carried out. Each
// request that is not guarded by an item's fence carries the generation, so one of
// unknown outcome can be looked up: keys that are not there now never will be. It fails
// after patience without an answer.
func (s *session) void(ctx context.Context, reads ...*pb.RequestOp) (resp *pb.TxnResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again := func(err error) bool {
		return passing(err) && !errors.Is(err, etcdclaims.ErrLost) && !errors.Is(err, rpctypes.ErrNoSpace)
	}
	tries := 0
	err = retry.Do(ctx, again, func() (err error) {
		tries++
		resp, err = s.send(ctx, s.generation().Void(item.Encode(s.q.entry(s.ttl, tries)), reads...))
		return err
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gen = max(s.gen, resp.Header.Revision)
	s.seen = s.gen
	return resp, nil
}

func (s *session) close(ctx context.Context) error {
	s.endAll()
	s.answered(ctx)
	// Items that are taken under the session go back without an attempt. If that fails
	// the keeper of the queue finds it when the session is gone.
	err := s.giveBack(ctx)
	if err == nil {
		_, err = s.send(ctx, s.generation().Leave())
	}
	if errors.Is(err, etcdclaims.ErrLost) {
		err = nil // others have the items, or will
	}
	if released := s.claim.Release(ctx); !errors.Is(released, etcdclaims.ErrLost) {
		err = errors.Join(err, released)
	}
	s.unbatch()
	return err
}

// leaseOf returns the session's lease of an item, or nil.
func (s *session) leaseOf(id string) lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.leases {
		if _, held, err := l.snapshot(); err == nil && held.Session == s.id && held.State.ID == id {
			return l
		}
	}
	return nil
}

// cancelled ends the session's delivery of an item that was cancelled, whose key had a revision. The session
// may have others of the id: of another attempt, or of an item that was enqueued later.
func (s *session) cancelled(id string, rev int64, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.leases {
		if _, held, _ := l.snapshot(); held.Session == s.id && held.State.ID == id && held.Rev == rev {
			l.end(why)
			delete(s.leases, l)
		}
	}
}
