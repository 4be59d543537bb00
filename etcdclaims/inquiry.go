package etcdclaims

import (
	"cmp"
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A client asks another whether it lives by putting a key under that client's own prefix.
// The other client watches that prefix for notices, and answers by deleting the key.
// docs/protocol.md has why that is sound.

const (
	// askAfter is how long a caller is first in line before it asks: most waits are shorter.
	askAfter = 200 * time.Millisecond
	// suspectInterval is how long one request may take and how late it may be, if the round
	// trip is not longer. After that the time without an answer is counted anew.
	suspectInterval = 150 * time.Millisecond
	// suspectAfter is how long a question must be unanswered before its client is suspected,
	// if all answers are quick. It is never longer than longestPatience.
	suspectAfter    = 3 * suspectInterval
	longestPatience = suspectAfter << mostPatience
	// askEvery is the time between two looks at one client that answers, and longestPace
	// that between two looks at many.
	askEvery    = suspectInterval / 3
	longestPace = longestPatience / 3
	// longestLook is how long one request may take at most.
	longestLook = 3 * time.Second
	// firstPatience takes the place of suspectAfter until the client has answered once: it may
	// be far. So does afterOutage after an outage: it may have to connect again. An outage is a
	// request that fails before its time is over, or etcd's silence for longer than stallsFor.
	firstPatience = 1500 * time.Millisecond
	afterOutage   = 3 * time.Second
	stallsFor     = 1500 * time.Millisecond
	// mostPatience is how often suspectAfter is doubled, and patienceLasts how long until
	// one wrong suspicion is forgotten.
	mostPatience  = 3
	patienceLasts = time.Minute
	// followEvery is the time between two looks at a client whose claims were taken.
	followEvery = time.Second
	// mostWrongs bounds the clients that are remembered as suspected wrongly.
	mostWrongs = 1024
	// looksInside is how many operations etcd counts within each look of one request.
	looksInside = 2
)

// silence is an ask that was not answered.
type silence struct {
	rev    int64 // its ModRevision
	lasted time.Duration
}

// inquiry asks one client.
type inquiry struct {
	c        *Client
	instance string
	value    string // of its question

	// Guarded by the mutex of inquiries:
	waiters map[*waiter]struct{}
	taken   int // claims of the client that were taken, since it last answered

	// Of the goroutine that asks:
	on       *session // whose lease the question is on
	last     *session // of the last request, and the one before: the question may be on its lease
	before   *session
	rev      int64         // ModRevision of the present question, 0 before the first
	since    time.Time     // it has stood at least since then
	stood    time.Duration // for so long when it was last seen
	answers  latency       // how long the client takes to answer
	anew     bool          // the time without an answer counts from the next look on
	least    time.Duration // its patience, until the client answers
	followed time.Time     // when it was last looked for after its claims were taken
}

// askValue is the value of session/<instance>/ask/<instance>. The id distinguishes the
// inquiries of one client.
type askValue struct {
	Version int    `json:"v"`
	ID      string `json:"id"`
	By      string `json:"by"`
}

func newInquiry(c *Client, instance string) *inquiry {
	return &inquiry{
		c: c, instance: instance, value: encode(askValue{Version: protocol.Version, ID: uuid.NewString(), By: c.cfg.Owner}),
		waiters: make(map[*waiter]struct{}), least: firstPatience,
	}
}

func (q *inquiry) key() string {
	l := q.c.store.layout
	return l.Question(q.instance, l.Instance)
}

// request looks whether the question still stands, and puts it if it does not. Without a
// session it looks what became of a client whose claims were taken.
func (q *inquiry) request(s *session) *pb.TxnRequest {
	name := []byte(q.key())
	if s == nil {
		sentinels := txn.Range(q.c.store.layout.Sentinels(q.instance))
		sentinels.GetRequestRange().CountOnly = true
		return &pb.TxnRequest{Success: []*pb.RequestOp{txn.Get(name), sentinels}}
	}
	q.before, q.last = q.last, s
	return &pb.TxnRequest{
		Compare: []*pb.Compare{txn.ValueIs(name, q.value)},
		Success: []*pb.RequestOp{txn.Get(name)},
		Failure: []*pb.RequestOp{txn.Put(name, q.value, s.id)},
	}
}

// heard deals with the reply to a look, the i-th of one request, which began at a time. A
// look that was late does not count what passed before. It returns how long to wait for the
// next look at most.
func (q *inquiry) heard(s *session, began time.Time, late bool, resp *clientv3.TxnResponse, i int,
	every time.Duration,
) (wait time.Duration) {
	now, all := clock.Mono(), &q.c.inquiries
	reply := txn.Inner(resp, i)
	if s == nil {
		q.followed, q.anew = now, true
		return q.judged(txn.First(reply, 0), txn.Count(reply, 1) > 0)
	}
	stands := resp.Header.Revision // put by this request
	if reply.Succeeded {
		stands = txn.First(reply, 0).ModRevision
	}
	switch answered := stands != q.rev; {
	case answered:
		if q.rev > 0 && !q.on.ended() {
			if q.least < afterOutage {
				q.answers.took(q.stood)
			}
			q.least = 0
			q.judge(true)
		}
		if q.rev, q.on = stands, s; reply.Succeeded { // put by a request whose reply did not come
			q.on = cmp.Or(q.before, s) // before is nil if that was the first
		}
		fallthrough
	case late || q.anew:
		q.since, q.stood, q.anew = now, 0, false
		return every
	}
	limit := max(q.least, all.patience(q.instance, every, time.Duration(all.trip), time.Duration(q.answers)))
	if q.c.outage.EndedWithin(afterOutage) {
		limit = max(limit, afterOutage)
	}
	if q.stood = now.Sub(q.since); began.Sub(q.since) >= limit {
		q.tell()
		return every
	}
	return limit - q.stood
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

// judged judges a client whose claims were taken, as soon as it answers after all, or all
// its leases have ended. It returns how long to wait for the next look.
func (q *inquiry) judged(ask *mvccpb.KeyValue, lives bool) (wait time.Duration) {
	switch {
	case ask == nil || string(ask.Value) != q.value:
		q.judge(true)
	case !lives:
		q.judge(false)
	default:
		return followEvery
	}
	return 0
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
	c.events.suspected(q.instance, taken, wrong)
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
