package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/clock"
)

const (
	remembered = time.Minute // is how long the end of a lease is known, for requests that are repeated
	maxEndings = 32 << 10    // that are known at the same time
)

// A holding is what a lease is of: a claim, or an item of a queue.
type holding interface {
	Token() fencing.Token
	Err() error
	Done() <-chan struct{}
	check() error                                // that it is held now
	left() time.Duration                         // in etcd, unless it is renewed
	giveUp(ctx context.Context, why error) error // its program is gone
	leave()                                      // nothing more is done with it
}

// A lease is what one program holds. What no mutex guards does not change once it is settled.
type lease struct {
	name    string // by which leases know it
	id      string // by which its program knows it
	request any    // what was asked for; comparable
	ttl     time.Duration

	settled   chan struct{} // closed when it is held or has failed
	failed    error         // why it was not acquired
	abandoned bool          // because the request that acquired it was
	is        holding

	turn chan struct{} // capacity 1: full while a request ends the lease
	done chan struct{} // closed when over is set

	heard clock.Reading // the last sign of life that prolonged it; guarded by leases.mu
	alive bool          // a later one came while the server stopped; guarded by leases.mu
	over  error         // why it has ended; guarded by leases.mu
}

// gone is the end of a lease whose program did not end it.
type gone string

func (g gone) Error() string { return string(g) }

const (
	errSilent  gone = "no heartbeat came within its ttl"
	errClosed  gone = "its watch was closed"
	errStopped gone = "claimctl serve was stopped"
	errUnread  gone = "its request was closed before the answer"
)

// ended is the end of a lease by a request of its program.
type ended struct {
	verb   string
	answer any
}

func (e *ended) Error() string { return fmt.Sprintf("it was ended before, by %s", e.verb) }

// leases are all that programs hold, and those that have ended a short time ago.
type leases struct {
	clock clock.Clock
	most  int // held at the same time
	log   func(l *lease, why error)

	stopping chan struct{}   // closed: nothing is granted or prolonged any more
	forced   context.Context // ended: all ends now
	force    context.CancelFunc
	watching sync.WaitGroup // leases, from before they are acquired until they are given up

	mu      sync.Mutex
	held    int // or being acquired
	all     map[string]*lease
	endings []ending // oldest first
	stopped bool
}

type ending struct {
	*lease
	at clock.Reading
}

func newLeases(of clock.Clock, most int, log func(*lease, error)) *leases {
	t := &leases{clock: of, most: most, log: log, stopping: make(chan struct{}), all: map[string]*lease{}}
	t.forced, t.force = context.WithCancel(context.Background())
	return t
}

// reserve makes room for n leases. The caller adds each or frees it.
func (t *leases) reserve(n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reserveLocked(n)
}

func (t *leases) reserveLocked(n int) error {
	switch {
	case t.stopped:
		return refused{stopping, "Nothing was acquired."}
	case t.held+n > t.most:
		return refused{limit, fmt.Sprintf("%d claims and items are held; --max-held is %d.", t.held, t.most)}
	}
	t.held += n
	t.watching.Add(n)
	return nil
}

// free gives room back that was reserved.
func (t *leases) free(n int) {
	t.mu.Lock()
	t.held -= n
	t.mu.Unlock()
	t.watching.Add(-n)
}

// begin returns the lease of the name. first is set if the caller must acquire it, and
// then grant or fail it.
func (t *leases) begin(name, id string, request any, ttl time.Duration) (l *lease, first bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	if l := t.all[name]; l != nil {
		if l.request != request {
			return nil, false, refused{idConflict, "The id is that of a claim with another key, note, ttl or mode."}
		}
		return l, false, nil
	}
	if err := t.reserveLocked(1); err != nil {
		return nil, false, err
	}
	l = newLease(name, id, request, ttl)
	t.all[name] = l
	return l, true, nil
}

func newLease(name, id string, request any, ttl time.Duration) *lease {
	return &lease{
		name:    name,
		id:      id,
		request: request,
		ttl:     ttl,
		settled: make(chan struct{}),
		turn:    make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
}

// fail ends the acquiring of a lease.
func (t *leases) fail(l *lease, err error, abandoned bool) {
	t.mu.Lock()
	delete(t.all, l.name)
	t.mu.Unlock()
	t.free(1)
	l.failed, l.abandoned = err, abandoned
	close(l.settled)
}

// grant begins a lease, for which there is room.
func (t *leases) grant(l *lease, is holding) {
	l.is = is
	t.mu.Lock()
	l.heard = t.clock.Now()
	t.all[l.name] = l
	t.mu.Unlock()
	close(l.settled)
	go t.watch(l)
}

// find returns the lease of a name.
func (t *leases) find(name string) (*lease, error) {
	t.mu.Lock()
	l := t.all[name]
	t.mu.Unlock()
	if l == nil {
		return nil, refused{notFound, "There is no such lease: it ended more than a minute ago, or never began."}
	}
	select {
	case <-l.settled:
		return l, l.failed
	default:
		return nil, refused{notFound, "It is still being acquired."}
	}
}

// check returns why a lease is over, or nil.
func (t *leases) check(l *lease) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.checkLocked(l)
}

func (t *leases) checkLocked(l *lease) error {
	if l.over == nil && t.silentIn(l) <= 0 {
		why := errSilent
		if l.alive {
			why = errStopped
		}
		t.endLocked(l, why)
	}
	return l.over
}

// silentIn returns how long the program may still be silent.
func (t *leases) silentIn(l *lease) time.Duration {
	silent, _ := t.clock.Now().Since(l.heard)
	return l.ttl - silent
}

// heartbeat notes that the program lives, unless the server stops.
func (t *leases) heartbeat(l *lease) error {
	t.mu.Lock()
	err := t.checkLocked(l)
	switch {
	case err != nil:
	case t.stopped:
		l.alive = true
	default:
		l.heard = t.clock.Now()
	}
	t.mu.Unlock()
	return cmp.Or(err, l.is.check())
}

// remaining returns how long a lease lasts from now on, without another heartbeat.
func (t *leases) remaining(l *lease) time.Duration {
	left := l.is.left()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.checkLocked(l) != nil {
		return 0
	}
	return max(min(left, t.silentIn(l)), 0)
}

// end ends a lease, unless it has ended before.
func (t *leases) end(l *lease, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked(l, why)
}

func (t *leases) endLocked(l *lease, why error) {
	if l.over != nil {
		return
	}
	l.over = why
	t.held--
	t.endings = append(t.endings, ending{l, t.clock.Now()})
	t.forget()
	close(l.done)
}

// forget drops the oldest ends.
func (t *leases) forget() {
	now := t.clock.Now()
	for len(t.endings) > 0 {
		oldest := t.endings[0]
		if age, _ := now.Since(oldest.at); age < remembered && len(t.endings) <= maxEndings {
			return
		}
		t.endings = t.endings[1:]
		delete(t.all, oldest.name)
	}
}

// finish ends a lease by a request of its program. A request that is repeated has the same answer.
func (t *leases) finish(ctx context.Context, l *lease, verb string, f func(context.Context) (any, error)) (any, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("another request for the lease is under way: %w", context.Cause(ctx))
	}
	if err := t.check(l); err != nil {
		var before *ended
		if errors.As(err, &before) && before.verb == verb {
			return before.answer, nil
		}
		return nil, err
	}
	answer, err := f(ctx)
	switch {
	case err == nil:
		t.end(l, &ended{verb, answer})
	case errors.Is(err, etcdclaims.ErrUnknown):
	case errors.Is(err, etcdclaims.ErrLost), errors.Is(err, etcdclaims.ErrReleased):
		t.end(l, err)
	}
	return answer, err
}

// watch ends a lease whose program is silent, and gives up what nobody holds any more.
func (t *leases) watch(l *lease) {
	defer t.watching.Done()
	defer l.is.leave()
	timer := time.NewTimer(l.ttl)
	defer timer.Stop()
	for !l.isOver() {
		select {
		case <-l.done:
		case <-l.is.Done():
			l.turn <- struct{}{} // a request that has ended it notes its answer first
			t.end(l, l.is.Err())
			<-l.turn
		case <-t.forced.Done():
			t.end(l, errStopped)
		case <-timer.C:
			_ = t.check(l) // the timer stood still while the machine slept
			t.mu.Lock()
			timer.Reset(max(t.silentIn(l), time.Millisecond))
			t.mu.Unlock()
		}
	}
	t.mu.Lock()
	why := l.over
	t.mu.Unlock()
	var without gone
	switch {
	case errors.As(why, &without):
		t.log(l, why)
		t.abandon(l, without)
	case errors.Is(why, etcdclaims.ErrLost):
		t.log(l, why)
	}
}

func (l *lease) isOver() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// abandon gives a lease up in etcd, until that is done, the lease is lost there, or the server stops.
func (t *leases) abandon(l *lease, why gone) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), requestTime)
		err := l.is.giveUp(ctx, why)
		cancel()
		if err == nil || errors.Is(err, etcdclaims.ErrLost) || errors.Is(err, etcdclaims.ErrReleased) {
			return
		}
		select {
		case <-l.is.Done():
			return
		case <-t.stopping: // the client gives it back when it is closed
			return
		case <-time.After(time.Second):
		}
	}
}

// stop grants and prolongs nothing any more, and returns when all leases have ended. When
// ctx ends it ends them.
func (t *leases) stop(ctx context.Context) {
	t.mu.Lock()
	if !t.stopped {
		t.stopped = true
		close(t.stopping)
	}
	t.mu.Unlock()
	defer context.AfterFunc(ctx, t.force)()
	t.watching.Wait()
}
