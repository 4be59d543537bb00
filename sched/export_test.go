package sched

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
)

// Waiting is where ticks are that wait to be begun.
func Waiting(prefix, group string) string { return tick.NewKeys(prefix, group).Readies() }

// Asks is where requests are left for the owner.
func Asks(prefix, group string) string { return tick.NewKeys(prefix, group).Asks() }

// Postponed returns how many claims are remembered to be tried again, of one that
// nothing waits for any more.
func (s *Scheduler) Postponed(ctx context.Context) int {
	b := newStarter(&runner{group: s.group, catalog: s.catalog, handlers: ctx}, nil)
	defer b.close()
	w := &waiter{Waiting: tick.Waiting{Ready: ready{Job: "a", ID: "1", Parallel: true}, Key: s.keys.Ready("a", "1"), Rev: 1}}
	b.lanes.Add(tick.RunClaim(s.cfg.Group, "a", "1", false), w)
	l := b.lanes.Of(tick.RunClaim(s.cfg.Group, "a", "1", false))
	l.At = time.Now().Add(time.Hour)
	b.lanes.Place(l)
	b.lanes.Remove(w.Key)
	return b.lanes.Len()
}

// Remembered returns how many jobs this process remembers, other than those that it has.
func (s *Scheduler) Remembered() int {
	c := s.catalog
	c.mu.Lock()
	defer c.mu.Unlock()
	n := s.histories.Len() + len(c.followers) + len(c.icals.known)
	for reader := range c.readers {
		n += len(reader.names)
	}
	return n
}

// WaitAfter returns how long a tick waits after the given number of retries.
func (r Retry) WaitAfter(retries int) time.Duration { return r.wait(retries) }
