package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.uber.org/zap"
)

// Cleanup is a change that must be made in etcd although no caller waits for it. It
// is tried until it is done or its session is dead: then the end of the lease does
// it.
type Cleanup struct {
	Of   *Session
	What string
	Do   func(context.Context) error

	Over     func() // called when it is done, or nil
	Outlives bool   // it matters even when the session is dead

	logged bool // for the goroutine that tries it, as tries is
	tries  int  // that failed
}

// mostWorkers is how many cleanups are worked on at once, so that their requests
// share round trips: as many as fill two.
const mostWorkers = 2 * txn.FullBatch

// Cleanups are those of a client that are not done yet. Its methods are safe for concurrent use.
type Cleanups struct {
	cfg Config

	mu         sync.Mutex // guards what follows. Only that of Life is taken while it is held
	waiting    []*Cleanup // that have not been started yet
	workers    int        // goroutines that work on cleanups
	unfinished int        // cleanups that are not done yet
}

// CleanUp adds a cleanup.
func (s *Session) CleanUp(what string, do func(context.Context) error) {
	s.p.Add(&Cleanup{Of: s, What: what, Do: do})
}

// CleanUpOnce adds a cleanup, unless one of that name has yet to begin.
func (s *Session) CleanUpOnce(what string, do func(context.Context) error) {
	if _, waits := s.once.LoadOrStore(what, true); waits {
		return
	}
	s.CleanUp(what, func(ctx context.Context) error {
		s.once.Delete(what)
		err := do(ctx)
		if err != nil {
			if _, waits := s.once.LoadOrStore(what, true); waits {
				return nil
			}
		}
		return err
	})
}

// Add adds a cleanup.
func (cs *Cleanups) Add(c *Cleanup) {
	c.Of.pending.Add(1)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.unfinished++
	cs.enqueueLocked(c)
}

// enqueueLocked gives a cleanup to the workers; the mutex is held.
func (cs *Cleanups) enqueueLocked(c *Cleanup) {
	cs.waiting = append(cs.waiting, c)
	if cs.workers < mostWorkers && cs.cfg.Life.Finish(cs.run) {
		cs.workers++
	}
}

// run works on cleanups while there are any.
func (cs *Cleanups) run() {
	for {
		cs.mu.Lock()
		if len(cs.waiting) == 0 || cs.cfg.Life.IO.Err() != nil {
			cs.workers--
			cs.mu.Unlock()
			return
		}
		c := cs.waiting[0]
		cs.waiting[0] = nil
		cs.waiting = cs.waiting[1:]
		cs.mu.Unlock()
		if !cs.try(c) {
			cs.postpone(c)
			continue
		}
		if c.Over != nil {
			c.Over()
		}
		c.Of.pending.Add(-1)
		cs.mu.Lock()
		cs.unfinished--
		cs.mu.Unlock()
	}
}

// postpone lets a cleanup that failed come again after a while.
// Others continue meanwhile.
func (cs *Cleanups) postpone(c *Cleanup) {
	after := retry.Delay(c.tries)
	c.tries++
	time.AfterFunc(after, func() {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		cs.enqueueLocked(c)
	})
}

// try reports whether the cleanup needs no further try. Its requests have timeouts of
// their own, which begin when they are sent: a cleanup may wait long for its round trip.
func (cs *Cleanups) try(c *Cleanup) bool {
	if c.Of.Ended() && !c.Outlives {
		return true
	}
	err := c.Do(cs.cfg.Life.IO)
	if err == nil || !c.Outlives && c.Of.Gone(cs.cfg.Life.IO, err, true) {
		return true
	}
	if !c.logged && cs.cfg.Life.IO.Err() == nil && !errors.Is(err, errOthersFirst) {
		c.logged = true
		cs.cfg.Log.Warn("cleanup failed; retrying", c.Of.Fields(zap.String("what", c.What), zap.Error(err))...)
	}
	return false
}

// isBusy reports whether there are cleanups.
func (cs *Cleanups) isBusy() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.unfinished > 0
}
