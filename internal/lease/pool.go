package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/life"
	"github.com/etcdclaims/claims/internal/outage"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Config is what a Pool knows of its client.
type Config struct {
	Etcd   *clientv3.Client
	Store  *store.Store
	Clock  clock.Clock
	Log    *zap.Logger
	Owner  string
	Life   *life.Life
	Outage *outage.Outage
	// Timing returns the deadline rule for a granted TTL.
	Timing func(ttl time.Duration) Timing
	// Verify checks in etcd that a session still has its claims, and loses those that it has not.
	Verify func(ctx context.Context, s *Session, what Turn) (Verified, error)
	// Renewed is called for each verified renewal.
	Renewed func(s *Session, r Renewal)
	// Began is called on a goroutine of its own when the first session was opened, at a revision.
	Began func(rev int64)
}

// Pool is the sessions of a client. A claim goes into a session that has room for it; another is opened when none has.
// Its methods are safe for concurrent use.
type Pool struct {
	*Cleanups
	cfg    Config
	number atomic.Int64       // of the youngest session
	doubts atomic.Int64       // how often claims may have been lost without news of it
	used   chan clock.Reading // when an empty session was used; see KeepPulse

	mu      sync.Mutex // guards what follows. Of others, only those of a session and of Life are taken while it is held
	live    []*Session
	opening map[time.Duration]*opening
	grants  int // sessions that are being opened
	began   bool
}

// opening is a session that several callers wait for.
type opening struct {
	done chan struct{}
	err  error // set before done is closed
}

// NewPool returns a pool without sessions.
func NewPool(cfg Config) *Pool {
	return &Pool{Cleanups: &Cleanups{cfg: cfg}, cfg: cfg, used: make(chan clock.Reading, 1), opening: make(map[time.Duration]*opening)}
}

// Doubt has the next renewal of each session verify all claims: some may have been lost without news of it.
func (p *Pool) Doubt() { p.doubts.Add(1) }

// admit makes a session part of the client, unless it has ended: to open it has taken longer than its lease lasts. It
// reports false if the client is closed.
func (p *Pool) admit(s *Session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg.Life.Closed() {
		return false
	}
	if !s.IsLost() { // else Die has removed it, before it was there
		p.live = append(p.live, s)
	}
	if !p.began {
		p.began = true
		p.cfg.Life.Finish(func() { p.cfg.Began(s.born) })
	}
	return true
}

func (p *Pool) forget(s *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.live {
		if l == s {
			p.live = append(p.live[:i:i], p.live[i+1:]...)
			return
		}
	}
}

// Live returns the sessions that have not ended.
func (p *Pool) Live() []*Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*Session(nil), p.live...)
}

// Session returns a session with a place reserved in it. One for a Manual claim has no other claims.
func (p *Pool) Session(ctx context.Context, ttl time.Duration, manual bool) (*Session, error) {
	asked := Seconds(ttl)
	if manual {
		return p.ownSession(ctx, asked)
	}
	for {
		s, o := p.place(asked)
		switch {
		case s != nil:
			if err := p.cfg.Store.Ready(ctx); err != nil { // etcd's revision went back
				s.Unreserve()
				return nil, err
			}
			return s, nil
		case o == nil:
			return nil, claimerr.ErrClosed
		}
		select {
		case <-o.done:
			if o.err != nil {
				return nil, o.err
			}
		case <-ctx.Done():
			return nil, p.unanswered(ctx)
		}
	}
}

// place reserves a place in a session, or returns the opening of another one. It returns neither if the client is closed.
func (p *Pool) place(asked time.Duration) (*Session, *opening) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg.Life.Closed() {
		return nil, nil
	}
	for _, s := range p.live {
		if s.asked == asked && !s.manual && s.reserve() {
			return s, nil
		}
	}
	if o := p.opening[asked]; o != nil {
		return nil, o
	}
	o := &opening{done: make(chan struct{})}
	begun := p.cfg.Life.Go(func() {
		_, o.err = p.open(asked, false)
		p.mu.Lock()
		p.grants--
		delete(p.opening, asked)
		p.mu.Unlock()
		close(o.done)
	})
	if !begun {
		return nil, nil
	}
	p.opening[asked] = o
	p.grants++
	return nil, o
}

// ownSession opens a session for one manual claim.
func (p *Pool) ownSession(ctx context.Context, asked time.Duration) (*Session, error) {
	type result struct {
		s   *Session
		err error
	}
	done := make(chan result, 1)
	p.mu.Lock()
	begun := p.cfg.Life.Go(func() {
		s, err := p.open(asked, true)
		p.mu.Lock()
		p.grants--
		p.mu.Unlock()
		if err == nil && !s.reserve() {
			s.Die(claimerr.Loss{Reason: claimerr.Expired})
			err = fmt.Errorf("%w: the lease was granted too late", claimerr.ErrSession)
		}
		done <- result{s, err}
	})
	if begun {
		p.grants++
	}
	p.mu.Unlock()
	if !begun {
		return nil, claimerr.ErrClosed
	}
	select {
	case r := <-done:
		return r.s, r.err
	case <-ctx.Done():
		p.cfg.Life.Go(func() { // unless the client is being closed, which ends all sessions
			if r := <-done; r.err == nil {
				r.s.Unreserve()
			}
		})
		return nil, p.unanswered(ctx)
	}
}

// unanswered returns the cause of the end of a context in which etcd was waited for, and why the client cannot connect.
func (p *Pool) unanswered(ctx context.Context) error {
	err := txn.ContextError(ctx)
	if err == nil || errors.Is(err, claimerr.ErrClosed) || errors.Is(ctx.Err(), context.Canceled) {
		return err // a caller that leaves shows nothing of etcd
	}
	return fmt.Errorf("etcd has not answered: %w", txn.Explain(p.cfg.Etcd, err))
}

// hasRoomBeside reports whether another session has room for the claims of one.
func (p *Pool) hasRoomBeside(s *Session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.live {
		if l != s && l.asked == s.asked && !l.manual && l.roomy() {
			return true
		}
	}
	return false
}

// isOpening reports whether leases are being granted.
func (p *Pool) isOpening() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grants > 0
}
