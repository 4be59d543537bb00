package etcdclaims

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// traffic lets requests share round trips. One that finds less than two under
// way goes at once; those that come meanwhile ride together in the next, each a
// nested transaction with a condition of its own, so that each succeeds or fails
// alone. Nothing ever waits for a timer: measured, that only made it slower.
type traffic struct {
	mu     sync.Mutex
	queue  []*rider
	flying int
	moved  time.Time // when one last took off from idle, or landed
	wg     sync.WaitGroup
}

// rider is a request that waits for a round trip.
type rider struct {
	ctx   context.Context
	r     request
	size  int
	taken bool
	done  chan struct{}
	resp  *clientv3.TxnResponse
	err   error
}

const (
	flights     = 2    // round trips under way at once
	moreFlights = 4    // when the queue is long
	longQueue   = 1000 // riders

	// A round trip that takes this long hangs at an endpoint: others need not
	// wait for its time-out. mostFlights bounds them.
	stalled     = 250 * time.Millisecond
	mostFlights = 64
)

// do carries out one request. An error that matches ErrUnknown says that the
// request may have been carried out, or may be later; any other, that it was
// not and will not be.
func (s *store) do(ctx context.Context, r request) (*clientv3.TxnResponse, error) {
	if r.key == "" {
		return s.send(ctx, r)
	}
	s.mu.Lock()
	if s.flying < flights && len(s.queue) == 0 || s.flying < mostFlights && time.Since(s.moved) > stalled {
		if s.flying == 0 {
			s.moved = time.Now()
		}
		s.flying++
		s.mu.Unlock()
		defer s.landed()
		return s.send(ctx, r)
	}
	m := &rider{ctx: ctx, r: r, size: r.size(), done: make(chan struct{})}
	s.queue = append(s.queue, m)
	s.mu.Unlock()
	select {
	case <-m.done:
		return m.resp, m.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	taken := m.taken
	if !taken {
		m.taken = true // whoever comes across it leaves it out
	}
	s.mu.Unlock()
	if !taken {
		return nil, contextError(ctx)
	}
	return nil, unknownError{contextError(ctx)}
}

// size is about what the request takes in bytes.
func (r request) size() int {
	n := 64
	for _, c := range r.cmps {
		n += len(c.KeyBytes()) + len(c.ValueBytes()) + 16
	}
	for _, ops := range [][]clientv3.Op{r.then, r.els} {
		for _, op := range ops {
			n += len(op.KeyBytes()) + len(op.ValueBytes()) + 32
		}
	}
	return n
}

// landed makes room for the next round trip.
func (s *store) landed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying--
	s.moved = time.Now()
	for len(s.queue) > 0 && (s.flying < flights || s.flying < moreFlights && len(s.queue) > longQueue) {
		riders := s.board()
		if len(riders) == 0 {
			return
		}
		s.flying++
		s.wg.Go(func() {
			defer s.landed()
			s.fly(riders)
		})
	}
}

// board takes from the queue what fits one round trip, no key twice: etcd judges
// the conditions of all before it carries any out.
func (s *store) board() []*rider {
	limit := int(s.opLimit.Load())
	var riders, left []*rider
	keys := make(map[string]bool, min(len(s.queue), limit))
	widest, size := 0, 0
	for i, m := range s.queue {
		if m.taken {
			continue
		}
		w := max(widest, m.r.width())
		if len(riders) > 0 && (len(riders)+1+w > limit || size+m.size > maxRequestBytes/2) {
			left = append(left, s.queue[i:]...)
			break
		}
		if keys[m.r.key] {
			left = append(left, m)
			continue
		}
		if m.ctx.Err() != nil {
			continue // it notices by itself
		}
		m.taken, keys[m.r.key] = true, true
		widest, size = w, size+m.size
		riders = append(riders, m)
	}
	s.queue = left
	return riders
}

// fly carries the riders.
func (s *store) fly(riders []*rider) {
	if len(riders) == 1 {
		s.alone(riders[0])
		return
	}
	rs := make([]request, len(riders))
	for i, m := range riders {
		rs[i] = m.r
	}
	resps, err := s.nested(s.io, rs)
	switch {
	case err == nil:
		for i, m := range riders {
			m.resp = resps[i]
			close(m.done)
		}
		return
	case errors.Is(err, ErrUnknown):
		for _, m := range riders {
			m.err = err
			close(m.done)
		}
		return
	case isTooManyOps(err):
		s.fewerOps()
	}
	// Refused as a whole, for what one of them is or wants: each by itself, so
	// that only that one sees the error.
	var wg sync.WaitGroup
	few := make(chan struct{}, 16)
	for _, m := range riders {
		few <- struct{}{}
		wg.Go(func() {
			s.alone(m)
			<-few
		})
	}
	wg.Wait()
}

func (s *store) alone(m *rider) {
	m.resp, m.err = s.send(m.ctx, m.r)
	close(m.done)
}
