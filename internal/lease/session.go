package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Session is one lease and what the client knows about it. Many claims share one; a Manual claim has one of its own.
// Its methods are safe for concurrent use.
type Session struct {
	p      *Pool
	id     clientv3.LeaseID
	n      int64 // names its sentinel
	asked  time.Duration
	manual bool
	born   int64 // revision of its sentinel

	renewal
	dead    chan struct{} // closed when it is given up
	pending atomic.Int32  // cleanups
	once    sync.Map      // names of cleanups of CleanUpOnce that have yet to begin

	mu       sync.Mutex // guards what follows. Of others, only that of the registry is taken while it is held (Add)
	deadline            // but for its grant, which is read without the mutex
	room     room
	cause    *claimerr.Loss // why it was given up, or nil
}

// open grants a lease and puts its sentinel. It is not cancelled by the caller that happened to need it first.
func (p *Pool) open(asked time.Duration, manual bool) (*Session, error) {
	st := p.cfg.Store
	if err := st.Ready(p.cfg.Life.IO); err != nil {
		return nil, err
	}
	t0 := p.cfg.Clock.Now()
	resp, err := st.Grant(p.cfg.Life.IO, asked)
	if err != nil {
		return nil, fmt.Errorf("granting a lease: %w", txn.Denied(err)) // one whose reply was lost ends by itself
	}
	s := &Session{p: p, id: resp.ID, n: p.number.Add(1), asked: asked, manual: manual, dead: make(chan struct{})}
	s.renewal.init()
	s.grant.Store(&Grant{T0: t0, Timing: p.cfg.Timing(time.Duration(resp.TTL) * time.Second)})
	value := keyspace.Encode(protocol.Sentinel{Version: protocol.Version, Owner: p.cfg.Owner, Since: keyspace.TimeText(t0.Time())})
	got, err := st.Do(p.cfg.Life.IO, txn.Request{
		In: txn.Then(clientv3.OpPut(s.Sentinel(), value, clientv3.WithLease(s.id)), clientv3.OpGet(st.Layout.Epoch())),
	})
	if err == nil {
		err = st.LearnEpoch(txn.Kvs(got, 1), got.Header.Revision)
	}
	if err != nil {
		s.revoke()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			err = fmt.Errorf("%w: %w", claimerr.ErrSession, err) // as soon as it was granted
		}
		if errors.Is(err, rpctypes.ErrNoSpace) {
			err = txn.Failed(err) // keys that were put end with the lease
		}
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	s.born = got.Header.Revision
	s.setAlarm()
	if !p.admit(s) {
		s.alarm.Stop()
		s.revoke()
		return nil, claimerr.ErrClosed
	}
	if !manual {
		s.mu.Lock()
		s.emptiedLocked() // its caller may have gone
		s.mu.Unlock()
		p.cfg.Life.Finish(func() { s.run(p.cfg.Life.IO) })
	}
	p.cfg.Log.Debug("session opened", s.Fields()...)
	return s, nil
}

// ID returns the lease.
func (s *Session) ID() clientv3.LeaseID { return s.id }

// Manual reports whether its holder renews it.
func (s *Session) Manual() bool { return s.manual }

// Sentinel returns the key whose end shows that of the lease.
func (s *Session) Sentinel() string { return s.p.cfg.Store.Layout.Sentinel(s.n) }

// HasSentinel reports whether the key values that were read are those of the sentinel, as the session has put it.
func (s *Session) HasSentinel(mod, lease int64) bool { return mod == s.born && lease == int64(s.id) }

// Dead is closed when the session was given up.
func (s *Session) Dead() <-chan struct{} { return s.dead }

// Fields returns the fields of the session for a log line.
func (s *Session) Fields(more ...zap.Field) []zap.Field {
	return append(more, zap.String("instance", s.p.cfg.Store.Layout.Instance), zap.Int64("session", s.n))
}

// Ended reports whether the session was given up.
func (s *Session) Ended() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

// IsLost reports the same as Ended, as soon as the session's claims can know it.
func (s *Session) IsLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause != nil
}

// Gone handles an answer that a lease does not exist: true means that it was the session's. A request with further
// leases may mean one of those. Then Gone renews the session to find out.
func (s *Session) Gone(ctx context.Context, err error, others bool) bool {
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false
	}
	if !others {
		s.Die(claimerr.Loss{Reason: claimerr.Revoked})
		return true
	}
	return !s.Lives(ctx)
}

// Lives asks etcd whether the lease is there, and ends the session if it is not.
func (s *Session) Lives(ctx context.Context) bool {
	_ = s.Renew(ctx)
	return !s.Ended()
}

// Die ends the session and all its claims, at once and for good. When it returns, all of them know that they are lost.
func (s *Session) Die(why claimerr.Loss) {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		<-s.dead // another call is about to end them
		return
	}
	s.cause = &why
	s.stopTimers()
	members, retiring := s.room.members, s.room.retiring
	s.room.members = nil
	s.mu.Unlock()
	lost := members[:0]
	for _, m := range members {
		if m.Lose(why) {
			lost = append(lost, m)
		}
	}
	close(s.dead)
	s.p.forget(s)
	idle := retiring && len(lost) == 0 // its own client revokes it, which a watch may report first
	if why.Reason != claimerr.Shutdown && !idle {
		s.p.cfg.Log.Info("session ended", s.Fields(
			zap.Stringer("reason", why.Reason), zap.Int("claims", len(lost)), zap.NamedError("cause", why.Err))...)
	}
	for _, m := range lost {
		m.Lost(why)
	}
}

// LossOf returns why the session is dead, as the error of something that waited on it; with a fence if it had the
// key already.
func (s *Session) LossOf(token fencing.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := fmt.Errorf("%w: %v", claimerr.ErrSession, s.cause.Reason)
	if s.cause.Err != nil {
		why = fmt.Errorf("%w: %w", why, s.cause.Err)
	}
	return claimerr.Loss{Reason: claimerr.SessionDead, Err: why}.Of(token)
}

// Within bounds a request on a claim's behalf by the claim's deadline.
func (s *Session) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	left, _ := s.Left()
	return context.WithTimeoutCause(ctx, max(left, 0), errDeadlinePassed)
}

// Hurried is Within if the deadline is near enough for one request to miss it. After a sleep of the machine it may
// not notice that: then the request has its own timeout alone.
func (s *Session) Hurried(ctx context.Context) (context.Context, context.CancelFunc) {
	if g := s.Grant(); g.Hard-g.T0.Awake() < 2*s.p.cfg.Store.Timeout() {
		return s.Within(ctx)
	}
	return ctx, func() {}
}

// revoke ends a lease that carries nothing that a handler may still rely on. If it fails, the lease ends by itself.
func (s *Session) revoke() (done bool) {
	err := s.p.cfg.Store.Revoke(s.p.cfg.Life.IO, s.id)
	if err != nil {
		s.p.cfg.Log.Debug("a lease was not revoked and will expire", s.Fields(zap.Error(err))...)
	}
	return err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound)
}

// Now reads the clocks by which the session's deadlines go.
func (s *Session) Now() clock.Reading { return s.p.cfg.Clock.Now() }
