package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
)

// The pool is the sessions of a client. A claim goes into a session that has room for
// it; another is opened when none has.

// opening is a session that several callers wait for.
type opening struct {
	done chan struct{}
	err  error
}

// admit makes a session part of the client. With the first one, it starts the
// watch and asks for the server's version.
func (c *Client) admit(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.live = append(c.live, s)
	if !c.watching {
		c.watching = true
		c.spawn(func() { c.watchSessions(s.born) })
		c.spawn(c.keepPulse)
		c.spawn(c.checkVersion)
	}
	return true
}

func (c *Client) forget(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, l := range c.live {
		if l == s {
			c.live = append(c.live[:i:i], c.live[i+1:]...)
			return
		}
	}
}

func (c *Client) liveSessions() []*session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*session(nil), c.live...)
}

// session returns a session with a place reserved in it.
func (c *Client) session(ctx context.Context, ttl time.Duration, manual bool) (*session, error) {
	asked := seconds(ttl)
	if manual {
		return c.ownSession(ctx, asked)
	}
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, ErrClosed
		}
		for _, s := range c.live {
			if s.asked == asked && !s.manual && s.reserve() {
				c.mu.Unlock()
				return s, c.ready(ctx, s)
			}
		}
		o := c.opening[asked]
		if o == nil {
			o = &opening{done: make(chan struct{})}
			c.opening[asked] = o
			c.grants++
			c.spawn(func() {
				_, o.err = c.openSession(asked, false)
				c.mu.Lock()
				c.grants--
				delete(c.opening, asked)
				c.mu.Unlock()
				close(o.done)
			})
		}
		c.mu.Unlock()
		select {
		case <-o.done:
			if o.err != nil {
				return nil, o.err
			}
		case <-ctx.Done():
			return nil, c.unanswered(ctx)
		}
	}
}

// ready fails if etcd's revision went back.
func (c *Client) ready(ctx context.Context, s *session) error {
	if err := c.store.Ready(ctx); err != nil {
		s.unreserve()
		return err
	}
	return nil
}

// ownSession opens a session for one manual claim.
func (c *Client) ownSession(ctx context.Context, asked time.Duration) (*session, error) {
	type result struct {
		s   *session
		err error
	}
	done := make(chan result, 1)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	c.grants++
	c.spawn(func() {
		s, err := c.openSession(asked, true)
		c.mu.Lock()
		c.grants--
		c.mu.Unlock()
		if err == nil && !s.reserve() {
			s.die(ReasonExpired, nil)
			err = fmt.Errorf("%w: the lease was granted too late", errSessionLost)
		}
		done <- result{s, err}
	})
	c.mu.Unlock()
	select {
	case r := <-done:
		return r.s, r.err
	case <-ctx.Done():
		c.mu.Lock()
		if !c.closed {
			c.spawn(func() {
				if r := <-done; r.err == nil {
					r.s.unreserve()
				}
			})
		}
		c.mu.Unlock()
		return nil, c.unanswered(ctx)
	}
}

// retireIdle gives up a session that is not needed: a manual one without its
// claim, or one of several with the same TTL.
func (c *Client) retireIdle(s *session) {
	if c.open.Err() != nil {
		return // Close does that, once the lease has no needed keys
	}
	s.mu.Lock()
	if len(s.terms)+s.reserved == 0 {
		s.full = false
	}
	s.mu.Unlock()
	if !s.manual {
		c.mu.Lock()
		peers := 0
		for _, l := range c.live {
			if l != s && l.asked == s.asked && !l.manual && l.roomy() {
				peers++
			}
		}
		c.mu.Unlock()
		if peers == 0 {
			return
		}
	}
	s.mu.Lock()
	if s.cause != nil || s.retiring || len(s.terms)+s.reserved > 0 {
		s.mu.Unlock()
		return
	}
	s.retiring = true
	s.mu.Unlock()
	c.retire(s)
}

// retire ends a session that takes no claims any more.
func (c *Client) retire(s *session) {
	if c.open.Err() != nil {
		return // Close does
	}
	c.cleanUp(s, "revoking an idle lease", func(context.Context) error {
		if s.pending.Load() > 1 {
			return errOthersFirst // they need the lease
		}
		c.revoke(s)
		s.die(ReasonShutdown, nil)
		return nil
	})
}

func (s *session) roomy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause == nil && !s.retiring && !s.full && s.carriesLocked() < claimsPerLease/2
}

// revoke ends a lease that carries nothing that a handler may still rely on. If
// it fails, the lease ends by itself.
func (c *Client) revoke(s *session) (done bool) {
	err := c.store.Revoke(c.io, s.id)
	if err != nil {
		c.log.Debug("a lease was not revoked and will expire", s.fields(zap.Error(err))...)
	}
	return err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound)
}
