package concurrency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	original "go.etcd.io/etcd/client/v3/concurrency"
)

// The errors of etcd's package. Compare with errors.Is and not with ==: what is returned also has
// the key and the cause.
var (
	// ErrLocked is returned by TryLock. The error matches etcdclaims.ErrHeld, too.
	ErrLocked = original.ErrLocked
	// ErrSessionExpired is returned by calls after the end of the session.
	ErrSessionExpired = original.ErrSessionExpired
	// ErrLockReleased is returned by Unlock and RUnlock if the lock is not held.
	ErrLockReleased = original.ErrLockReleased
	// ErrElectionNotLeader is returned by Proclaim of a session that does not lead.
	ErrElectionNotLeader = original.ErrElectionNotLeader
	// ErrElectionNoLeader is returned by Leader if nobody leads.
	ErrElectionNoLeader = original.ErrElectionNoLeader
)

var (
	errOrphaned = errors.New("the session was orphaned")
	errClosed   = errors.New("the session was closed")
)

const defaultTTL = 60 * time.Second // of etcd's package

// Session is a lease that is renewed until the session ends, and the client of the claims on it. Two
// sessions exclude each other, also in one process. Operators see a session by the key session-ID that it holds,
// where ID is Claims().Instance().
type Session struct {
	etcd   *clientv3.Client
	opts   sessionOptions
	claims *etcdclaims.Client
	claim  *etcdclaims.Claim // lives as long as the session, and shows that in etcd
	lease  clientv3.LeaseID

	ctx     context.Context
	cancel  context.CancelCauseFunc
	left    chan struct{} // closed by the first call of Orphan or Close
	leave   sync.Once
	closing atomic.Bool   // by Close: what is held is released
	done    chan struct{} // closed when the session has ended
	closed  func() error  // the result of that, if it was by Close; set before done is closed

	mu    sync.Mutex // guards leads
	leads map[string]*leadership
}

// NewSession grants a lease and renews it until the session ends: by Close or Orphan, by the end of
// the context of WithContext, and when the lease cannot be renewed in time.
func NewSession(client *clientv3.Client, opts ...SessionOption) (*Session, error) {
	if client == nil {
		return nil, errors.New("new session: the etcd client is nil")
	}
	s := &Session{etcd: client, left: make(chan struct{}), done: make(chan struct{}), leads: make(map[string]*leadership)}
	s.opts.ctx = client.Ctx()
	for _, opt := range opts {
		opt(&s.opts)
	}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("new session: %w", err)
	}
	go s.run()
	return s, nil
}

func (s *Session) open() (err error) {
	if id := s.opts.lease; id != clientv3.NoLease {
		return fmt.Errorf("WithLease(%x): a claim ends with the session that made it, and no lease carries it over: "+
			"acquire the key again, with a greater fence", int64(id))
	}
	if s.opts.ttl > 0 {
		s.opts.cfg.TTL = s.opts.ttl
	} else if s.opts.cfg.TTL == 0 {
		s.opts.cfg.TTL = defaultTTL
	}
	if s.opts.cfg.Logger == nil {
		s.opts.cfg.Logger = s.etcd.GetLogger()
	}
	if s.claims, err = etcdclaims.New(s.etcd, s.opts.cfg); err != nil {
		return err
	}
	s.ctx, s.cancel = context.WithCancelCause(s.opts.ctx)
	defer func() {
		if err != nil {
			s.cancel(err)
			_ = s.claims.Close(s.ctx)
		}
	}()
	key := "session-" + s.claims.Instance()
	if s.claim, err = s.claims.TryAcquire(s.ctx, key); err != nil {
		return err
	}
	info, err := s.claims.Lookup(s.ctx, key)
	if err != nil {
		return err
	}
	s.lease = info.Lease
	return nil
}

// run ends the session with its claim, or its context.
func (s *Session) run() {
	defer close(s.done)
	held := s.claim.Context()
	select {
	case <-s.ctx.Done():
	case <-held.Done():
		s.cancel(context.Cause(held))
		drain := time.NewTimer(s.claim.Remaining()) // to give up what is held
		defer drain.Stop()
		select {
		case <-s.claim.Done():
		case <-drain.C:
		case <-s.left:
		case <-s.opts.ctx.Done():
		}
	}
	if !s.closing.Load() {
		_ = core.Of(s.claims).Abandon()
		return
	}
	ctx, cancel := context.WithTimeout(s.opts.ctx, s.opts.cfg.TTL)
	defer cancel()
	err := s.claims.Close(ctx)
	s.closed = func() error { return err }
}

// Client returns the etcd client.
func (s *Session) Client() *clientv3.Client { return s.etcd }

// Claims returns the client of the session's claims, for what etcd's package does not have, such as Run,
// Lookup and Watch. Close ends it.
func (s *Session) Claims() *etcdclaims.Client { return s.claims }

// Lease returns a lease for keys of the caller, which end with the session.
func (s *Session) Lease() clientv3.LeaseID { return s.lease }

// Ctx returns a context that ends with the session. If the lease is not renewed in time it ends one
// drain (etcdclaims.Config.Drain) earlier, so that what is held can be given up.
func (s *Session) Ctx() context.Context { return s.ctx }

// Done returns a channel that is closed when the session has ended, and with it all that it held. If
// the lease is not renewed, that is before etcd can give a key to another session.
func (s *Session) Done() <-chan struct{} { return s.done }

// Orphan ends the session without a request to etcd. Here all that it holds is lost at once. In etcd it
// stays held until the lease lapses.
func (s *Session) Orphan() { s.end(errOrphaned) }

func (s *Session) end(why error) {
	s.cancel(why)
	s.leave.Do(func() { close(s.left) })
	<-s.done
}

// Close ends the session and releases what it holds: stop the work under that first. If the session has
// ended before, Close revokes its lease. Close takes the TTL at most, and ends with the context of
// WithContext.
func (s *Session) Close() error {
	s.closing.Store(true)
	s.end(errClosed)
	if s.closed != nil {
		return s.closed()
	}
	ctx, cancel := context.WithTimeout(s.opts.ctx, s.opts.cfg.TTL)
	defer cancel()
	if _, err := s.etcd.Revoke(ctx, s.lease); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("close session: revoking its lease: %w", err)
	}
	return nil
}

// expired adds to the error of a call that the session has ended, if it has.
func (s *Session) expired(err error) error {
	if s.ctx.Err() == nil {
		return err
	}
	return errtext.Both(errtext.Both(ErrSessionExpired, context.Cause(s.ctx)), err)
}

// acquire claims a key, or waits for it.
func (s *Session) acquire(ctx context.Context, key string, wait bool, opts ...etcdclaims.AcquireOption) (*etcdclaims.Claim, error) {
	if err := s.expired(nil); err != nil {
		return nil, errtext.Call("acquire", key, err)
	}
	acquire := s.claims.TryAcquire
	if wait {
		acquire = s.claims.Acquire
	}
	claim, err := acquire(ctx, key, opts...)
	if err == nil && s.ctx.Err() != nil {
		err = claim.Release(context.WithoutCancel(ctx))
	}
	switch {
	case errors.Is(err, etcdclaims.ErrHeld):
		return nil, errtext.Both(ErrLocked, err)
	case err != nil || s.ctx.Err() != nil:
		return nil, errtext.Call("acquire", key, s.expired(err))
	}
	return claim, nil
}

// SessionOption configures a Session.
type SessionOption func(*sessionOptions)

type sessionOptions struct {
	ttl   time.Duration
	cfg   etcdclaims.Config
	ctx   context.Context
	lease clientv3.LeaseID
}

// WithTTL sets the TTL in seconds. The default is 60, also if ttl is not above 0. It must be at least 5,
// unless WithConfig sets AllowShortTTL.
func WithTTL(ttl int) SessionOption {
	return func(o *sessionOptions) { o.ttl = time.Duration(ttl) * time.Second }
}

// WithContext ends the session, as Orphan does, when ctx ends. The default is the context of the
// etcd client.
func WithContext(ctx context.Context) SessionOption {
	return func(o *sessionOptions) { o.ctx = ctx }
}

// WithLease is not supported: unless the lease is clientv3.NoLease, NewSession returns an error that gives
// the reason.
func WithLease(lease clientv3.LeaseID) SessionOption {
	return func(o *sessionOptions) { o.lease = lease }
}

// WithConfig configures the claims of the session: their prefix, hooks, the owner's label, and the
// logger, by default that of the etcd client. A TTL of WithTTL is used instead of that in cfg.
func WithConfig(cfg etcdclaims.Config) SessionOption {
	return func(o *sessionOptions) { o.cfg = cfg }
}
