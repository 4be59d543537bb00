package main

import (
	"context"
	"slices"
	"sync"
	"time"
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
	tick := time.NewTicker(stallEvery)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		s.note(last.Add(stallEvery), now)
		last = now
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
	for _, one := range slices.Backward(s.all) {
		if !one.to.After(from) {
			break // so were all before it
		}
		if one.from.Before(from) {
			one.from = from
		}
		if one.to.After(to) {
			one.to = to
		}
		sum += max(0, one.to.Sub(one.from))
	}
	return sum
}
