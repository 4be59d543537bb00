package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// session is one lease and what the client believes of it. Many claims share
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
	kick     chan struct{}         // asks for a renewal now
	renewing chan struct{}         // holds one element while nobody renews: one attempt in flight

	pending  atomic.Int32 // chores
	sweeping atomic.Bool  // one of them is to sweep, and has yet to begin
	verified atomic.Int64 // revision as of which all claims were verified

	mu       sync.Mutex
	alarm    *time.Timer // for the next of soft and hard deadline
	terms    []*term
	reserved int  // acquisitions in flight
	softened bool // the contexts of its claims were ended at this soft deadline
	full     bool // takes no more claims until it is empty
	retiring bool // is being revoked, since nobody needs it
	cause    *LostError
	renewed  chan struct{} // closed at the next verified renewal
}

// grant is what the server promised, counted from before it was asked.
type grant struct {
	t0 clock.Reading
	timing
	ttl time.Duration
}

var errSessionLost = errors.New("etcdclaims: session lost")

// openSession grants a lease and puts its sentinel. It is not cancelled by the
// caller that happened to need it first.
func (c *Client) openSession(asked time.Duration, manual bool) (*session, error) {
	if err := c.store.ready(c.io); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(c.io), c.store.timeout)
	defer cancel()
	t0 := c.clock.Now()
	c.store.requests.Add(1)
	resp, err := c.lease.Grant(ctx, int64(asked/time.Second))
	if err != nil {
		return nil, fmt.Errorf("granting a lease: %w", err) // one whose reply was lost ends by itself
	}
	s := &session{
		c: c, id: resp.ID, n: c.sessions.Add(1), asked: asked, manual: manual,
		dead: make(chan struct{}), kick: make(chan struct{}, 1),
		renewing: make(chan struct{}, 1), renewed: make(chan struct{}),
	}
	ttl := time.Duration(resp.TTL) * time.Second
	s.lease.Store(&grant{t0: t0, timing: c.cfg.timing(ttl), ttl: ttl})
	s.renewing <- struct{}{}
	sentinel := c.store.layout.live(s.n)
	got, err := c.store.do(c.io, request{then: []clientv3.Op{
		clientv3.OpPut(sentinel, encode(sentinelValue{Version: valueVersion, Owner: c.cfg.Owner, Since: t0.Time()}), clientv3.WithLease(s.id)),
		clientv3.OpGet(c.store.layout.epoch()),
	}})
	if err == nil {
		err = c.store.learnEpoch(got.Responses[1].GetResponseRange().Kvs, got.Header.Revision)
	}
	if err != nil {
		c.revoke(s)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			err = fmt.Errorf("%w: %w", errSessionLost, err) // as soon as it was granted
		}
		if errors.Is(err, rpctypes.ErrNoSpace) {
			err = failed(err) // whatever was put goes with the lease
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
		c.spawn(func() { s.run(c.io) })
	}
	c.log.Debug("session opened", s.fields()...)
	return s, nil
}

// sentinelValue is what session/<instance>/live/<n> says.
type sentinelValue struct {
	Version int       `json:"v"`
	Owner   string    `json:"owner"`
	Since   time.Time `json:"since"`
}

func (s *session) fields(more ...zap.Field) []zap.Field {
	return append(more, zap.String("instance", s.c.store.layout.instance), zap.Int64("session", s.n))
}

// reserve takes a place for one more claim, if the session has one and is good
// for new work.
func (s *session) reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || s.retiring || s.full || len(s.terms)+s.reserved >= claimsPerLease || !s.fresh() {
		return false
	}
	s.reserved++
	return true
}

func (s *session) unreserve() {
	s.mu.Lock()
	s.reserved--
	s.mu.Unlock()
	s.c.retireIdle(s)
}

// fresh reports whether new work may start: before the soft deadline, by every
// clock.
func (s *session) fresh() bool {
	g := s.lease.Load()
	sure, wall := s.c.clock.Now().Since(g.t0)
	return max(sure, wall) < g.soft
}

// left returns the time to the hard deadline by the clocks that cannot be
// stepped, and whether only the wall clock says that it has passed.
func (s *session) left() (left time.Duration, wallSaysOver bool) {
	g := s.lease.Load()
	sure, wall := s.c.clock.Now().Since(g.t0)
	return g.hard - sure, sure < g.hard && wall >= g.hard
}

// adopt moves the deadline forward to what a renewal sent at t0 has earned. It
// is called with renewing taken.
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
	close(s.renewed)
	s.renewed = make(chan struct{})
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

// enforce ends what the clock has ended.
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
		s.die(ReasonExpired, nil)
		return
	case age >= g.soft && !s.softened:
		s.softened = true
		for _, t := range s.terms {
			t.stopLocked(&LostError{Token: t.token(), Reason: ReasonExpired})
		}
		if len(s.terms) > 0 {
			s.c.log.Warn("claims could not be renewed: their handlers are told to stop", s.fields(zap.Int("claims", len(s.terms)), zap.Duration("left", g.hard-age))...)
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
	terms := s.terms
	s.terms = nil
	lost := make([]*LostError, 0, len(terms))
	for _, t := range terms {
		if l := t.loseLocked(reason, err); l != nil {
			lost = append(lost, l)
		}
	}
	close(s.dead)
	s.mu.Unlock()
	s.c.forget(s)
	if reason != ReasonShutdown {
		s.c.log.Info("session ended", s.fields(zap.Stringer("reason", reason), zap.Int("claims", len(lost)), zap.NamedError("cause", err))...)
	}
	for _, l := range lost {
		s.c.reportLost(l)
	}
}

// lossOf returns why the session is dead, as the error of something that waited
// on it.
func (s *session) lossOf(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &LostError{Token: tokenOf(key, 0), Reason: ReasonSessionDead, Err: errors.Join(errSessionLost, s.cause.Err, reasonError(s.cause.Reason))}
}

type reasonError Reason

func (e reasonError) Error() string { return Reason(e).String() }

// gone deals with an answer that a lease does not exist: true says that it was
// the session's. A request that carries leases of others, too, may mean one of
// those, and then the session is asked.
func (s *session) gone(ctx context.Context, err error, others bool) bool {
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false
	}
	if !others {
		s.die(ReasonRevoked, nil)
		return true
	}
	_ = s.renew(ctx) // ends the session if its lease is gone
	return s.over()
}

// isLost reports the same as over, as soon as its claims know.
func (s *session) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause != nil
}

// over reports whether the session was given up.
func (s *session) over() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}
