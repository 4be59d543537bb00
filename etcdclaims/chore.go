package etcdclaims

import (
	"context"
	"errors"
	"time"

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
}

// errOthersFirst puts a chore off until the others of its session are done.
var errOthersFirst = errors.New("etcdclaims: other chores come first")

// chore adds a chore; one goroutine works on all, while there are any.
func (c *Client) chore(s *session, what string, do func(context.Context) error) {
	c.addChore(&chore{s: s, what: what, do: do})
}

func (c *Client) addChore(ch *chore) {
	if ch.claim != "" {
		c.begun(ch.claim)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ch.s.pending.Add(1)
	c.chores = append(c.chores, ch)
	if !c.doing && c.io.Err() == nil {
		c.doing = true
		c.spawn(c.doChores)
	}
}

func (c *Client) doChores() {
	for try := 0; ; {
		c.mu.Lock()
		todo := c.chores
		c.chores = nil
		if len(todo) == 0 || c.io.Err() != nil {
			c.doing = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		failed := todo[:0]
		for _, ch := range todo {
			if c.doChore(ch) {
				ch.s.pending.Add(-1)
				if ch.claim != "" {
					c.over(ch.claim)
				}
			} else {
				failed = append(failed, ch)
			}
		}
		if len(failed) == 0 {
			try = 0
			continue
		}
		c.mu.Lock()
		c.chores = append(failed, c.chores...)
		c.mu.Unlock()
		backOff(c.io, try)
		try++
	}
}

// doChore reports whether the chore needs no further try.
func (c *Client) doChore(ch *chore) bool {
	if ch.s.over() && !ch.outlives {
		return true
	}
	ctx, cancel := context.WithTimeout(c.io, c.store.timeout)
	defer cancel()
	err := ch.do(ctx)
	if err == nil || ch.s.gone(ctx, err, true) {
		return true
	}
	if !ch.told && !errors.Is(err, context.Canceled) && !errors.Is(err, errOthersFirst) {
		ch.told = true
		c.log.Warn("something is left to do in etcd and will be tried again", ch.s.fields(zap.String("what", ch.what), zap.Error(err))...)
	}
	return false
}

// choresDone waits until no chores are left, or ctx ends.
func (c *Client) choresDone(ctx context.Context) {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		c.mu.Lock()
		busy := c.doing
		c.mu.Unlock()
		if !busy {
			return
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
