package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/txn"
	"go.uber.org/zap"
)

// Grant is the lease time that the server granted, counted from before the request was sent.
type Grant struct {
	T0 clock.Reading
	Timing
}

// deadline is when a session tells its handlers to stop, and when it ends.
type deadline struct {
	grant    atomic.Pointer[Grant] // as last verified
	alarm    *time.Timer           // for the next of the two deadlines
	softened bool                  // the contexts of its claims were ended at this soft deadline
}

// errDeadlinePassed does not repeat the text of the error that it matches: that is part of the
// request's own.
var errDeadlinePassed = errtext.Namesake("the claim's deadline passed", context.DeadlineExceeded)

// Grant returns the lease time as it was last verified.
func (s *Session) Grant() *Grant { return s.grant.Load() }

// Fresh reports whether new work may start: before the soft deadline, by every
// clock.
func (s *Session) Fresh() bool {
	g := s.Grant()
	sure, wall := s.Now().Since(g.T0)
	return max(sure, wall) < g.Soft
}

// Young reports whether a claim that begins now has nearly all of the lease before
// it.
func (s *Session) Young() bool {
	g := s.Grant()
	sure, wall := s.Now().Since(g.T0)
	return max(sure, wall) < g.Renew/10
}

// Left returns the time to the hard deadline by the clocks that cannot be stepped, and
// whether it has passed by the wall clock alone.
func (s *Session) Left() (left time.Duration, wallSaysOver bool) {
	g := s.Grant()
	sure, wall := s.Now().Since(g.T0)
	return g.Hard - sure, sure < g.Hard && wall >= g.Hard
}

// Silence returns for how long etcd has not answered the session, by the wall clock, 0 if it has answered lately.
func (s *Session) Silence() time.Duration {
	g := s.Grant()
	if _, wall := s.Now().Since(g.T0); wall > g.Renew+2*g.Attempt {
		return wall
	}
	return 0
}

// adopt moves the deadline forward after a renewal that was sent at t0. The caller has
// taken renewing.
func (s *Session) adopt(t0 clock.Reading, ttl time.Duration) {
	g := &Grant{T0: t0, Timing: s.p.cfg.Timing(ttl)}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.Grant()
	if gained, _ := t0.Since(old.T0); gained+g.Hard <= old.Hard || s.cause != nil {
		return
	}
	s.grant.Store(g)
	s.softened = false
	s.setAlarmLocked()
}

func (s *Session) setAlarm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setAlarmLocked()
}

func (s *Session) setAlarmLocked() {
	g := s.Grant()
	age, _ := s.Now().Since(g.T0)
	d := g.Hard - age
	if !s.softened {
		d = g.Soft - age
	}
	if s.alarm == nil {
		s.alarm = time.AfterFunc(max(d, 0), s.Enforce)
		return
	}
	s.alarm.Reset(max(d, 0))
}

// stopTimers stops the timers of a session that ends; the mutex is held.
func (s *Session) stopTimers() {
	s.alarm.Stop()
	if s.room.unused != nil {
		s.room.unused.Stop()
	}
}

// Enforce ends contexts and claims whose deadline has passed. If the session has ended, its claims are lost on return.
func (s *Session) Enforce() {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		<-s.dead
		return
	}
	g := s.Grant()
	age, _ := s.Now().Since(g.T0)
	if age >= g.Hard {
		s.mu.Unlock()
		s.Die(claimerr.Loss{Reason: claimerr.Expired, Err: s.notRenewed()})
		return
	}
	var stopped []Member
	if age >= g.Soft && !s.softened {
		s.softened = true
		stopped = append(stopped, s.room.members...)
	}
	s.setAlarmLocked()
	s.mu.Unlock()
	if len(stopped) == 0 {
		return
	}
	why := claimerr.Loss{Reason: claimerr.Expired, Err: s.notRenewed()}
	for _, m := range stopped {
		m.Stop(why)
	}
	s.p.cfg.Log.Warn("claims not renewed; handlers stopped", s.Fields(
		zap.Int("claims", len(stopped)), zap.Duration("left", g.Hard-age), zap.Error(why.Err))...)
}

// notRenewed returns why the last renewal failed, for the loss of the claims that
// it should have kept, or nil if it did not fail. Only a missing permission can be
// matched: a passing error must not look like the cause of another call.
func (s *Session) notRenewed() error {
	p := s.failure.Load()
	switch {
	case p == nil:
		return nil
	case errors.Is(*p, txn.ErrPermissionDenied):
		return *p
	}
	return errors.New((*p).Error()) //nolint:err113 // the text alone
}
