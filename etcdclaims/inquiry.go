package etcdclaims

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
)

// A client asks another whether it lives by putting a key under that client's own prefix.
// The other client watches that prefix for notices, and answers by deleting the key.
// docs/protocol.md has why that is sound.

const (
	// askAfter is how long a caller is first in line before it asks: most waits are shorter.
	askAfter = 200 * time.Millisecond
	// suspectInterval is how long one request of the asking client may take, and how late
	// it may be. After that the time without an answer is counted anew.
	suspectInterval = 150 * time.Millisecond
	// suspectAfter is how long an ask must be unanswered before its client is
	// suspected.
	suspectAfter = 3 * suspectInterval
	// askEvery is the time between two asks of a client that answers.
	askEvery = suspectInterval / 3
	// afterOutage takes the place of suspectAfter after an outage, until the next answer:
	// the other client may have to connect again first. An outage is a request that fails
	// before its time is over, or etcd's silence for longer than stallsFor.
	afterOutage = 3 * time.Second
	stallsFor   = 1500 * time.Millisecond
	// mostPatience is how often suspectAfter is doubled, and patienceLasts how long until
	// one wrong suspicion is forgotten.
	mostPatience  = 3
	patienceLasts = time.Minute
	// followEvery is the time between two looks at a client whose claims were taken.
	followEvery = time.Second
	// mostWrongs bounds the clients that are remembered as suspected wrongly.
	mostWrongs = 1024
)

// inquiries are the clients that are asked, each for all waiters of this client that are
// first in line behind one of its claims. No other mutex is taken while its own is held.
type inquiries struct {
	mu    sync.Mutex
	of    map[string]*inquiry // by instance
	wrong map[string]wrongs   // by instance
}

// wrongs is how often a client was suspected wrongly of late.
type wrongs struct {
	level int
	at    time.Time // of the last
}

// silence is an ask that was not answered.
type silence struct {
	rev    int64 // its ModRevision
	lasted time.Duration
}

// left returns the level that is left at a time.
func (w wrongs) left(now time.Time) int { return max(0, w.level-int(now.Sub(w.at)/patienceLasts)) }

// inquiry asks one client. Its goroutine ends when no caller waits for an answer.
type inquiry struct {
	c        *Client
	instance string
	value    string        // of its ask
	wake     chan struct{} // a caller waits again

	// Guarded by the mutex of inquiries:
	waiters map[*waiter]struct{}
	taken   int // claims of the client that were taken, since it last answered

	// Of the goroutine:
	on       *session  // whose lease the ask is on
	last     *session  // whose lease the ask is on, if the last one was put although its reply was lost
	rev      int64     // ModRevision of the present ask, 0 if that is not known
	since    time.Time // it stood at that time
	replied  time.Time // when etcd last answered
	failures int
	outage   bool // etcd has not answered since the client did
}

// ask is the value of session/<instance>/ask/<instance>. The id distinguishes the
// inquiries of one client.
type askValue struct {
	Version int    `json:"v"`
	ID      string `json:"id"`
	By      string `json:"by"`
}

// join adds a waiter to those that want to know whether a client lives.
func (all *inquiries) join(c *Client, w *waiter, instance string) {
	if w.inquiry != nil && w.inquiry.instance == instance {
		return
	}
	all.leave(w)
	select {
	case <-w.suspect: // of another client
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	q := all.of[instance]
	if q == nil {
		q = &inquiry{
			c: c, instance: instance, value: encode(askValue{Version: valueVersion, ID: uuid.NewString(), By: c.cfg.Owner}),
			wake: make(chan struct{}, 1), waiters: make(map[*waiter]struct{}),
		}
		all.of[instance] = q
		c.spawn(q.run)
	}
	q.waiters[w], w.inquiry = struct{}{}, q
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// leave ends what join began.
func (all *inquiries) leave(w *waiter) {
	if w.inquiry == nil {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(w.inquiry.waiters, w)
	w.inquiry = nil
}

// took notes that a waiter has taken its key.
func (all *inquiries) took(w *waiter) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if w.inquiry != nil {
		w.inquiry.taken++
	}
}

// patience returns how long the client may leave an ask unanswered.
func (all *inquiries) patience(instance string) time.Duration {
	all.mu.Lock()
	defer all.mu.Unlock()
	return suspectAfter << all.wrong[instance].left(time.Now())
}

// blame notes a wrong suspicion, and returns how long the client is waited for next time.
func (all *inquiries) blame(instance string) time.Duration {
	now := time.Now()
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.wrong) >= mostWrongs {
		clear(all.wrong)
	}
	level := min(all.wrong[instance].left(now)+1, mostPatience)
	all.wrong[instance] = wrongs{level, now}
	return suspectAfter << level
}

// run asks until no caller waits for an answer, and every suspicion is judged right or
// wrong.
func (q *inquiry) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-q.wake:
			if q.failures > 0 || time.Since(q.replied) < askEvery {
				continue // the timer is near
			}
		case <-q.c.io.Done():
			return
		}
		wait, over := q.step()
		if over {
			return
		}
		timer.Reset(wait)
	}
}

// step makes one request. It returns how long to wait for the next.
func (q *inquiry) step() (wait time.Duration, over bool) {
	all := &q.c.inquiries
	all.mu.Lock()
	var s *session
	for w := range q.waiters {
		if s = w.a.s; !s.ended() {
			break
		}
	}
	taken := q.taken
	if over = len(q.waiters) == 0 && (taken == 0 || q.c.open.Err() != nil); over {
		delete(all.of, q.instance)
	}
	all.mu.Unlock()
	switch {
	case over:
		q.withdraw()
		return 0, true
	case s == nil:
		return q.follow(), false
	}
	return q.ask(s), false
}

func (q *inquiry) key() string {
	l := q.c.store.layout
	return l.ask(q.instance, l.instance)
}

// ask checks whether the ask is still there, and puts it again if it is not. The
// request goes through etcd's consensus either way, as an answer does: what holds up
// the one holds up the other.
func (q *inquiry) ask(s *session) (wait time.Duration) {
	begin := time.Now()
	rev := q.rev
	if rev == 0 || begin.Sub(q.replied) > suspectInterval {
		rev = -1 // this process stood still, or has just begun: ask anew
	}
	q.last = s
	name := []byte(q.key())
	ctx, cancel := context.WithTimeout(q.c.io, suspectInterval)
	resp, err := q.c.store.Send(ctx, txn.Request{In: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.ModifiedAt(name, rev)},
		Failure: []*pb.RequestOp{txn.Get(name), txn.Put(name, q.value, s.id)},
	}})
	late := ctx.Err() != nil
	cancel()
	if err != nil {
		return q.failed(err, late)
	}
	q.replied, q.failures = time.Now(), 0
	limit := q.c.inquiries.patience(q.instance)
	if q.outage || q.c.outage.endedWithin(afterOutage) {
		limit = max(limit, afterOutage)
	}
	switch {
	case !resp.Succeeded:
		if rev > 0 && !q.on.ended() && firstKV(resp, 0) == nil {
			q.outage = false
			q.judge(true)
		}
		q.on, q.rev, q.since = s, resp.Header.Revision, q.replied
	case begin.Sub(q.since) >= limit:
		q.tell()
		return askEvery
	}
	return max(min(askEvery, limit-time.Since(q.since)), time.Millisecond)
}

// failed deals with a request that etcd did not answer in time, or refused.
func (q *inquiry) failed(err error, late bool) (wait time.Duration) {
	q.rev = 0
	if !late && !errors.Is(err, rpctypes.ErrLeaseNotFound) || time.Since(q.replied) > stallsFor {
		q.outage = true
	}
	q.c.log.Debug("a client cannot be asked whether it lives", zap.String("instance", q.instance), zap.Error(err))
	q.failures++
	return askEvery << min(q.failures-1, 5)
}

// tell lets the waiters take their keys. It is repeated for those that are left.
func (q *inquiry) tell() {
	all := &q.c.inquiries
	all.mu.Lock()
	defer all.mu.Unlock()
	for w := range q.waiters {
		select {
		case w.suspect <- silence{q.rev, time.Since(q.since)}:
		default:
		}
	}
}

// follow looks what became of a client whose claims were taken: it answers after all, or
// all its leases have ended.
func (q *inquiry) follow() (wait time.Duration) {
	if q.on.ended() {
		q.forget() // and the ask with it
		return 0
	}
	sentinels := txn.Range(q.c.store.layout.sentinels(q.instance))
	sentinels.GetRequestRange().CountOnly = true
	ctx, cancel := context.WithTimeout(q.c.io, followEvery)
	defer cancel()
	resp, err := q.c.store.Send(ctx, txn.Request{In: &pb.TxnRequest{Success: []*pb.RequestOp{txn.Get([]byte(q.key())), sentinels}}})
	if err != nil {
		return followEvery
	}
	switch ask := firstKV(resp, 0); {
	case ask == nil || string(ask.Value) != q.value:
		q.judge(true)
	case resp.Responses[1].GetResponseRange().Count == 0:
		q.judge(false)
	default:
		return followEvery
	}
	return time.Millisecond
}

// forget ends a suspicion without a judgement, and returns how many claims were taken.
func (q *inquiry) forget() (taken int) {
	all := &q.c.inquiries
	all.mu.Lock()
	defer all.mu.Unlock()
	taken, q.taken = q.taken, 0
	return taken
}

// judge ends a suspicion, if there is one: it was wrong if the client answers.
func (q *inquiry) judge(wrong bool) {
	taken := q.forget()
	if taken == 0 {
		return
	}
	c := q.c
	fields := []zap.Field{zap.String("instance", q.instance), zap.Int("claims", taken)}
	if wrong {
		c.stats.suspectedWrongly.Add(int64(taken))
		c.log.Warn("suspicion was wrong: the client answers", append(fields, zap.Duration("patience", c.inquiries.blame(q.instance)))...)
	} else {
		c.log.Info("suspicion was right: the client has no lease any more", fields...)
	}
	if hook := c.cfg.Hooks.Suspected; hook != nil {
		hook(Suspicion{Instance: q.instance, Claims: taken, Wrong: wrong})
	}
}

// withdraw deletes the ask, for which no caller waits any more.
func (q *inquiry) withdraw() {
	s := q.last
	if s == nil || s.ended() {
		s = q.on
	}
	if s == nil || s.ended() {
		return
	}
	name := []byte(q.key())
	q.c.cleanUp(s, "withdrawing a question", func(ctx context.Context) error {
		_, err := q.c.store.Do(ctx, txn.Request{In: &pb.TxnRequest{
			Compare: []*pb.Compare{txn.ValueIs(name, q.value)}, Success: []*pb.RequestOp{txn.Delete(name)},
		}})
		return err
	})
}
