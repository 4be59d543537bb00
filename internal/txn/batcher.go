package txn

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Config is what a Batcher needs to know.
type Config struct {
	// IO ends the batcher: requests that wait fail, and nothing is sent any more.
	IO context.Context
	// Send carries out a transaction in one round trip that takes at most timeout. Its
	// error is classified as that of Outcome.
	Send    func(ctx context.Context, in *pb.TxnRequest, timeout time.Duration) (*clientv3.TxnResponse, error)
	Timeout time.Duration // of one round trip

	EpochKey []byte
	VoidKey  func(ticket string) string // the key that voids the requests of a ticket

	// Also are operations of each round trip, behind those of its requests. A flat
	// batcher has none.
	Also []*pb.RequestOp

	// Ops and Bytes are the limits of etcd that are assumed at first. Limits, if not
	// nil, replaces them: batchers that use one server share it.
	Ops, Bytes int
	Limits     *Limits

	// Flat says that each request is one operation without conditions. Requests that
	// share a round trip are then operations of one transaction rather than nested
	// transactions, and Send adds the conditions that all have in common. A round trip
	// is cancelled once none of its callers waits.
	Flat bool
	// Trips is how many round trips are under way at once. Zero means as many as pay
	// for the calls that wait.
	Trips int
	// Gather has a caller yield the processor once before it sends a request. So requests of
	// goroutines that can run at the same moment share a round trip, also the first ones.
	Gather bool
	// OfAll reports whether the error of a shared round trip concerns all its requests
	// alike, so that none is sent again. Nil means those of a passing cause.
	OfAll func(err error) bool
}

// Batcher is group commit. A request that finds no round trip under way is sent at
// once. Requests that arrive meanwhile share the next one. Each succeeds or fails by
// itself; see group.
// No timer delays a request that a caller waits for. One timer frees requests that wait
// behind slow round trips, another sends those of Later.
type Batcher struct {
	cfg Config
	*Limits

	mu       sync.Mutex
	urgent   []*call      // requests that give up keys; they go before the others
	queue    []*call      // the other requests that wait
	delays   delays       // requests that wait for one of the others
	underWay []*roundTrip // sent, and not returned
	wake     *time.Timer  // looks whether a slow round trip keeps others waiting
	wakeAt   time.Time
	keys     map[string]Beside // keys of the batch being filled
	idle     []chan struct{}   // closed when nothing waits and nothing is under way
	wg       sync.WaitGroup
	timers   sync.Pool // of the calls that wait

	doubts    [2]Doubt // whether calls may be of joint groups, by urgency
	gathering bool     // a caller yields before it sends what waits
}

// roundTrip is one that is under way.
type roundTrip struct {
	sent  time.Time
	calls int
}

const (
	// Another round trip begins beside the first only if manyCalls wait for it, or if
	// the first carries one call or takes longer than slow. Many small round trips
	// cost client and server more than they save.
	manyCalls = 16
	slow      = 5 * time.Millisecond
	// Urgent calls wait no longer than this for a round trip to return.
	slowForUrgent = 25 * time.Millisecond

	fewTrips  = 2    // round trips under way at once
	moreTrips = 4    // the same, when the queue is long
	longQueue = 1000 // calls
)

// FullBatch is the largest number of requests that share a round trip. etcd does
// nothing else while it carries one out.
const FullBatch = 512

// Hanging is the age at which a round trip no longer keeps others from starting: its
// endpoint hangs, and others need not wait for its timeout.
const Hanging = 250 * time.Millisecond

// NewBatcher returns a batcher. Its user ends Config.IO, and then may call Wait.
func NewBatcher(cfg Config) *Batcher {
	if cfg.Limits == nil {
		cfg.Limits = NewLimits(cfg.Ops, cfg.Bytes, LeastOps, leastBytes)
	}
	if cfg.OfAll == nil {
		cfg.OfAll = IsTransient
	}
	return &Batcher{cfg: cfg, Limits: cfg.Limits, keys: make(map[string]Beside)}
}

// Wait waits until all round trips of several requests have returned. Config.IO has
// ended, so none begins any more.
func (b *Batcher) Wait() {
	b.mu.Lock()
	b.setWake()
	if b.delays.timer != nil {
		b.delays.timer.Stop()
	}
	b.mu.Unlock()
	b.wg.Wait()
}

// Idle waits until no request waits or is under way, or ctx ends. Requests without a key do
// not count.
func (b *Batcher) Idle(ctx context.Context) {
	b.mu.Lock()
	if b.rests() {
		b.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	b.idle = append(b.idle, idle)
	b.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// rests reports whether nothing waits and nothing is under way; b.mu is held.
func (b *Batcher) rests() bool { return len(b.urgent)+len(b.queue)+len(b.underWay) == 0 }

// Do carries out one request. If the error matches ErrUnknown, the request may have
// been carried out, or may still be. After another error it was not and will not be.
func (b *Batcher) Do(ctx context.Context, r Request) (*clientv3.TxnResponse, error) {
	if r.Key == "" {
		r.Crowd.Leave()
		if err := b.afterDelayed(ctx, &r); err != nil {
			return nil, err
		}
		return b.Send(ctx, r)
	}
	b.mu.Lock()
	waiting := len(b.urgent) + len(b.queue) + len(b.delays.waiting)
	if waiting == 0 && r.Crowd == nil && !b.cfg.Gather && b.delays.before(&r) == nil {
		if all, urgent := b.room(1); all || urgent && r.Urgent {
			trip := b.begin(1)
			b.mu.Unlock()
			defer b.returned(trip)
			r.depart()
			return b.Send(ctx, r)
		}
	}
	b.mu.Unlock()
	c := newCall(ctx, r) // before the lock is taken, and on the caller's goroutine
	if !r.Crowd.arrive(b, c) {
		b.enqueue([]*call{c})
	}
	return b.await(c)
}

// Each carries out up to n requests that are independent of each other. next makes
// them one after the other, until it returns false. done is called with the outcome
// of each, in the same order. Each returns how many requests were made. It never
// enqueues so many at once that the requests of others would wait long behind them.
func (b *Batcher) Each(ctx context.Context, n int, next func(i int) (Request, bool),
	done func(i int, resp *clientv3.TxnResponse, err error),
) (made int) {
	const some = 128 // enqueued together, so that the first are sent soon
	var calls []*call
	queued := 0
	for i := 0; i < n; i++ {
		if made-i <= FullBatch {
			for made < min(n, i+longQueue) {
				r, ok := next(made)
				if !ok {
					n = made
					break
				}
				calls = append(calls, newCall(ctx, r))
				if made++; made-queued == some {
					b.enqueue(calls[len(calls)-some:])
					queued = made
				}
			}
			b.enqueue(calls[len(calls)-(made-queued):])
			queued = made
		}
		if i == n {
			break
		}
		resp, err := b.await(calls[0])
		calls = calls[1:]
		done(i, resp, err)
	}
	return made
}

func (b *Batcher) enqueue(calls []*call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range calls {
		if c.Urgent {
			b.urgent = append(b.urgent, c)
		} else {
			b.queue = append(b.queue, c)
		}
	}
	b.hurry()
	if b.cfg.Gather && !b.gathering {
		b.gathering = true
		b.mu.Unlock()
		runtime.Gosched()
		b.mu.Lock()
		b.gathering = false
	}
	b.launch()
}

// room reports whether another round trip may begin for so many waiting calls, and
// whether one may begin for urgent calls only. Urgent calls wait less long for a
// round trip to return.
func (b *Batcher) room(waiting int) (all, urgent bool) {
	if b.cfg.Trips > 0 {
		all = len(b.underWay) < b.cfg.Trips
		return all, all
	}
	young, calls, returning := 0, 0, false
	now := clock.Mono()
	for _, trip := range b.underWay {
		switch age := now.Sub(trip.sent); {
		case age >= Hanging:
			continue
		case age < slow:
			calls += trip.calls
			fallthrough
		case age < slowForUrgent:
			returning = true
		}
		young++
	}
	switch {
	case young == 0:
		all = true
	case young < fewTrips:
		all = waiting >= manyCalls || calls <= 1
	default:
		all = young < moreTrips && waiting > longQueue
	}
	return all, all || !returning && young <= moreTrips
}

// begin notes a round trip that begins now; b.mu is held.
func (b *Batcher) begin(calls int) *roundTrip {
	trip := &roundTrip{sent: clock.Mono(), calls: calls}
	b.underWay = append(b.underWay, trip)
	return trip
}

// returned ends a round trip of calls, and starts the next ones that have room.
func (b *Batcher) returned(trip *roundTrip, calls ...*call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.delays.settled(calls)
	if i := slices.Index(b.underWay, trip); i >= 0 {
		b.underWay = slices.Delete(b.underWay, i, i+1)
	}
	b.launch()
	if b.rests() {
		for _, idle := range b.idle {
			close(idle)
		}
		b.idle = nil
	}
}

// launch sends the calls that wait, as far as there is room; b.mu is held.
func (b *Batcher) launch() {
	for !b.gathering && b.cfg.IO.Err() == nil {
		waiting := len(b.urgent) + len(b.queue)
		if waiting == 0 {
			break
		}
		all, urgent := b.room(waiting)
		if !all && (!urgent || len(b.urgent) == 0) {
			break
		}
		calls := b.fill(all)
		if len(calls) == 0 {
			break
		}
		trip := b.begin(len(calls))
		b.wg.Go(func() {
			defer b.returned(trip, calls...)
			b.commit(calls)
			runtime.Gosched() // callers that go on at once take part in the next round trip
		})
	}
	b.setWake()
}

// setWake sets the timer for the moment at which a round trip under way becomes too
// slow to wait for; b.mu is held.
func (b *Batcher) setWake() {
	if len(b.urgent)+len(b.queue) == 0 || b.cfg.Trips > 0 || b.cfg.IO.Err() != nil {
		if b.wake != nil {
			b.wake.Stop()
			b.wake = nil
		}
		return
	}
	after := Hanging
	switch {
	case len(b.underWay) == 1:
		after = slow
	case len(b.urgent) > 0:
		after = slowForUrgent
	}
	if at := clock.Mono().Add(after); b.wake == nil {
		b.wakeAt = at
		b.wake = time.AfterFunc(after, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.wake = nil
			b.launch()
		})
	} else if at.Before(b.wakeAt) && b.wake.Reset(after) {
		b.wakeAt = at
	}
}
