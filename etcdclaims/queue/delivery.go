package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
)

// Delivery is an item in a worker's hand. Its lease ends when the worker completes, fails
// or gives back the item, or loses it. A lease that is over never comes back. A Delivery
// is safe for concurrent use.
type Delivery struct {
	q       *holder
	content item.Content
	obtain  time.Time

	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}

	// Requests of one lease exclude each other: a verb that was made of the fence before
	// Heartbeat would be refused, as if another worker had the item.
	busy   chan struct{}    // capacity 1: whoever fills it has unsure
	unsure map[string]error // verbs whose outcome is unknown, and why

	mu   sync.Mutex // s and held change in Heartbeat alone
	s    *session   // nil: resumed from a handle
	held item.Held
	err  error // why the lease is over

	result     []byte // see SetResult
	completing int    // calls of Complete under way, or of unknown outcome: the result stays
	leaving    bool   // a verb that ends the lease is under way, or of unknown outcome
}

func newDelivery(q *holder, s *session, taken item.Taken, c item.Content) *Delivery {
	l := makeDelivery(q, item.Held{Keys: q.keys, Session: s.id, State: taken.State, Rev: taken.Rev, Epoch: keyspace.Epoch(s.claim.Fence())}, c)
	l.s = s
	l.follow(s)
	return l
}

func makeDelivery(q *holder, held item.Held, c item.Content) *Delivery {
	l := &Delivery{q: q, held: held, content: c, obtain: held.State.Since, done: make(chan struct{}), busy: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancelCause(l.carry(context.Background()))
	return l
}

// follow makes the lease end with the session, while it is one of it.
func (l *Delivery) follow(s *session) {
	s.add(l)
	own := s.claim.Context()
	stop := context.AfterFunc(own, func() {
		if now, _, _ := l.snapshot(); now == s {
			l.cancel(context.Cause(own))
		}
	})
	context.AfterFunc(l.ctx, func() { stop() })
}

// carry returns ctx with the lease, its token and its check.
func (l *Delivery) carry(ctx context.Context) context.Context {
	return context.WithValue(fencing.WithCheck(fencing.NewContext(ctx, l.Token()), l.Check), leaseContext{}, l)
}

// end ends the lease locally, once.
func (l *Delivery) end(why error) {
	l.mu.Lock()
	first, st := l.err == nil, l.held.State
	if first {
		l.err = why
	}
	l.mu.Unlock()
	if !first {
		return
	}
	close(l.done)
	l.cancel(why)
	if st.Lane > 0 { // which the item may have left
		l.q.lanes.noteKey(st.Key)
	}
}

// finish ends the lease locally, and lets its session forget it.
func (l *Delivery) finish(why error) {
	l.end(why)
	if s, _, _ := l.snapshot(); s != nil {
		s.forget(l)
	}
}

// turn waits until no other request of the lease is under way. The caller calls done
// at the end of its own. It fails if the lease is over. If it waits, the crowd does not.
func (l *Delivery) turn(ctx context.Context, crowd *txn.Member) (done func(), err error) {
	select {
	case l.busy <- struct{}{}:
	default:
		crowd.Leave()
		select {
		case l.busy <- struct{}{}:
		case <-l.done:
			return nil, l.Err()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if err := l.Err(); err != nil {
		<-l.busy
		return nil, err
	}
	return func() { <-l.busy }, nil
}

// doubt notes that the outcome of a verb is unknown. The caller has the lease's turn.
func (l *Delivery) doubt(verb string, why error) {
	if l.unsure == nil {
		l.unsure = make(map[string]error)
	}
	l.unsure[verb] = why
}

// leave makes Check fail before others can have the item. stay is its opposite.
func (l *Delivery) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = true
}

func (l *Delivery) stay() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = false
}

// abandon ends the lease locally, and has the rest of it in etcd given back.
func (l *Delivery) abandon() {
	s, _, err := l.snapshot()
	if err != nil {
		return
	}
	l.finish(ErrExpired)
	if s != nil {
		s.doubt()
	}
}

// missed ends the lease if its item, which was not there, cannot have gone by a request of the
// lease.
func (l *Delivery) missed(ctx context.Context, rev int64) {
	select {
	case l.busy <- struct{}{}:
	default:
		return // the request under way finds out
	}
	defer func() { <-l.busy }()
	l.mu.Lock()
	held, same := l.held, l.err == nil && !l.leaving && l.held.Rev == rev
	l.mu.Unlock()
	if same {
		_, _ = l.refused(ctx, item.VerbHeartbeat, held, item.Gone, nil)
	}
}

// snapshot returns what changes of the lease.
func (l *Delivery) snapshot() (s *session, held item.Held, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s, l.held, l.err
}

// by names a lease that was adopted; see item.Held.
func (l *Delivery) by() string {
	_, held, _ := l.snapshot()
	return held.By
}

// hold is what a request of the caller that has the lease's turn is made of.
func (l *Delivery) hold() item.Held {
	s, held, _ := l.snapshot()
	held.Elsewhere = s == nil
	return held
}

// ID returns the item's id.
func (l *Delivery) ID() string { return l.state().ID }

func (l *Delivery) state() item.State {
	_, held, _ := l.snapshot()
	return held.State
}

// Queue returns the name of the queue.
func (l *Delivery) Queue() string { return l.q.cfg.Name }

// Topic returns the item's topic.
func (l *Delivery) Topic() string { return l.content.Topic }

// PartitionKey returns the item's partition key, or "".
func (l *Delivery) PartitionKey() string { return l.state().Key }

// Payload returns the item's payload. Do not change it.
func (l *Delivery) Payload() []byte { return l.content.Payload }

// Priority returns the item's priority.
func (l *Delivery) Priority() int { return l.state().Priority }

// Vesting returns when the item became visible.
func (l *Delivery) Vesting() time.Time { return l.state().Vesting }

// Enqueued returns when the item was enqueued, by the clock of the process that did.
func (l *Delivery) Enqueued() time.Time { return l.content.Enqueued }

// Attempt returns the number of this attempt, 1 for the first.
func (l *Delivery) Attempt() int { return l.state().Attempts }

// MaxAttempts returns how many attempts the item has.
func (l *Delivery) MaxAttempts() int { return l.state().Max }

// History returns the earlier attempts of the item, oldest first, at most the last 20.
func (l *Delivery) History() []Attempt { return attempts(l.state().History) }

// Fence returns the number that rises with each delivery of the item.
func (l *Delivery) Fence() int64 {
	_, held, _ := l.snapshot()
	return held.Fence()
}

// Token returns the key and the fence of the delivery. Send it along with requests, and
// guard writes with it. Its key is "queue/<queue>/item/<id>".
func (l *Delivery) Token() fencing.Token {
	return fencing.Token{Key: l.q.keys.TokenKey(l.ID()), Fence: l.Fence()}
}

// SetResult sets the result with which the item will be completed: by Complete, by CompleteAll, or by a
// handler that returns nil. It replaces an earlier result; nil means none. The transaction that completes the
// item stores the result, which is kept for Config.Retention. It is not stored if the item fails. Wait and Look
// return it. Typed.Decode reads a result that is a value. SetResult sends no request. Do not change the result
// afterwards.
//
// Errors: etcdclaims.ErrTooLarge if the result is larger than MaxResultBytes, and an error if
// Config.Retention is negative. If the lease is over, that of Err. While the item is being completed, and
// after a completion of unknown outcome, etcdclaims.ErrReleased.
func (l *Delivery) SetResult(result []byte) error {
	switch {
	case len(result) > MaxResultBytes:
		text := fmt.Sprintf("%d bytes, the limit is %d; store it elsewhere and set where it is", len(result), MaxResultBytes)
		return l.fail("set result of", errtext.Wrap(text, etcdclaims.ErrTooLarge))
	case result != nil && l.q.cfg.Retention < 0:
		return l.fail("set result of", errForgets)
	}
	return l.fail("set result of", l.setResult(result))
}

func (l *Delivery) setResult(result []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && l.completing > 0 {
		return errtext.Namesake("it is being completed, or was with an unknown outcome", etcdclaims.ErrReleased)
	}
	if l.err == nil {
		l.result = result
	}
	return l.err
}

// completed counts the calls of Complete.
func (l *Delivery) completed(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.completing += n
}

// Result returns what SetResult has set, or nil.
func (l *Delivery) Result() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.result
}

// Key returns the item's place in the order of its queue: rank, vesting time and sequence, as
// text. The rank is made of the priority, and with Config.Aging also of the vesting time. Items
// are claimed in the order of these texts. Key is no key of etcd.
func (l *Delivery) Key() string {
	return l.q.keys.OrderOf(l.state())
}

// DeliveryID returns an id of this delivery: the first 32 hex digits of a SHA-256. The
// hashed text is the item's id, the holder, and the nanosecond in which the lease began,
// with NUL in between. A process that knows these three can compute the id.
func (l *Delivery) DeliveryID() string { return DeliveryID(l.ID(), l.Holder(), l.obtain) }

// DeliveryID returns the id of the delivery of an item that the holder obtained at an
// instant. It is a pure function.
func DeliveryID(item, holder string, obtained time.Time) string {
	sum := sha256.Sum256([]byte(item + "\x00" + holder + "\x00" + strconv.FormatInt(obtained.UnixNano(), 10)))
	return hex.EncodeToString(sum[:16])
}

// Holder returns the label of the process that has the item, Config.Owner of the
// client.
func (l *Delivery) Holder() string { return l.state().Owner }

// Obtained returns when the lease began.
func (l *Delivery) Obtained() time.Time { return l.obtain }

// Deadline returns when the lease ends unless it is renewed. It is for people and for
// timeouts. It is in the past if the lease is over. It is also in the past for an adopted
// delivery, because only etcd knows when such a lease ends.
func (l *Delivery) Deadline() time.Time { return l.q.now().Add(l.remaining()) }

// Expired reports whether the lease is over at the given time, unless it is renewed
// before. It returns true for every time if the lease is over by now. So it does for an
// adopted delivery, because only etcd knows when such a lease ends. It sends no request.
func (l *Delivery) Expired(now time.Time) bool { return l.Remaining(now) <= 0 }

// Remaining returns how long the lease lasts from the given time on, unless it is renewed
// before. It returns 0 if Expired returns true. It sends no request.
func (l *Delivery) Remaining(now time.Time) time.Duration {
	left := l.remaining()
	if left <= 0 {
		return 0
	}
	return max(left-now.Sub(l.q.now()), 0)
}

func (l *Delivery) remaining() time.Duration {
	s, _, err := l.snapshot()
	if err != nil || s == nil {
		return 0
	}
	return s.claim.Remaining()
}

// Context returns a context that carries the token and ends when work must stop. It ends
// some time before the lease does, so that the handler can stop in time. It ends at once
// when the item is completed or lost. The context is a hint; see Check.
func (l *Delivery) Context() context.Context { return l.ctx }

// Done is closed when the lease is over.
func (l *Delivery) Done() <-chan struct{} { return l.done }

// Err returns nil while the lease is held as far as this process knows. After a verb of
// this worker, the error matches etcdclaims.ErrReleased. After a loss, it matches
// etcdclaims.ErrLost.
func (l *Delivery) Err() error {
	_, _, err := l.snapshot()
	return err
}

// Check returns nil if this worker has the item now, by the clock of the process. It
// sends no request: call it right before each effect.
//
// Check starts to fail when a verb that ends the lease is sent, because another worker
// can have the item before the reply arrives. If the verb changed nothing, Check returns
// nil again.
func (l *Delivery) Check() error {
	s, _, err := l.snapshot()
	l.mu.Lock()
	leaving := l.leaving
	l.mu.Unlock()
	switch {
	case err != nil:
		return err
	case leaving:
		return fmt.Errorf("lease of %q is being given up, or was moved with an unknown outcome: %w", l.ID(), etcdclaims.ErrReleased)
	case s == nil:
		return fmt.Errorf("lease of %q was resumed from a handle, only etcd knows whether it is held: %w", l.ID(), etcdclaims.ErrUnknown)
	}
	if err := s.claim.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrExpired, err)
	}
	return nil
}

// leaseContext is the key of the lease in contexts.
type leaseContext struct{}

// FromContext returns the delivery whose handler runs with ctx, and whether there is one. It
// is for code that the handler calls and that needs the queue, the topic, the id or the
// attempt of the item. [Delivery.Context] carries the delivery, too. Only the handler itself
// should call verbs.
func FromContext(ctx context.Context) (*Delivery, bool) {
	l, ok := ctx.Value(leaseContext{}).(*Delivery)
	return l, ok
}
