package etcdclaims

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// mostAnswers is how many questions one request answers, if etcd permits as many
	// operations.
	mostAnswers = 32
	// mostSending is how many such requests are under way at most.
	mostSending = 8
	// askedOfLate is for how long a client counts as one of those that ask this one.
	askedOfLate = 2 * longestPace
)

// answers answers questions whether this client lives. No other mutex is taken while its own
// is held.
type answers struct {
	mu       sync.Mutex
	standing map[string]*question // by key in etcd: neither answered, as far as known, nor withdrawn
	asked    map[string]time.Time // when there was last a question, by key in etcd
	running  bool                 // a goroutine answers
	sending  int                  // requests under way
	trip     latency              // of requests
	failures int                  // requests in a row
	next     time.Time            // no request is sent before
	pace     time.Duration        // between two requests
	news     chan struct{}
}

// question is one that stands.
type question struct {
	name  string
	rev   int64
	again time.Time // when it is answered, if that was not done or has not come by then
}

// asked deals with a question whether this client lives, or its end.
func (c *Client) asked(ev *clientv3.Event) {
	if ev.Type == mvccpb.Event_PUT {
		c.answer(ev.Kv)
	} else {
		c.answers.gone(string(ev.Kv.Key))
	}
}

// answer answers a question whether this client lives, in the background: it deletes the
// question. It does so whatever it holds, until it is closed.
func (c *Client) answer(kv *mvccpb.KeyValue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &c.answers
	a.mu.Lock()
	defer a.mu.Unlock()
	now, name := clock.Mono(), string(kv.Key)
	if q := a.standing[name]; q == nil || q.rev != kv.ModRevision {
		a.standing[name] = &question{name, kv.ModRevision, now}
	}
	a.asked[name] = now
	if !a.running && c.io.Err() == nil {
		a.running = true
		c.spawn(c.answerAll)
	}
	a.wake()
}

// gone notes that a question stands no longer: it was answered, withdrawn, or went with its
// lease.
func (a *answers) gone(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.standing, name)
	a.failures = 0
	a.wake()
}

// wake makes the goroutine look again. The caller holds the mutex.
func (a *answers) wake() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// answerAll answers while there are questions. A request whose reply is late holds up no
// other. A new question waits for no earlier one.
func (c *Client) answerAll() {
	a := &c.answers
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-a.news:
		case <-c.io.Done():
			return
		}
		some, limit, wait := a.take(min(mostAnswers, c.store.MaxOps()-1)) // etcd counts one more for nested transactions
		if len(some) > 0 {
			c.spawn(func() { c.sendAnswers(some, limit) })
		} else if wait < 0 {
			return
		}
		timer.Reset(wait)
	}
}

// take returns the questions to answer now, how long that may take, and how long to wait for
// the next. It ends the answering, with a negative wait, if no question stands.
func (a *answers) take(most int) (some []*question, limit, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := clock.Mono()
	switch {
	case len(a.standing) == 0:
		a.running = false
		return nil, 0, -1
	case a.sending >= mostSending:
		return nil, 0, longestLook // the end of one is news
	case a.next.After(now):
		return nil, 0, a.next.Sub(now)
	}
	wait = longestLook
	for _, q := range a.standing {
		if d := q.again.Sub(now); d > 0 {
			wait = min(wait, d)
		} else {
			some = append(some, q)
		}
	}
	// The oldest first: its client is the next to suspect this one.
	slices.SortFunc(some, func(x, y *question) int { return cmp.Compare(x.rev, y.rev) })
	if len(some) > most {
		some, wait = some[:most], 0
	} else if len(some) > 0 {
		for name, at := range a.asked {
			if now.Sub(at) > askedOfLate {
				delete(a.asked, name)
			}
		}
		// The questions of many clients are answered together. The time for which these
		// stand grows slowly, for the other clients measure it.
		a.pace = min(pace(len(a.asked)-1), max(askEvery, a.pace*3/2))
		a.next = now.Add(a.pace)
	}
	limit = a.trip.limit(a.failures)
	for _, q := range some {
		q.again = now.Add(limit)
	}
	if len(some) > 0 {
		a.sending++
		wait = min(wait, limit)
	}
	return some, limit, wait
}

// sendAnswers answers some questions with one request.
func (c *Client) sendAnswers(some []*question, limit time.Duration) {
	in := &pb.TxnRequest{}
	for _, q := range some {
		// A newer question of the same client is answered by itself.
		in.Success = append(in.Success, txn.Nest(&pb.TxnRequest{
			Compare: []*pb.Compare{txn.ModifiedAt([]byte(q.name), q.rev)}, Success: []*pb.RequestOp{txn.Delete([]byte(q.name))},
		}))
	}
	ctx, cancel := context.WithTimeout(c.io, limit)
	defer cancel()
	sent := clock.Mono()
	_, err := c.store.Send(ctx, txn.Request{In: in})
	if ops := 1 + len(some); wire.IsTooManyOps(err) && ops > txn.LeastOps {
		c.store.FewerOps(ops)
	}
	denied := errors.Is(err, ErrPermissionDenied)
	if denied {
		c.log.Debug("questions of other clients not answered", zap.Int("questions", len(some)), zap.Error(err))
	}
	a := &c.answers
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.wake()
	a.sending--
	if err == nil {
		a.failures = 0
		a.trip.took(time.Since(sent))
	} else {
		a.failures++
	}
	for _, q := range some {
		switch {
		case a.standing[q.name] != q: // asked anew, or gone
		case err == nil, denied:
			delete(a.standing, q.name)
		default: // a late answer changes nothing, so it is tried until it is known to have come
			q.again = clock.Mono().Add(retry.Delay(min(a.failures-1, 2)))
		}
	}
}
