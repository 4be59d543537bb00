package main

import (
	"context"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
)

const (
	stallEvery = 10 * time.Millisecond // how often this program looks whether it runs
	stallLeast = 50 * time.Millisecond // less is no stall: every busy machine is that late
)

// stalls are the times in which this program was to run and did not. Its news of etcd
// come later by as much, whatever the claims do.
type stalls struct {
	mu  sync.Mutex
	all []stall
}

type stall struct{ from, to time.Time }

// watch notes stalls until ctx ends.
func (s *stalls) watch(ctx context.Context) {
	for due := time.Now(); ctx.Err() == nil; {
		due = due.Add(stallEvery)
		retry.Sleep(ctx, time.Until(due))
		now := time.Now()
		s.note(due, now)
		due = now
	}
}

// note records that the program ran later than it was due, if that was a stall.
func (s *stalls) note(due, ran time.Time) {
	if ran.Sub(due) < stallLeast {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, stall{due, ran})
}

// within returns how much of a time was stalls.
func (s *stalls) within(from, to time.Time) (sum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		begin, end := one.from, one.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		sum += max(0, end.Sub(begin))
	}
	return sum
}
