package etcdclaims

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	"go.uber.org/zap"
)

// chore is something that must be done in etcd though no caller waits for it.
// It is tried until it is done or its session is dead, since then the end of
// the lease does it.
type chore struct {
	s    *session
	what string
	do   func(context.Context) error

	claim    string // that it gives up, if it is no claim of an attempt
	outlives bool   // it matters even when the session is dead
	told     bool
	tries    int // that failed
}

// errOthersFirst puts a chore off until the others of its session are done.
var errOthersFirst = errors.New("etcdclaims: other chores come first")

// mostWorkers is how many chores are worked on at once, so that their requests
// share round trips: as many as fill two.
const mostWorkers = 2 * txn.FullBatch

// chore adds a chore.
func (c *Client) chore(s *session, what string, do func(context.Context) error) {
	c.addChore(&chore{s: s, what: what, do: do})
}

func (c *Client) addChore(ch *chore) {
	if ch.claim != "" {
		c.begun(ch.claim)
	}
	ch.s.pending.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.undone++
	c.dueLocked(ch)
}

// dueLocked gives a chore to the workers; c.mu is held.
func (c *Client) dueLocked(ch *chore) {
	c.chores = append(c.chores, ch)
	if c.workers < mostWorkers && c.io.Err() == nil {
		c.workers++
		c.spawn(c.doChores)
	}
}

// doChores works on chores while there are any.
func (c *Client) doChores() {
	for {
		c.mu.Lock()
		if len(c.chores) == 0 || c.io.Err() != nil {
			c.workers--
			c.mu.Unlock()
			return
		}
		ch := c.chores[0]
		c.chores[0] = nil
		c.chores = c.chores[1:]
		c.mu.Unlock()
		if !c.doChore(ch) {
			c.putOff(ch)
			continue
		}
		ch.s.pending.Add(-1)
		if ch.claim != "" {
			c.over(ch.claim)
		}
		c.mu.Lock()
		c.undone--
		c.mu.Unlock()
	}
}

// putOff lets a chore that failed come again after a while, with full jitter.
// Others go on meanwhile.
func (c *Client) putOff(ch *chore) {
	limit := min(20*time.Millisecond<<min(ch.tries, 6), time.Second)
	ch.tries++
	time.AfterFunc(time.Millisecond+rand.N(limit), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dueLocked(ch)
	})
}

// doChore reports whether the chore needs no further try. Its timeout begins when
// its first request is sent.
func (c *Client) doChore(ch *chore) bool {
	if ch.s.over() && !ch.outlives {
		return true
	}
	ctx, cancel := txn.WithSendTimer(c.io, c.store.timeout)
	defer cancel()
	err := ch.do(ctx)
	if err == nil || ch.s.gone(ctx, err, true) {
		return true
	}
	if !ch.told && c.io.Err() == nil && !errors.Is(err, errOthersFirst) {
		ch.told = true
		c.log.Warn("something is left to do in etcd and will be tried again", ch.s.fields(zap.String("what", ch.what), zap.Error(err))...)
	}
	return false
}
