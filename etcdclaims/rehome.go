package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// move puts a key, under its guard, on a lease that is not renewed. The fence rises, so
// writes under the old one are refused. The key stays held until that lease lapses. It
// is kept from try to try, since it knows what a lost request may have done.
type move struct {
	t     *term
	long  func() time.Duration // how long the key must stay held from now on
	value string

	lease  clientv3.LeaseID // 0: none was granted yet, or it is used up
	unsure bool             // whether a put may have been carried out
}

// move returns the move of the term's key, for the rest of its MinHold at least.
func (t *term) move(kind string, least time.Duration) *move {
	c := t.s.c
	value := protocol.Holder{
		Claim: t.ID, Owner: c.cfg.Owner, Instance: c.store.Layout.Instance, Since: keyspace.TimeText(t.since), Attempt: t.attempt(), Kind: kind, TTL: int64(seconds(max(least, t.rests(), time.Second)) / time.Second), Epoch: t.Fence >> epochShift,
	}.Encode()
	return &move{t: t, value: value, long: func() time.Duration { return max(least, t.rests()) }}
}

// grant gets the move a lease of its own.
func (m *move) grant(ctx context.Context) (err error) {
	if m.lease == clientv3.NoLease {
		txn.SendTimerOf(ctx).Start()
		m.lease, err = m.t.s.c.grantOnce(ctx, max(m.long(), time.Second))
	}
	return err
}

// grantOnce grants a lease that is not renewed, in one attempt. If the reply is lost,
// the lease lapses without keys.
func (c *Client) grantOnce(ctx context.Context, d time.Duration) (clientv3.LeaseID, error) {
	resp, err := c.store.Grant(ctx, d)
	if err != nil {
		return 0, fmt.Errorf("granting a lease: %w", err)
	}
	return resp.ID, nil
}

func (m *move) step() protocol.Move {
	return protocol.Move{Held: &m.t.Held, To: m.value, Lease: int64(m.lease), Unsure: m.unsure}
}

// outcome judges the reply to the request: nil if the key was moved, a LostError if it
// is not the term's any more, and else why another try is due.
func (m *move) outcome(resp *clientv3.TxnResponse, err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		m.lease = clientv3.NoLease // the new one, unless the term's own is gone
		return err
	case err != nil:
		m.unsure = m.unsure || errors.Is(err, ErrUnknown)
		return err
	case m.step().Judge((*pb.TxnResponse)(resp)):
		return nil
	}
	return &LostError{Token: m.t.Token(), Reason: ReasonSuperseded}
}

// carryOut tries until the key is moved, or lost, or ctx ends, or etcd refuses.
func (m *move) carryOut(ctx context.Context) error {
	s := m.t.s
	for try := 0; ; try++ {
		err := m.grant(ctx)
		if err == nil {
			err = m.outcome(s.c.store.Do(ctx, m.step().Build()))
		}
		switch {
		case err == nil || errors.Is(err, ErrLost):
			return err
		case s.gone(ctx, err, true):
			return m.t.lost()
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			// the lease was used up by tries: another
		case !isPassing(err):
			return err
		}
		if !retry.PauseUnless(ctx, s.dead, try) {
			return txn.WithCause(ctx, err)
		}
	}
}

// later continues the move in the background until it is done or the term's lease is
// gone. If the key need not be held any more, it frees the key.
func (m *move) later() {
	t := m.t
	t.s.c.addCleanup(&cleanup{s: t.s, claim: t.ID, what: "holding a released claim for its MinHold", do: func(ctx context.Context) error {
		if t.rests() <= 0 {
			return t.delete(ctx)
		}
		if err := m.carryOut(ctx); !errors.Is(err, ErrLost) {
			return err
		}
		return nil
	}})
}

// rest keeps a released key held, without a holder, for the rest of its MinHold. If ctx
// ends first, that continues in the background, and the key stays on the session's
// lease meanwhile.
func (t *term) rest(ctx context.Context) error {
	t.s.c.local.Close(&t.local) // no waiter gets the key for a while
	m := t.move(protocol.KindResting, 0)
	err := m.carryOut(ctx)
	if errors.Is(err, ErrLost) {
		t.loseReleased()
		return t.lost()
	}
	t.restsFrom(m, err)
	t.s.c.countRelease(t, nil)
	if err != nil {
		return callError("release", t.Token().Key, txn.Unknown(fmt.Errorf("it is held for its MinHold, by a lease that is yet to be granted: %w", err)))
	}
	return nil
}

// restsFrom ends a term whose key was moved. With an error it must still be moved.
func (t *term) restsFrom(m *move, err error) {
	if err != nil {
		t.s.c.log.Debug("a released claim is yet to be put on a lease for its MinHold", t.fields(zap.Error(err))...)
		m.later()
	}
	t.finish(ErrReleased)
}

// restAll moves the keys of many terms, many to a request, and calls done with the result
// of each. Keys with about the same time left share a lease.
func (c *Client) restAll(ctx context.Context, terms []*term, done func(m *move, err error)) {
	moves := make([]*move, len(terms))
	for i, t := range terms {
		t.s.c.local.Close(&t.local)
		moves[i] = t.move(protocol.KindResting, 0)
	}
	for try := 0; len(moves) > 0; try++ {
		if try == 1 { // the first takes as long as there are keys
			var cancel context.CancelFunc
			ctx, cancel = c.bounded(ctx)
			defer cancel()
		}
		var ready, again []*move
		var why error
		judge := func(m *move, err error) {
			if err != nil && (isPassing(err) || errors.Is(err, rpctypes.ErrLeaseNotFound)) {
				why, again = err, append(again, m)
				return
			}
			done(m, err)
		}
		refused := c.grantShared(ctx, moves)
		for _, m := range moves {
			if m.lease == clientv3.NoLease {
				judge(m, refused)
				continue
			}
			ready = append(ready, m)
		}
		next := func(i int) (txn.Request, bool) { return ready[i].step().Build(), true }
		c.store.Each(ctx, len(ready), next, func(i int, resp *clientv3.TxnResponse, err error) {
			judge(ready[i], ready[i].outcome(resp, err))
		})
		if len(again) > 0 && !retry.PauseUnless(ctx, c.io.Done(), try) {
			for _, m := range again {
				done(m, txn.WithCause(ctx, why))
			}
			return
		}
		moves = again
	}
}

// grantShared gets each move that has no lease one of those that it grants. It returns
// why some have no lease yet.
func (c *Client) grantShared(ctx context.Context, moves []*move) (err error) {
	const atOnce = 32
	groups := make(map[time.Duration][]*move)
	for _, m := range moves {
		if m.lease == clientv3.NoLease {
			d := sharedSeconds(m.long())
			groups[d] = append(groups[d], m)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	room := make(chan struct{}, atOnce)
	for d, ms := range groups {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			lease, gerr := c.grantOnce(ctx, d)
			mu.Lock()
			defer mu.Unlock()
			if gerr != nil {
				err = gerr
			}
			for _, m := range ms {
				m.lease = lease
			}
		})
	}
	wg.Wait()
	return err
}

// sharedSeconds rounds up, so that keys with about the same time left have the same
// time: full seconds below 32 s, and beyond that so that no more than a sixteenth
// is added.
func sharedSeconds(d time.Duration) time.Duration {
	n := int64(max(seconds(d)/time.Second, 1))
	shift := max(bits.Len64(uint64(n))-5, 0)
	return time.Duration((n+1<<shift-1)>>shift<<shift) * time.Second
}

// loseReleased ends a term that was being released, and was lost before.
func (t *term) loseReleased() {
	t.back()
	t.lose(ReasonSuperseded, nil)
}

// overMax reports whether the term's MaxHold is over, by clocks that count the time for
// which the machine slept.
func (t *term) overMax() bool {
	if t.max == 0 {
		return false
	}
	held, _ := t.s.c.clock.Now().Since(t.granted)
	return held >= t.max
}

// afterSleep sets the timers of MaxHold anew: they have not counted the time for which the
// machine slept.
func (s *session) afterSleep() {
	now := s.c.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.lease.Load()
	for _, t := range s.terms {
		if t.max > 0 && t.phase == phaseHeld {
			held, _ := now.Since(t.granted)
			t.soft.Reset(max(t.max-(g.hard-g.soft)-held, 0))
			t.limit.Reset(max(t.max-held, 0))
		}
	}
}

// tooLong ends a term at its MaxHold. Its handler may still run, so the key is
// re-homed, not freed.
func (t *term) tooLong() {
	t.s.mu.Lock()
	err := t.beginLossLocked()
	t.overdue = true
	t.s.mu.Unlock()
	if err == nil {
		t.s.c.zombie(t, ReasonMaxHold, nil)
	}
}

// zombie ends a term, in which a handler may still run, as lost for the reason.
func (c *Client) zombie(t *term, reason Reason, cause error) {
	m := t.move(protocol.KindZombie, t.s.lease.Load().ttl)
	c.addCleanup(&cleanup{s: t.s, claim: t.ID, what: "re-homing the claim of a handler that goes on", do: func(ctx context.Context) error {
		if err := m.carryOut(ctx); !errors.Is(err, ErrLost) {
			return err
		}
		return nil
	}})
	t.back()
	t.lose(reason, cause)
}
