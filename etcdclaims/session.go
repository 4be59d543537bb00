package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// session is one lease and what the client knows about it. Many claims share
// one; a Manual claim has one of its own.
type session struct {
	c      *Client
	id     clientv3.LeaseID
	n      int64 // names its sentinel
	asked  time.Duration
	manual bool
	born   int64 // revision of its sentinel

	lease    atomic.Pointer[grant] // as last verified
	dead     chan struct{}         // closed when it is given up
	renewNow chan struct{}         // asks for a renewal now
	renewing chan struct{}         // holds one element while no attempt to renew is under way: there is one at a time
	rotation rotation              // of the attempt in flight

	pending        atomic.Int32          // cleanups
	removingGhosts atomic.Bool           // one of them removes ghosts, and has yet to begin
	verified       atomic.Int64          // revision of the last verification, which did not cover claims that the session did not know by then
	failure        atomic.Pointer[error] // of the last renewal; nil if it succeeded

	mu       sync.Mutex
	alarm    *time.Timer // for the next of soft and hard deadline
	terms    []*term
	reserved int                 // acquisitions in flight
	softened bool                // the contexts of its claims were ended at this soft deadline
	full     bool                // takes no more claims until it is empty
	retiring bool                // is being revoked, since it is not needed
	voids    map[string]struct{} // tickets that were made void by a key on its lease
	empty    time.Time           // since when it has carried nothing
	unused   *time.Timer         // checks later whether it is still empty
	cause    *LostError
}

// grant is the lease time that the server granted, counted from before the request was
// sent.
type grant struct {
	t0 clock.Reading
	timing
	ttl time.Duration
}

var errSessionLost = errors.New("etcdclaims: session lost")

// openSession grants a lease and puts its sentinel. It is not cancelled by the
// caller that happened to need it first.
func (c *Client) openSession(asked time.Duration, manual bool) (*session, error) {
	if err := c.store.Ready(c.io); err != nil {
		return nil, err
	}
	t0 := c.clock.Now()
	resp, err := c.store.Grant(c.io, asked)
	if err != nil {
		return nil, fmt.Errorf("granting a lease: %w", txn.Denied(err)) // one whose reply was lost ends by itself
	}
	s := &session{
		c: c, id: resp.ID, n: c.sessions.Add(1), asked: asked, manual: manual,
		dead: make(chan struct{}), renewNow: make(chan struct{}, 1),
		renewing: make(chan struct{}, 1), rotation: rotation{seed: maphash.MakeSeed()},
	}
	ttl := time.Duration(resp.TTL) * time.Second
	s.lease.Store(&grant{t0: t0, timing: c.cfg.timing(ttl), ttl: ttl})
	s.renewing <- struct{}{}
	sentinel := c.store.Layout.Sentinel(s.n)
	got, err := c.store.Do(c.io, txn.Request{
		In: txn.Then(
			clientv3.OpPut(sentinel, encode(protocol.Sentinel{Version: protocol.Version, Owner: c.cfg.Owner, Since: keyspace.TimeText(t0.Time())}), clientv3.WithLease(s.id)),
			clientv3.OpGet(c.store.Layout.Epoch()),
		),
	})
	if err == nil {
		err = c.store.LearnEpoch(txn.Kvs(got, 1), got.Header.Revision)
	}
	if err != nil {
		c.revoke(s)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			err = fmt.Errorf("%w: %w", errSessionLost, err) // as soon as it was granted
		}
		if errors.Is(err, rpctypes.ErrNoSpace) {
			err = txn.Failed(err) // keys that were put end with the lease
		}
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	s.born = got.Header.Revision
	s.setAlarm()
	if !c.admit(s) {
		s.alarm.Stop()
		c.revoke(s)
		return nil, ErrClosed
	}
	if !manual {
		s.mu.Lock()
		s.emptiedLocked() // its caller may have gone
		s.mu.Unlock()
		c.spawn(func() { s.run(c.io) })
	}
	c.log.Debug("session opened", s.fields()...)
	return s, nil
}

func (s *session) fields(more ...zap.Field) []zap.Field {
	return append(more, zap.String("instance", s.c.store.Layout.Instance), zap.Int64("session", s.n))
}

// reserve takes a place for one more claim, if the session has one and is good
// for new work.
func (s *session) reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || s.retiring || s.full || s.carriesLocked() >= claimsPerLease || !s.fresh() {
		return false
	}
	s.reserved++
	return true
}

// reserveMore takes up to n more places, for claims that must be in one session, and
// returns how many it took. A session without room for all of them counts as full.
func (s *session) reserveMore(n int) (taken int) {
	for ; taken < n; taken++ {
		if !s.reserve() {
			s.mu.Lock()
			s.full = s.full || s.carriesLocked() >= claimsPerLease
			s.mu.Unlock()
			break
		}
	}
	return taken
}

// carriesLocked returns how many keys the lease has, or may soon have: claims, and void
// keys. Those make requests void that were given up. They stay as long as the lease,
// since such requests can arrive as long.
func (s *session) carriesLocked() int { return len(s.terms) + s.reserved + len(s.voids) }

// voided notes that a ticket is made void on the session's lease.
func (s *session) voided(ticket string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.voids == nil {
		s.voids = make(map[string]struct{})
	}
	s.voids[ticket] = struct{}{}
}

func (s *session) unreserve() {
	s.mu.Lock()
	s.reserved--
	s.emptiedLocked()
	s.mu.Unlock()
	s.c.retireIdle(s)
}

// idle is for how many of its TTLs an empty session is kept, for the next claim. After
// that an unused client costs etcd only a watch.
const idle = 2

// emptiedLocked arranges the end of a session that carries nothing any more, if it
// stays empty. The mutex is held.
func (s *session) emptiedLocked() {
	if len(s.terms)+s.reserved > 0 || s.cause != nil || s.manual {
		return
	}
	s.empty = clock.Mono()
	if s.unused == nil { // else the timer checks that when it fires
		s.unused = time.AfterFunc(idle*s.lease.Load().ttl, s.endUnused)
	}
}

func (s *session) endUnused() {
	s.mu.Lock()
	if s.cause != nil || s.retiring || len(s.terms)+s.reserved > 0 {
		s.unused = nil
		s.mu.Unlock()
		return
	}
	if left := idle*s.lease.Load().ttl - time.Since(s.empty); left > 0 {
		s.unused.Reset(left)
		s.mu.Unlock()
		return
	}
	s.retiring = true
	s.mu.Unlock()
	s.c.retire(s)
}

// fresh reports whether new work may start: before the soft deadline, by every
// clock.
func (s *session) fresh() bool {
	g := s.lease.Load()
	sure, wall := s.c.clock.Now().Since(g.t0)
	return max(sure, wall) < g.soft
}

// young reports whether a claim that begins now has nearly all of the lease before
// it.
func (s *session) young() bool {
	g := s.lease.Load()
	sure, wall := s.c.clock.Now().Since(g.t0)
	return max(sure, wall) < g.renew/10
}

// left returns the time to the hard deadline by the clocks that cannot be stepped, and
// whether it has passed by the wall clock alone.
func (s *session) left() (left time.Duration, wallSaysOver bool) {
	g := s.lease.Load()
	sure, wall := s.c.clock.Now().Since(g.t0)
	return g.hard - sure, sure < g.hard && wall >= g.hard
}

// adopt moves the deadline forward after a renewal that was sent at t0. The caller has
// taken renewing.
func (s *session) adopt(t0 clock.Reading, ttl time.Duration) {
	g := &grant{t0: t0, timing: s.c.cfg.timing(ttl), ttl: ttl}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.lease.Load()
	if gained, _ := t0.Since(old.t0); gained+g.hard <= old.hard || s.cause != nil {
		return
	}
	s.lease.Store(g)
	s.softened = false
	s.setAlarmLocked()
}

func (s *session) setAlarm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setAlarmLocked()
}

func (s *session) setAlarmLocked() {
	g := s.lease.Load()
	age, _ := s.c.clock.Now().Since(g.t0)
	d := g.hard - age
	if !s.softened {
		d = g.soft - age
	}
	if s.alarm == nil {
		s.alarm = time.AfterFunc(max(d, 0), s.enforce)
		return
	}
	s.alarm.Reset(max(d, 0))
}

// enforce ends contexts and claims whose deadline has passed.
func (s *session) enforce() {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return
	}
	g := s.lease.Load()
	age, _ := s.c.clock.Now().Since(g.t0)
	switch {
	case age >= g.hard:
		s.mu.Unlock()
		s.die(ReasonExpired, s.notRenewed())
		return
	case age >= g.soft && !s.softened:
		s.softened = true
		why := s.notRenewed()
		for _, t := range s.terms {
			t.stopLocked(&LostError{Token: t.Token(), Reason: ReasonExpired, Err: why})
		}
		if len(s.terms) > 0 {
			s.c.log.Warn("claims not renewed; handlers stopped", s.fields(zap.Int("claims", len(s.terms)), zap.Duration("left", g.hard-age), zap.Error(why))...)
		}
	}
	s.setAlarmLocked()
	s.mu.Unlock()
}

// die ends the session and all its claims, at once and for good.
func (s *session) die(reason Reason, err error) {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return
	}
	s.cause = &LostError{Reason: reason, Err: err}
	s.alarm.Stop()
	if s.unused != nil {
		s.unused.Stop()
	}
	terms := s.terms
	s.terms = nil
	lost := make([]*LostError, 0, len(terms))
	ended := terms[:0]
	for _, t := range terms {
		if l := t.loseLocked(reason, err); l != nil {
			lost, ended = append(lost, l), append(ended, t)
		}
	}
	close(s.dead)
	idle := s.retiring && len(lost) == 0 // its own client revokes it, which a watch may report first
	s.mu.Unlock()
	s.c.forget(s)
	if reason != ReasonShutdown && !idle {
		s.c.log.Info("session ended", s.fields(zap.Stringer("reason", reason), zap.Int("claims", len(lost)), zap.NamedError("cause", err))...)
	}
	for i, l := range lost {
		s.c.events.lost(ended[i], l)
	}
}

// lossOf returns why the session is dead, as the error of something that waited
// on it; with a fence if it had the key already.
func (s *session) lossOf(token fencing.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := fmt.Errorf("%w: %v", errSessionLost, s.cause.Reason)
	if s.cause.Err != nil {
		why = fmt.Errorf("%w: %w", why, s.cause.Err)
	}
	return &LostError{Token: token, Reason: ReasonSessionDead, Err: why}
}

// notRenewed returns why the last renewal failed, for the loss of the claims that
// it should have kept, or nil if it did not fail. Only a missing permission can be
// matched: a passing error must not look like the cause of another call.
func (s *session) notRenewed() error {
	p := s.failure.Load()
	switch {
	case p == nil:
		return nil
	case errors.Is(*p, ErrPermissionDenied):
		return *p
	}
	return errors.New((*p).Error()) //nolint:err113 // the text alone
}

// gone handles an answer that a lease does not exist: true means that it was the
// session's. A request with further leases may mean one of those. Then gone renews the
// session to find out.
func (s *session) gone(ctx context.Context, err error, others bool) bool {
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false
	}
	if !others {
		s.die(ReasonRevoked, nil)
		return true
	}
	_ = s.renew(ctx) // ends the session if its lease is gone
	return s.ended()
}

// isLost reports the same as ended, as soon as the session's claims know it.
func (s *session) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause != nil
}

// ended reports whether the session was given up.
func (s *session) ended() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}
