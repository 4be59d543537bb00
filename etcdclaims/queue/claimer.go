package queue

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/retry"
)

// claimer claims for all callers of a Queue, so that they do not fight each other:
// those that come while a request is under way share the next one.
type claimer struct {
	q       *holder
	keeping *atomic.Bool  // this process is the keeper
	beside  []func()      // what runs beside the claimer, once a caller wants items
	wake    chan struct{} // capacity 1

	mu        sync.Mutex
	wants     []*want // in the order in which they came
	running   bool
	listening bool

	arrivals arrivals
	idle     idle  // the claimer's goroutine only
	window   int   // how many items to pick from; the claimer's goroutine only
	misses   int   // claims in a row that got nothing
	near     reach // of lookNear; the claimer's goroutine only

	looked bool // this process has looked for what dead workers left; the claimer's goroutine only
}

func (c *claimer) init(q *holder, keeping *atomic.Bool, beside ...func()) {
	c.q, c.keeping, c.beside, c.wake, c.window = q, keeping, beside, make(chan struct{}, 1), 1
	c.arrivals.init(q.store)
}

// ask has the caller answered, in turn.
func (c *claimer) ask(w *want) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.q.closed(); err != nil {
		return err
	}
	if !c.begin() { // it was closed just now
		return errClosed
	}
	c.wants = append(c.wants, w)
	if !c.listening {
		c.listening = true
		for _, run := range c.beside {
			c.q.spawn(run)
		}
	}
	c.stir()
	return nil
}

// begin starts the claimer's goroutine if it does not run. It returns false if it cannot:
// nobody would answer those who wait.
func (c *claimer) begin() (runs bool) {
	c.running = c.running || c.q.spawn(c.run)
	return c.running
}

// tidy gives doubtful items back, also in a process that does not claim.
func (c *claimer) tidy() {
	c.mu.Lock()
	c.begin()
	c.mu.Unlock()
	c.stir()
}

// leave takes back what a caller asked for. It returns false if it was answered.
func (c *claimer) leave(w *want) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := !w.over
	w.over = true // and it is dropped with the next answers
	return left
}

// dropOver drops those who were answered, or have left, all at once: there may be
// thousands.
func (c *claimer) dropOver() {
	c.wants = slices.DeleteFunc(c.wants, func(w *want) bool { return w.over })
}

// stir makes the claimer look again.
func (c *claimer) stir() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run is the claimer's goroutine.
func (c *claimer) run() {
	q := c.q
	for try := 0; ; {
		waiting, err := c.round()
		wait := time.Duration(math.MaxInt64)
		switch {
		case err != nil:
			wait = retry.Delay(try)
			try++
		case waiting:
			wait, try = max(time.Until(c.arrivals.next()), 0), 0
		default:
			wait, try = c.idle.leave(), 0
		}
		select {
		case <-c.wake:
		case <-time.After(wait):
		case <-q.ctx.Done():
			c.refuse(errClosed)
			return
		}
	}
}

// take returns the callers that want items for the same duration as the first, how many
// items they want, and whether none of them needs a read. They stay in the list until
// they are answered.
func (c *claimer) take() (wants []*want, n int, wait bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropOver()
	wait = true
	for _, w := range c.wants {
		if w.ttl == c.wants[0].ttl {
			wants = append(wants, w)
			n += w.n
			wait = wait && (w.wait || w.known)
		}
	}
	return wants, min(n, c.q.size.items(opsToClaim)), wait
}

// refuse ends all that wait.
func (c *claimer) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropOver()
	for _, w := range c.wants {
		w.tell(reply{err: err})
	}
	c.wants = nil
}

// round claims until no caller wants more, or no item is visible. It returns whether a
// caller waits, and an error if a part has to be tried again. First it gives back items
// that this process took without knowing, whether or not a caller wants items.
func (c *claimer) round() (waiting bool, failed error) {
	seen := map[time.Duration]bool{} // durations that found nothing in this round
	lost := 0                        // sessions in a row
	failed = c.q.sessions.reconcile(c.q.ctx)
	for {
		wants, n, wait := c.take()
		if len(wants) == 0 {
			return waiting, failed
		}
		ttl := wants[0].ttl
		s, err := c.q.sessions.get(c.q.ctx, ttl)
		var b Batch
		var more bool
		if err == nil {
			b, more, err = c.claimSome(s, n, wait)
			revoked := errors.Is(err, etcdclaims.ErrLost) && !errors.Is(err, etcdclaims.ErrUnknown)
			if revoked && lost < mostRevoked && retry.Pause(c.q.ctx, lost) {
				lost++
				continue
			}
			lost = 0
		}
		if err != nil {
			c.answerFailed(wants, err)
			if failed = err; c.rotate(ttl, seen) {
				continue
			}
			return true, failed
		}
		if more && len(b.Deliveries) == 0 {
			continue // others were faster, or the session's generation is another: no caller gets an empty batch for that
		}
		waiting = c.answer(wants, b, more)
		if more {
			continue
		}
		if waiting {
			c.arrivals.join(s.id)
			c.idle.enter(s)
		}
		if c.rotate(ttl, seen) {
			continue
		}
		return c.waits(), failed
	}
}

// waits reports whether a caller waits.
func (c *claimer) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropOver()
	return len(c.wants) > 0
}

// rotate puts those that wait with this duration behind the others. It returns false
// if there are no others that were not served in this round.
func (c *claimer) rotate(ttl time.Duration, seen map[time.Duration]bool) bool {
	seen[ttl] = true
	c.mu.Lock()
	defer c.mu.Unlock()
	var same, others []*want
	other := false
	for _, w := range c.wants {
		if w.ttl == ttl {
			same = append(same, w)
		} else {
			others = append(others, w)
			other = other || !seen[w.ttl]
		}
	}
	c.wants = append(others, same...)
	return other && !seen[c.wants[0].ttl]
}

// answer gives the leases to those who want them, in turn, and reports whether one of
// them still waits. If there are more items, the next request claims for those that got none.
// Items that no caller wants any more are given back.
func (c *claimer) answer(wants []*want, b Batch, more bool) (waiting bool) {
	left := b.Deliveries
	c.mu.Lock()
	for _, w := range wants {
		if w.over {
			continue // it left
		}
		mine := Batch{Taken: b.Taken, Next: b.Next, Paused: b.Paused}
		if w.n == 0 && b.visible {
			w.tell(reply{batch: mine})
			continue
		}
		k := min(w.n, len(left))
		mine.Deliveries, left = left[:k:k], left[k:]
		if k == 0 && (w.wait || more && w.n > 0) {
			waiting = waiting || w.wait
			continue
		}
		w.tell(reply{batch: mine})
	}
	c.mu.Unlock()
	for _, l := range left {
		c.q.spawn(func() {
			if l.Release(c.q.ctx) != nil {
				l.abandon()
			}
		}) // else Close gives it back
	}
	return waiting
}

// answerFailed answers the callers that do not wait, and all callers if another try is
// no use.
func (c *claimer) answerFailed(wants []*want, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range wants {
		if w.wait && (passing(err) || errors.Is(err, etcdclaims.ErrLost)) {
			continue
		}
		if !w.over {
			w.tell(reply{err: err})
		}
	}
}
