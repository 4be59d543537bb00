package etcdclaims

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.uber.org/zap"
)

// cleanup is a change that must be made in etcd although no caller waits for it. It
// is tried until it is done or its session is dead: then the end of the lease does
// it.
type cleanup struct {
	s    *session
	what string
	do   func(context.Context) error

	claim    string // that it gives up, if it is no claim of an attempt
	over     func() // called when it is done, or nil
	outlives bool   // it matters even when the session is dead
	logged   bool
	tries    int // that failed
}

// errOthersFirst puts a cleanup off until the others of its session are done.
var errOthersFirst = errors.New("etcdclaims: other cleanups come first")

// mostWorkers is how many cleanups are worked on at once, so that their requests
// share round trips: as many as fill two.
const mostWorkers = 2 * txn.FullBatch

// cleanUp adds a cleanup.
func (c *Client) cleanUp(s *session, what string, do func(context.Context) error) {
	c.addCleanup(&cleanup{s: s, what: what, do: do})
}

func (c *Client) addCleanup(ch *cleanup) {
	if ch.claim != "" {
		c.keys.Register(ch.claim)
	}
	ch.s.pending.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unfinished++
	c.enqueueLocked(ch)
}

// enqueueLocked gives a cleanup to the workers; c.mu is held.
func (c *Client) enqueueLocked(ch *cleanup) {
	c.cleanups = append(c.cleanups, ch)
	if c.workers < mostWorkers && c.io.Err() == nil {
		c.workers++
		c.spawn(c.runCleanups)
	}
}

// runCleanups works on cleanups while there are any.
func (c *Client) runCleanups() {
	for {
		c.mu.Lock()
		if len(c.cleanups) == 0 || c.io.Err() != nil {
			c.workers--
			c.mu.Unlock()
			return
		}
		ch := c.cleanups[0]
		c.cleanups[0] = nil
		c.cleanups = c.cleanups[1:]
		c.mu.Unlock()
		if !c.runCleanup(ch) {
			c.postpone(ch)
			continue
		}
		if ch.over != nil {
			ch.over()
		}
		ch.s.pending.Add(-1)
		if ch.claim != "" {
			c.keys.Unregister(ch.claim)
		}
		c.mu.Lock()
		c.unfinished--
		c.mu.Unlock()
	}
}

// postpone lets a cleanup that failed come again after a while.
// Others continue meanwhile.
func (c *Client) postpone(ch *cleanup) {
	after := retry.Delay(ch.tries)
	ch.tries++
	time.AfterFunc(after, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.enqueueLocked(ch)
	})
}

// runCleanup reports whether the cleanup needs no further try. Its timeout begins when
// its first request is sent.
func (c *Client) runCleanup(ch *cleanup) bool {
	if ch.s.ended() && !ch.outlives {
		return true
	}
	ctx, cancel := txn.WithSendTimer(c.io, c.store.Timeout())
	defer cancel()
	err := ch.do(ctx)
	if err == nil || !ch.outlives && ch.s.gone(ctx, err, true) {
		return true
	}
	if !ch.logged && c.io.Err() == nil && !errors.Is(err, errOthersFirst) {
		ch.logged = true
		c.log.Warn("cleanup failed; retrying", ch.s.fields(zap.String("what", ch.what), zap.Error(err))...)
	}
	return false
}
