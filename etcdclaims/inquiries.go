package etcdclaims

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// inquiries are the clients that are asked, each for all waiters of this client that are
// first in line behind one of its claims. One request asks all of them. No other mutex is
// taken while its own is held.
type inquiries struct {
	mu      sync.Mutex
	of      map[string]*inquiry // by instance
	wrong   map[string]wrongs   // by instance
	running bool
	wake    chan struct{} // a caller waits again

	// Of the goroutine:
	trip     latency   // of its requests
	replied  time.Time // when etcd last answered one
	next     time.Time // no request is sent before
	failures int
}

// wrongs is how often a client was suspected wrongly of late.
type wrongs struct {
	level int
	at    time.Time // of the last
}

// left returns the level that is left at a time.
func (w wrongs) left(now time.Time) int { return max(0, w.level-int(now.Sub(w.at)/patienceLasts)) }

// latency is how long something took of late at most: what is shorter lowers it slowly.
type latency time.Duration

func (t *latency) took(d time.Duration) { *t = max(latency(d), *t*7/8) }

// limit returns how long a request may take, after so many that took too long: not longer
// than is usual, so that the next one goes to another member of etcd soon.
func (t latency) limit(failures int) time.Duration {
	return min(max(suspectInterval, 3*time.Duration(t))<<min(failures, 5), longestLook)
}

// pace is how long a client waits between two requests about so many others. It bounds the
// cost where every client waits for every other.
func pace(others int) time.Duration { return min(askEvery/2*time.Duration(1+others), longestPace) }

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
		q = newInquiry(c, instance)
		all.of[instance] = q
	}
	q.waiters[w], w.inquiry = struct{}{}, q
	if !all.running {
		all.running = true
		c.spawn(func() { all.run(c) })
	}
	select {
	case all.wake <- struct{}{}:
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

// patience returns how long a client may leave a question unanswered. The longest of these
// times counts thrice: between two looks, of a request, and of the client's answers.
func (all *inquiries) patience(instance string, times ...time.Duration) time.Duration {
	all.mu.Lock()
	defer all.mu.Unlock()
	return min(max(suspectAfter, 3*slices.Max(times))<<all.wrong[instance].left(clock.Mono()), longestPatience)
}

// blame notes a wrong suspicion, and returns how long the client is waited for next time,
// at least.
func (all *inquiries) blame(instance string) time.Duration {
	now := clock.Mono()
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
func (all *inquiries) run(c *Client) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	all.replied, all.failures = clock.Mono(), 0 // no outage is known
	for {
		select {
		case <-timer.C:
		case <-all.wake:
			if d := time.Until(all.next); d > 0 {
				timer.Reset(d)
				continue
			}
		case <-c.io.Done():
			return
		}
		looks, over := all.looks(c)
		if over {
			return
		}
		timer.Reset(all.send(c, looks))
	}
}

// look is what one request does about one client: ask it for the waiters of a session, or
// without one, look what became of it after its claims were taken.
type look struct {
	q *inquiry
	s *session
}

// looks returns what is to be done now, and whether the asking is over.
func (all *inquiries) looks(c *Client) (due []look, over bool) {
	var ended []*inquiry
	all.mu.Lock()
	for instance, q := range all.of {
		var s *session
		for w := range q.waiters {
			if !w.a.s.ended() {
				s = w.a.s
				break
			}
		}
		switch {
		case s != nil:
			due = append(due, look{q, s})
		case len(q.waiters) > 0: // they are about to leave
		case q.taken == 0, c.open.Err() != nil, q.on.ended(): // the question goes with the session
			delete(all.of, instance)
			ended = append(ended, q)
		case time.Since(q.followed) >= followEvery:
			due = append(due, look{q, nil})
		}
	}
	over = len(all.of) == 0
	all.running = !over
	all.mu.Unlock()
	for _, q := range ended {
		q.withdraw()
	}
	return due, over
}

// send carries out the looks, as many with one request as etcd permits. It returns how
// long to wait for the next.
func (all *inquiries) send(c *Client, looks []look) (wait time.Duration) {
	asked, every := 0, longestPace
	for _, l := range looks {
		if l.s != nil {
			asked++
			every = min(every, time.Duration(l.q.answers))
		}
	}
	// Neither does it look more often than questions are answered.
	if wait = followEvery; asked > 0 {
		every = max(every, pace(asked))
		wait = every
	}
	began := clock.Mono()
	late := began.Sub(all.next) > suspectInterval-askEvery // this process stood still, or has just begun
	replied := all.replied
	limit := all.trip.limit(all.failures)
	var mu sync.Mutex // guards what follows
	var sending sync.WaitGroup
	var failed error
	for some := range slices.Chunk(looks, max(1, min(mostAnswers, c.store.MaxOps()-looksInside))) {
		sending.Go(func() {
			resp, err := all.request(c, some, limit)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			for i, l := range some {
				wait = min(wait, l.q.heard(l.s, began, late, resp, i, every))
			}
			if time.Since(replied) > stallsFor {
				missed(some)
			}
		})
	}
	sending.Wait()
	switch {
	case failed != nil:
		c.log.Debug("clients cannot be asked whether they live", zap.Int("clients", len(looks)), zap.Error(failed))
		wait = max(wait, askEvery<<min(all.failures, 5))
		all.failures++
	case len(looks) > 0:
		all.replied, all.failures = clock.Mono(), 0
		all.trip.took(all.replied.Sub(began))
	}
	wait = max(wait, time.Millisecond)
	if all.next = clock.Mono().Add(wait); asked == 0 {
		all.next = clock.Mono().Add(askEvery) // for a caller that comes meanwhile
	}
	return wait
}

// request looks at some clients. It goes through etcd's consensus, as an answer does: what
// holds up the one holds up the other.
func (all *inquiries) request(c *Client, some []look, limit time.Duration) (*clientv3.TxnResponse, error) {
	in := &pb.TxnRequest{}
	for _, l := range some {
		in.Success = append(in.Success, txn.Nest(l.q.request(l.s)))
	}
	ctx, cancel := context.WithTimeout(c.io, limit)
	defer cancel()
	resp, err := c.store.Send(ctx, txn.Request{In: in})
	if err == nil {
		return resp, nil
	}
	ops := looksInside + len(some)
	split := wire.IsTooManyOps(err) && ops > txn.LeastOps
	if split {
		c.store.FewerOps(ops)
	}
	passing := split || ctx.Err() != nil || errors.Is(err, wire.ErrNoAnswer) || errors.Is(err, rpctypes.ErrLeaseNotFound)
	if !passing || time.Since(all.replied) > stallsFor {
		missed(some)
	}
	for _, l := range some {
		l.q.anew = true // the question may have been put all the same
	}
	return nil, err
}

// missed notes an outage of etcd, in which the clients may have lost their connections, too.
func missed(some []look) {
	for _, l := range some {
		l.q.least = afterOutage
	}
}
