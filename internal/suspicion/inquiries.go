package suspicion

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// mostWrongs bounds the clients that are remembered as suspected wrongly.
	mostWrongs = 1024
	// looksInside is how many operations etcd counts within each look of one request.
	looksInside = 2
)

// inquiries are the clients that are asked, each for all waiters of this client that are
// first in line behind one of its claims. One request asks all of them. No other mutex is
// taken while its own is held.
type inquiries struct {
	Config
	counters

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

// join adds a waiter to those that want to know whether a client lives.
func (all *inquiries) join(w *Accuser, instance string) {
	if w.asks(instance) {
		return
	}
	all.leave(w)
	w.forget() // what was heard of another client
	if all.Open.Err() != nil {
		return
	}
	all.mu.Lock()
	q := all.of[instance]
	if q == nil {
		q = all.newInquiry(instance)
		all.of[instance] = q
	}
	q.waiters[w], w.inquiry = struct{}{}, q
	first := !all.running
	all.running = true
	all.mu.Unlock()
	if first {
		all.Spawn(all.run)
	}
	select {
	case all.wake <- struct{}{}:
	default:
	}
}

// leave ends what join began.
func (all *inquiries) leave(w *Accuser) {
	if w.inquiry == nil {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(w.inquiry.waiters, w)
	w.inquiry = nil
}

// took notes that a waiter has taken its key.
func (all *inquiries) took(w *Accuser) {
	all.takenInAll.Add(1)
	all.mu.Lock()
	defer all.mu.Unlock()
	if w.inquiry != nil {
		w.inquiry.taken++
	}
}

// patience returns how long a client may leave a question unanswered, as patience does.
func (all *inquiries) patience(instance string, times ...time.Duration) time.Duration {
	all.mu.Lock()
	defer all.mu.Unlock()
	return patience(all.wrong[instance].left(clock.Mono()), times...)
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
	w := all.wrong[instance].another(now)
	all.wrong[instance] = w
	return suspectAfter << w.level
}

// run asks until no caller waits for an answer, and every suspicion is judged right or
// wrong.
func (all *inquiries) run() {
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
		case <-all.IO.Done():
			return
		}
		looks, over := all.looks()
		if over {
			return
		}
		timer.Reset(all.send(looks))
	}
}

// look is what one request does about one client: ask it for the waiters of a lease, or
// without one, look what became of it after its claims were taken.
type look struct {
	q  *inquiry
	on Lease
}

// looks returns what is to be done now, and whether the asking is over.
func (all *inquiries) looks() (due []look, over bool) {
	var ended []*inquiry
	all.mu.Lock()
	for instance, q := range all.of {
		var on Lease
		for w := range q.waiters {
			if !w.lease.Ended() {
				on = w.lease
				break
			}
		}
		switch {
		case on != nil:
			due = append(due, look{q, on})
		case len(q.waiters) > 0: // they are about to leave
		case q.taken == 0, all.Open.Err() != nil, q.on.Ended(): // the question goes with the lease
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
func (all *inquiries) send(looks []look) (wait time.Duration) {
	asked, every := 0, longestPace
	for _, l := range looks {
		if l.on != nil {
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
	for some := range slices.Chunk(looks, max(1, min(mostAnswers, all.Etcd.MaxOps()-looksInside))) {
		sending.Go(func() {
			resp, err := all.request(some, limit)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			for i, l := range some {
				wait = min(wait, l.q.heard(l.on, began, late, resp, i, every))
			}
			if time.Since(replied) > stallsFor {
				missed(some)
			}
		})
	}
	sending.Wait()
	switch {
	case failed != nil:
		all.Log.Debug("clients cannot be asked whether they live", zap.Int("clients", len(looks)), zap.Error(failed))
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
func (all *inquiries) request(some []look, limit time.Duration) (*clientv3.TxnResponse, error) {
	in := &pb.TxnRequest{}
	for _, l := range some {
		in.Success = append(in.Success, txn.Nest(l.q.request(l.on)))
	}
	ctx, cancel := context.WithTimeout(all.IO, limit)
	defer cancel()
	resp, err := all.Etcd.Send(ctx, txn.Request{In: in})
	if err == nil {
		return resp, nil
	}
	ops := looksInside + len(some)
	split := txn.IsTooManyOps(err) && ops > txn.LeastOps
	if split {
		all.Etcd.FewerOps(ops)
	}
	passing := split || ctx.Err() != nil || errors.Is(err, txn.ErrNoAnswer) || errors.Is(err, rpctypes.ErrLeaseNotFound)
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
