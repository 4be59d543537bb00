package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
)

// verifyTries is how often the claims are verified after one renewal of the lease.
const verifyTries = 3

// run renews the session's lease until the session or ctx ends.
func (s *session) run(ctx context.Context) {
	// A client that claims many keys opens sessions one after the other. They must not
	// all verify their claims at the same time ever after.
	g := s.lease.Load()
	age, _ := s.c.clock.Now().Since(g.t0) // to open the session has taken a while, and so has a wait with it
	timer := time.NewTimer(max(g.renew-age-g.renew/16*time.Duration((s.n-1)%8), time.Millisecond))
	defer timer.Stop()
	for failures := 0; ; {
		what := everything
		select {
		case <-s.dead:
			return
		case <-ctx.Done():
			return
		case <-s.renewNow:
		case <-timer.C:
			what = inTurn
		}
		err := s.renewWith(ctx, what)
		g := s.lease.Load()
		age, _ := s.c.clock.Now().Since(g.t0)
		wait := g.renew - age
		if err != nil {
			// Jittered, and often enough to use a short gap in an outage, until
			// the deadline itself ends this loop.
			failures++
			wait = g.renew/40 + rand.N(min(g.renew/20<<min(failures, 3), time.Second))
			s.c.log.Debug("renewal failed", s.fields(zap.Int("failures", failures), zap.Error(err))...)
		} else {
			failures = 0
		}
		timer.Reset(max(wait, time.Millisecond))
	}
}

// renewSoon asks for a renewal that verifies all claims, without waiting for it.
func (s *session) renewSoon() {
	select {
	case s.renewNow <- struct{}{}:
	default:
	}
}

// renew extends the lease, verifies its claims, and moves the deadline of those that are
// still owned forward. What fails is tried again until the deadline, by which the
// session fails closed: a permission that was revoked by mistake may come back.
func (s *session) renew(ctx context.Context) error { return s.renewWith(ctx, everything) }

func (s *session) renewWith(ctx context.Context, what extent) error {
	err := s.tryRenew(ctx, what)
	switch {
	case err == nil:
		s.failure.Store(nil)
		s.c.wakeSharing(s.c.shareable) // not while the lease may have ended by the wall clock
	case errors.Is(err, errSessionLost) || ctx.Err() != nil:
		// That shows nothing about etcd.
	default:
		s.failed(err)
	}
	return err
}

// failed notes why a renewal failed. That the permission is missing stays the cause
// until a renewal succeeds, and is logged once, whatever else fails meanwhile.
func (s *session) failed(err error) {
	before := s.failure.Load()
	if before != nil && errors.Is(*before, ErrPermissionDenied) {
		return
	}
	s.failure.Store(&err)
	if errors.Is(err, ErrPermissionDenied) {
		left, _ := s.left()
		s.c.log.Warn("renewal refused", s.fields(zap.Int("claims", s.size()), zap.Duration("left", left), zap.Error(err))...)
	}
}

// tryRenew makes one attempt. One is in flight at a time, so that a reply belongs
// to its own t0.
func (s *session) tryRenew(ctx context.Context, what extent) error {
	select {
	case <-s.renewing:
	case <-s.dead:
		return errSessionLost
	case <-ctx.Done():
		return txn.ContextError(ctx)
	}
	defer func() { s.renewing <- struct{}{} }()

	g := s.lease.Load()
	t0 := s.c.clock.Now()
	age, _ := t0.Since(g.t0)
	if age >= g.hard {
		s.enforce()
		return errSessionLost
	}
	what = s.rotation.begin(what, age > g.renew+mostLate, s.c.doubts.Load())
	inTime, cancel := context.WithTimeout(ctx, g.hard-age)
	defer cancel()
	sent := clock.Mono()
	// The attempt's limit makes the next one take another endpoint.
	ttl, err := s.c.store.KeepAlive(inTime, s.id, g.attempt)
	s.c.outage.Observe(ctx, sent, err)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.die(ReasonRevoked, nil)
		return errSessionLost
	case err != nil:
		return fmt.Errorf("renewing the lease: %w", txn.Denied(err))
	}
	// A living lease does not show that its keys exist (etcd-io/etcd#14758).
	for try := 1; ; try++ {
		err := s.verify(inTime, what)
		if err == nil {
			break
		}
		what = everything
		// The next request goes to another member: with one that hangs, to begin
		// with the lease again would often take longer than there is time.
		if try == verifyTries || !isPassing(err) || inTime.Err() != nil {
			return fmt.Errorf("verifying claims after a renewal: %w", err)
		}
	}
	s.rotation.succeeded()
	s.adopt(t0, ttl)
	s.c.events.renewed(s, g, t0, ttl)
	return nil
}

func (s *session) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.terms)
}

// renewVerified waits until the session is renewed by an attempt that starts
// now or later, trying until ctx or the session ends.
func (s *session) renewVerified(ctx context.Context) error {
	for try := 0; ; try++ {
		err := s.renew(ctx)
		if err == nil {
			return nil
		}
		if s.ended() {
			return errSessionLost
		}
		if !retry.PauseUnless(ctx, s.dead, try) {
			if cause := txn.ContextError(ctx); cause != nil {
				return fmt.Errorf("%w (%w)", err, cause)
			}
			return err
		}
	}
}
