package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
)

// verifyTries is how often the claims are verified after one renewal of the lease.
const verifyTries = 3

// renewal is how the lease of a session is renewed.
type renewal struct {
	now      chan struct{}            // asks for a renewal now
	renewing chan struct{}            // holds one element while no attempt to renew is under way: there is one at a time
	rotation rotation                 // of the attempt in flight
	verified atomic.Pointer[Verified] // the last verification, which did not cover claims that the session did not know by then
	failure  atomic.Pointer[error]    // of the last renewal; nil if it succeeded
}

// Renewal is one that was verified.
type Renewal struct {
	Before *Grant        // that it has replaced
	T0     clock.Reading // from before its first request
	TTL    time.Duration
}

func (r *renewal) init() {
	r.now, r.renewing = make(chan struct{}, 1), make(chan struct{}, 1)
	r.renewing <- struct{}{}
}

// run renews the session's lease until the session or ctx ends.
func (s *Session) run(ctx context.Context) {
	// A client that claims many keys opens sessions one after the other. They must not
	// all verify their claims at the same time ever after.
	g := s.Grant()
	age, _ := s.Now().Since(g.T0) // to open the session has taken a while, and so has a wait with it
	timer := time.NewTimer(max(g.Renew-age-g.Renew/16*time.Duration((s.n-1)%8), time.Millisecond))
	defer timer.Stop()
	for failures := 0; ; {
		all := true
		select {
		case <-s.dead:
			return
		case <-ctx.Done():
			return
		case <-s.now:
		case <-timer.C:
			all = false
		}
		err := s.renewWith(ctx, all)
		g := s.Grant()
		age, _ := s.Now().Since(g.T0)
		wait := g.Renew - age
		if err != nil {
			// Jittered, and often enough to use a short gap in an outage, until
			// the deadline itself ends this loop.
			failures++
			wait = g.Renew/40 + rand.N(min(g.Renew/20<<min(failures, 3), time.Second))
			s.p.cfg.Log.Debug("renewal failed", s.Fields(zap.Int("failures", failures), zap.Error(err))...)
		} else {
			failures = 0
		}
		timer.Reset(max(wait, time.Millisecond))
	}
}

// Hold keeps a Manual session alive until the returned function is called: to wait is the client's own work, and
// its holder renews what it holds.
func (s *Session) Hold() (end func()) {
	renewing, stop := context.WithCancel(s.p.cfg.Life.IO)
	stopped := make(chan struct{})
	begun := s.p.cfg.Life.Go(func() {
		defer close(stopped)
		s.run(renewing)
	})
	if !begun {
		return stop
	}
	return func() {
		stop()
		<-stopped
	}
}

// RenewSoon asks for a renewal that verifies all claims, without waiting for it.
func (s *Session) RenewSoon() {
	select {
	case s.now <- struct{}{}:
	default:
	}
}

// Renew extends the lease, verifies its claims, and moves the deadline of those that are
// still owned forward. What fails is tried again until the deadline, by which the
// session fails closed: a permission that was revoked by mistake may come back.
func (s *Session) Renew(ctx context.Context) error { return s.renewWith(ctx, true) }

func (s *Session) renewWith(ctx context.Context, all bool) error {
	done, err := s.tryRenew(ctx, all)
	switch {
	case err == nil:
		s.failure.Store(nil)
		s.p.cfg.Renewed(s, done)
	case errors.Is(err, claimerr.ErrSession) || ctx.Err() != nil:
		// That shows nothing about etcd.
	default:
		s.failed(err)
	}
	return err
}

// failed notes why a renewal failed. That the permission is missing stays the cause
// until a renewal succeeds, and is logged once, whatever else fails meanwhile.
func (s *Session) failed(err error) {
	before := s.failure.Load()
	if before != nil && errors.Is(*before, txn.ErrPermissionDenied) {
		return
	}
	s.failure.Store(&err)
	if errors.Is(err, txn.ErrPermissionDenied) {
		left, _ := s.Left()
		s.p.cfg.Log.Warn("renewal refused", s.Fields(zap.Int("claims", s.Size()), zap.Duration("left", left), zap.Error(err))...)
	}
}

// tryRenew makes one attempt. One is in flight at a time, so that a reply belongs
// to its own t0.
func (s *Session) tryRenew(ctx context.Context, all bool) (done Renewal, err error) {
	select {
	case <-s.renewing:
	case <-s.dead:
		return done, claimerr.ErrSession
	case <-ctx.Done():
		return done, txn.ContextError(ctx)
	}
	defer func() { s.renewing <- struct{}{} }()

	g := s.Grant()
	t0 := s.Now()
	age, _ := t0.Since(g.T0)
	if age >= g.Hard {
		s.Enforce()
		return done, claimerr.ErrSession
	}
	all = s.rotation.begin(all || age > g.Renew+mostLate, s.p.doubts.Load())
	inTime, cancel := context.WithTimeout(ctx, g.Hard-age)
	defer cancel()
	sent, seen := clock.Mono(), s.p.cfg.Store.Seen()
	// The attempt's limit makes the next one take another endpoint.
	ttl, rev, err := s.p.cfg.Store.KeepAlive(inTime, s.id, g.Attempt)
	s.p.cfg.Outage.Observe(ctx, sent, err)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.Die(claimerr.Loss{Reason: claimerr.Revoked})
		return done, claimerr.ErrSession
	case err != nil:
		return done, fmt.Errorf("renewing the lease: %w", txn.Denied(err))
	}
	// A session that carries nothing has nothing to verify, unless etcd may have been restored.
	// What is claimed on it from now on is younger than the renewal.
	if s.isUsed() || rev < seen {
		if err := s.verifyRenewed(inTime, all); err != nil {
			return done, fmt.Errorf("verifying claims after a renewal: %w", err)
		}
	}
	s.rotation.succeeded()
	s.adopt(t0, ttl)
	return Renewal{Before: g, T0: t0, TTL: ttl}, nil
}

// verifyRenewed verifies the claims after a renewal: a living lease does not show that its keys
// exist (etcd-io/etcd#14758).
func (s *Session) verifyRenewed(ctx context.Context, all bool) error {
	for try := 1; ; try++ {
		err := s.verify(ctx, all)
		// The next request goes to another member: with one that hangs, to begin
		// with the lease again would often take longer than there is time.
		if err == nil || try == verifyTries || !claimerr.IsPassing(err) || ctx.Err() != nil {
			return err
		}
		all = true
	}
}

// verify checks the claims of the session in etcd: all, or those whose turn it is.
func (s *Session) verify(ctx context.Context, all bool) error {
	turn := Turn{All: all, Part: s.rotation.part}
	if last := s.verified.Load(); last != nil {
		turn.Origin = last.Origin
	}
	now, err := s.p.cfg.Verify(ctx, s, turn)
	if err == nil {
		s.verified.Store(&now)
	}
	return err
}

// VerifiedAt returns the revision as of which the claims were last verified, 0 if they never were.
func (s *Session) VerifiedAt() int64 {
	if p := s.verified.Load(); p != nil {
		return p.Rev
	}
	return 0
}

// RenewVerified waits until the session is renewed by an attempt that starts
// now or later, trying until ctx or the session ends.
func (s *Session) RenewVerified(ctx context.Context) error {
	for try := 0; ; try++ {
		err := s.Renew(ctx)
		if err == nil {
			return nil
		}
		if s.Ended() {
			return claimerr.ErrSession
		}
		if !retry.PauseUnless(ctx, s.dead, try) {
			if cause := txn.ContextError(ctx); cause != nil {
				return fmt.Errorf("%w (%w)", err, cause)
			}
			return err
		}
	}
}
