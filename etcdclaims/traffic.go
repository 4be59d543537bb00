package etcdclaims

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/wire"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// traffic lets requests share round trips. One that finds none under way goes at
// once; those that come meanwhile ride together in the next, each a nested
// transaction with a condition of its own, so that each succeeds or fails alone.
// Nothing ever waits for a timer, but for the one that frees those who wait behind
// round trips that take long.
type traffic struct {
	mu      sync.Mutex
	first   []*rider  // what gives keys up, which goes before what asks for them
	queue   []*rider  // all else that waits
	flights []*flight // under way
	hang    *time.Timer
	wake    time.Time       // when hang goes off
	aboard  map[string]bool // keys of the flight that is boarding, and whether all that it does with one is take back
	wg      sync.WaitGroup
	timers  sync.Pool // of those who wait
}

// rider is a request that waits for a round trip.
type rider struct {
	request
	ctx    context.Context
	meta   outgoing
	wait   *sendTimer // begins when it is on its way, or nil
	own    string     // ticket, when it goes by itself
	width  int
	size   int
	lease  int64
	aboard bool // it is on its way
	left   bool // its caller does not wait for it any more
	done   chan struct{}
	resp   *clientv3.TxnResponse
	err    error
}

func newRider(ctx context.Context, r request) *rider {
	r.built = r.proto()
	m := &rider{request: r, ctx: ctx, meta: outgoingOf(ctx), done: make(chan struct{})}
	if m.urgent {
		m.wait = sendTimerOf(ctx)
	}
	if m.ticket != nil {
		m.own = *m.ticket
	}
	m.width, m.size, m.lease = width(m.built)+shared(m), size(m.built), leaseOf(m.built)
	if m.void != nil {
		m.lease = oneLease(m.lease, int64(m.void.lease))
	}
	return m
}

// shared is how many conditions the rider has beside those of its transaction.
func shared(m *rider) (n int) {
	if m.ticket != nil {
		n++
	}
	if m.epoch != nil {
		n++
	}
	return n
}

// flight is a round trip under way.
type flight struct {
	off    time.Time
	riders int
}

const (
	// A second round trip begins beside the first if enough wait for it, or if the
	// first carries one alone or takes long: many small ones cost both sides more
	// than they save.
	enough = 16
	long   = 5 * time.Millisecond
	// What gives keys up waits no longer than that for one under way to return.
	tooLong = 25 * time.Millisecond

	fewFlights  = 2    // round trips under way at once
	moreFlights = 4    // when the queue is long
	longQueue   = 1000 // riders
	// fullFlight is how many riders share a round trip at most: etcd carries
	// nothing else out meanwhile.
	fullFlight = 512
	// hanging is when a round trip counts no more: its endpoint hangs, and others
	// need not wait for its time-out.
	hanging = 250 * time.Millisecond
)

// do carries out one request. An error that matches ErrUnknown says that the
// request may have been carried out, or may be later; any other, that it was
// not and will not be.
func (s *store) do(ctx context.Context, r request) (*clientv3.TxnResponse, error) {
	if r.key == "" {
		sendTimerOf(ctx).begin()
		return s.send(ctx, r)
	}
	s.mu.Lock()
	if len(s.first)+len(s.queue) == 0 {
		if all, first := s.room(1); all || first && r.urgent {
			f := s.takeOff(1)
			s.mu.Unlock()
			defer s.landed(f)
			if r.urgent {
				sendTimerOf(ctx).begin()
			}
			r.departs()
			return s.send(ctx, r)
		}
	}
	s.mu.Unlock()
	m := newRider(ctx, r) // without the lock, and not by whoever carries it
	s.wait([]*rider{m})
	return s.ride(m)
}

// each carries out up to n requests that are independent of each other, made by
// next one after the other until that says no, and tells done of the outcome of
// each, in the same order. It returns how many were made. It never lets so many
// wait that others would wait for long behind them.
func (s *store) each(ctx context.Context, n int, next func(i int) (request, bool), done func(i int, resp *clientv3.TxnResponse, err error)) (made int) {
	const some = 128 // go to the queue together, so that the first go soon
	var riders []*rider
	sent := 0
	for i := 0; i < n; i++ {
		if made-i <= fullFlight {
			for made < min(n, i+longQueue) {
				r, ok := next(made)
				if !ok {
					n = made
					break
				}
				riders = append(riders, newRider(ctx, r))
				if made++; made-sent == some {
					s.wait(riders[len(riders)-some:])
					sent = made
				}
			}
			s.wait(riders[len(riders)-(made-sent):])
			sent = made
		}
		if i == n {
			break
		}
		resp, err := s.ride(riders[0])
		riders = riders[1:]
		done(i, resp, err)
	}
	return made
}

// wait puts riders into the queue.
func (s *store) wait(riders []*rider) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range riders {
		if m.urgent {
			s.first = append(s.first, m)
		} else {
			s.queue = append(s.queue, m)
		}
	}
	s.launch()
}

// ride waits for the rider's round trip, or the end of its context or its time.
func (s *store) ride(m *rider) (*clientv3.TxnResponse, error) {
	var late <-chan time.Time
	if !m.until.IsZero() {
		t := s.timer(time.Until(m.until))
		defer s.timers.Put(t)
		defer t.Stop()
		late = t.C
	}
	var why error
	select {
	case <-m.done:
		return m.resp, m.err
	case <-m.ctx.Done():
	case <-late:
		why = wire.ErrNoAnswer
	case <-s.io.Done(): // nothing takes off any more
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-m.done: // at the same moment
		return m.resp, m.err
	default:
	}
	m.left = true // whoever comes across it leaves it out
	if why == nil {
		why = wire.ContextError(m.ctx)
	}
	if why == nil {
		why = wire.ContextError(s.io)
	}
	if !m.aboard {
		return nil, why
	}
	return nil, unknownError{why}
}

// timer returns a timer, to be stopped and put back.
func (s *store) timer(d time.Duration) *time.Timer {
	if t, ok := s.timers.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

// room reports whether one more round trip may begin, for so many who wait, and
// whether one may for those alone that give keys up: they wait less long for what
// is under way to return.
func (s *store) room(waiting int) (all, first bool) {
	young, aboard, returning := 0, 0, false
	now := time.Now()
	for _, f := range s.flights {
		switch age := now.Sub(f.off); {
		case age >= hanging:
			continue
		case age < long:
			aboard += f.riders
			fallthrough
		case age < tooLong:
			returning = true
		}
		young++
	}
	switch {
	case young == 0:
		all = true
	case young < fewFlights:
		all = waiting >= enough || aboard <= 1
	default:
		all = young < moreFlights && waiting > longQueue
	}
	return all, all || !returning && young <= moreFlights
}

func (s *store) takeOff(riders int) *flight {
	f := &flight{off: time.Now(), riders: riders}
	s.flights = append(s.flights, f)
	return f
}

// landed ends a round trip and makes room for the next.
func (s *store) landed(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.flights, f); i >= 0 {
		s.flights = slices.Delete(s.flights, i, i+1)
	}
	s.launch()
}

// launch sends what waits, as far as there is room; s.mu is held.
func (s *store) launch() {
	for s.io.Err() == nil {
		waiting := len(s.first) + len(s.queue)
		if waiting == 0 {
			break
		}
		all, first := s.room(waiting)
		if !all && (!first || len(s.first) == 0) {
			break
		}
		riders := s.board(all)
		if len(riders) == 0 {
			break
		}
		f := s.takeOff(len(riders))
		s.wg.Go(func() {
			defer s.landed(f)
			s.fly(riders)
			runtime.Gosched() // whoever has arrived and goes on at once takes part in the next
		})
	}
	if len(s.first)+len(s.queue) == 0 || s.io.Err() != nil {
		if s.hang != nil {
			s.hang.Stop()
			s.hang = nil
		}
		return
	}
	wake := hanging
	switch {
	case len(s.flights) == 1:
		wake = long
	case len(s.first) > 0:
		wake = tooLong
	}
	if at := time.Now().Add(wake); s.hang == nil {
		s.wake = at
		s.hang = time.AfterFunc(wake, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.hang = nil
			s.launch()
		})
	} else if at.Before(s.wake) && s.hang.Reset(wake) {
		s.wake = at
	}
}

// sendTimer ends a context a while after the first request made with it has left, of
// those that do not ask for keys: the time that it waited does not count.
type sendTimer struct {
	after time.Duration
	end   context.CancelCauseFunc
	once  sync.Once
	timer *time.Timer
}

type sendTimerKey struct{}

// withSendTimer returns a context that ends so long after a request was sent.
func withSendTimer(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	p := &sendTimer{after: after}
	ctx, p.end = context.WithCancelCause(context.WithValue(ctx, sendTimerKey{}, p))
	return ctx, func() {
		p.once.Do(func() {}) // from now on it does not begin
		if p.timer != nil {
			p.timer.Stop()
		}
		p.end(nil)
	}
}

// sendTimerOf returns the sendTimer of a context, nil if it has none.
func sendTimerOf(ctx context.Context) *sendTimer {
	p, _ := ctx.Value(sendTimerKey{}).(*sendTimer)
	return p
}

func (p *sendTimer) begin() {
	if p == nil {
		return
	}
	p.once.Do(func() {
		p.timer = time.AfterFunc(p.after, func() { p.end(context.DeadlineExceeded) })
	})
}
