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
// alone. Nothing ever waits for a timer, but for the one that frees those who
// wait behind round trips that hang.
type traffic struct {
	mu      sync.Mutex
	queue   []*rider
	flights []time.Time // when those under way took off
	hang    *time.Timer
	wg      sync.WaitGroup
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
	fewFlights  = 2    // round trips under way at once
	moreFlights = 4    // when the queue is long
	longQueue   = 1000 // riders
	// hanging is when a round trip counts no more: its endpoint hangs, and others
	// need not wait for its time-out.
	hanging = 250 * time.Millisecond
)

// do carries out one request. An error that matches ErrUnknown says that the
// request may have been carried out, or may be later; any other, that it was
// not and will not be.
func (s *store) do(ctx context.Context, r request) (*clientv3.TxnResponse, error) {
	if r.key == "" {
		return s.send(ctx, r)
	}
	s.mu.Lock()
	if len(s.queue) == 0 && s.room() {
		off := s.takeOff()
		s.mu.Unlock()
		defer s.landed(off)
		return s.send(ctx, r)
	}
	m := &rider{ctx: ctx, r: r, size: r.size(), done: make(chan struct{})}
	s.queue = append(s.queue, m)
	s.launch()
	s.mu.Unlock()
	select {
	case <-m.done:
		return m.resp, m.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	taken := m.taken
	m.taken = true // whoever comes across it leaves it out
	s.mu.Unlock()
	if !taken {
		return nil, contextError(ctx)
	}
	return nil, unknownError{contextError(ctx)}
}

// room reports whether one more round trip may begin.
func (s *store) room() bool {
	young := 0
	for _, off := range s.flights {
		if time.Since(off) < hanging {
			young++
		}
	}
	return young < fewFlights || young < moreFlights && len(s.queue) > longQueue
}

func (s *store) takeOff() time.Time {
	off := time.Now()
	s.flights = append(s.flights, off)
	return off
}

// landed ends a round trip and makes room for the next.
func (s *store) landed(off time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.flights {
		if f.Equal(off) {
			s.flights = append(s.flights[:i], s.flights[i+1:]...)
			break
		}
	}
	s.launch()
}

// launch sends what waits, as far as there is room; s.mu is held.
func (s *store) launch() {
	for len(s.queue) > 0 && s.room() && s.io.Err() == nil {
		riders := s.board()
		if len(riders) == 0 {
			break
		}
		off := s.takeOff()
		s.wg.Go(func() {
			defer s.landed(off)
			s.fly(riders)
		})
	}
	switch {
	case len(s.queue) == 0 || s.io.Err() != nil:
		if s.hang != nil {
			s.hang.Stop()
			s.hang = nil
		}
	case s.hang == nil:
		s.hang = time.AfterFunc(hanging, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.hang = nil
			s.launch()
		})
	}
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
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	defer context.AfterFunc(s.io, cancel)() // the client ends with its rider aboard
	m.resp, m.err = s.send(ctx, m.r)
	close(m.done)
}
