package term

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/lease"
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
	t     *Term
	long  func() time.Duration // how long the key must stay held from now on
	value string

	lease  clientv3.LeaseID // 0: none was granted yet, or it is used up
	unsure bool             // whether a put may have been carried out
}

// move returns the move of the term's key, for the rest of its MinHold at least.
func (t *Term) move(kind string, least time.Duration) *move {
	ts := t.terms
	value := protocol.Holder{
		Claim: t.ID, Owner: ts.Owner, Instance: ts.Store.Layout.Instance, Since: keyspace.TimeText(t.AskedAt()),
		Attempt: t.Number(), Kind: kind, Epoch: t.epoch(),
		TTL: int64(lease.Seconds(max(least, t.restLeft(), time.Second)) / time.Second),
	}.Encode()
	return &move{t: t, value: value, long: func() time.Duration { return max(least, t.restLeft()) }}
}

// grant gets the move a lease of its own.
func (m *move) grant(ctx context.Context) (err error) {
	if m.lease == clientv3.NoLease {
		m.lease, err = m.t.terms.grantOnce(ctx, max(m.long(), time.Second))
	}
	return err
}

// grantOnce grants a lease that is not renewed, in one attempt. If the reply is lost,
// the lease lapses without keys.
func (ts *Terms) grantOnce(ctx context.Context, d time.Duration) (clientv3.LeaseID, error) {
	resp, err := ts.Store.Grant(ctx, d)
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
		m.unsure = m.unsure || errors.Is(err, txn.ErrUnknown)
		return err
	case m.step().Judge((*pb.TxnResponse)(resp)):
		return nil
	}
	return claimerr.Loss{Reason: claimerr.Superseded}.Of(m.t.Token())
}

// carryOut tries until the key is moved, or lost, or ctx ends, or etcd refuses.
func (m *move) carryOut(ctx context.Context) error {
	for try := 0; ; try++ {
		err := m.carryOutOnce(ctx)
		switch {
		case err == nil || errors.Is(err, claimerr.ErrLost):
			return err
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			// the lease was used up by tries: another
		case !claimerr.IsPassing(err):
			return err
		}
		if !retry.PauseUnless(ctx, m.t.s.Dead(), try) {
			return txn.WithCause(ctx, err)
		}
	}
}

// carryOutOnce tries once.
func (m *move) carryOutOnce(ctx context.Context) error {
	err := m.grant(ctx)
	if err == nil {
		err = m.outcome(m.t.terms.Store.Do(ctx, m.step().Build()))
	}
	if err != nil && m.t.s.Gone(ctx, err, true) {
		return m.t.loss()
	}
	return err
}

// later continues the move in the background until it is done or the term's lease is
// gone. If the key need not be held any more, it frees the key.
func (m *move) later() {
	t := m.t
	t.terms.CleanUp(t.ID, &lease.Cleanup{Of: t.s, What: "holding a released claim for its MinHold", Do: func(ctx context.Context) error {
		if t.restLeft() <= 0 {
			return t.delete(ctx)
		}
		if err := m.carryOutOnce(ctx); !errors.Is(err, claimerr.ErrLost) {
			return err
		}
		return nil
	}})
}

// rest keeps a released key held, without a holder, for the rest of its MinHold. If ctx
// ends first, that continues in the background, and the key stays on the session's
// lease meanwhile.
func (t *Term) rest(ctx context.Context) error {
	t.terms.Local.Close(&t.local) // no waiter gets the key for a while
	m := t.move(protocol.KindResting, 0)
	err := m.carryOut(ctx)
	if errors.Is(err, claimerr.ErrLost) {
		t.loseReleased()
		return t.loss()
	}
	t.restsFrom(m, err)
	t.terms.countRelease(nil)
	if err != nil {
		err = fmt.Errorf("it is held for its MinHold, by a lease that is yet to be granted: %w", err)
		return errtext.Call("release", t.Token().Key, txn.Unknown(err))
	}
	return nil
}

// restsFrom ends a term whose key was moved. With an error it must still be moved.
func (t *Term) restsFrom(m *move, err error) {
	if err != nil {
		t.terms.Log.Debug("a released claim is yet to be put on a lease for its MinHold", t.Fields(zap.Error(err))...)
		m.later()
	}
	t.finish(claimerr.ErrReleased)
}

// restAll moves the keys of many terms, many to a request, and calls done with the result
// of each. Keys with about the same time left share a lease.
func (ts *Terms) restAll(ctx context.Context, terms []*Term, done func(m *move, err error)) {
	moves := make([]*move, len(terms))
	for i, t := range terms {
		t.terms.Local.Close(&t.local)
		moves[i] = t.move(protocol.KindResting, 0)
	}
	for try := 0; len(moves) > 0; try++ {
		if try == 1 { // the first takes as long as there are keys
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, ts.Bound)
			defer cancel()
		}
		var ready, again []*move
		var why error
		judge := func(m *move, err error) {
			if err != nil && (claimerr.IsPassing(err) || errors.Is(err, rpctypes.ErrLeaseNotFound)) {
				why, again = err, append(again, m)
				return
			}
			done(m, err)
		}
		refused := ts.grantShared(ctx, moves)
		for _, m := range moves {
			if m.lease == clientv3.NoLease {
				judge(m, refused)
				continue
			}
			ready = append(ready, m)
		}
		next := func(i int) (txn.Request, bool) { return ready[i].step().Build(), true }
		ts.Store.Each(ctx, len(ready), next, func(i int, resp *clientv3.TxnResponse, err error) {
			judge(ready[i], ready[i].outcome(resp, err))
		})
		if len(again) > 0 && !retry.PauseUnless(ctx, ts.Life.IO.Done(), try) {
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
func (ts *Terms) grantShared(ctx context.Context, moves []*move) (err error) {
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
			id, gerr := ts.grantOnce(ctx, d)
			mu.Lock()
			defer mu.Unlock()
			if gerr != nil {
				err = gerr
			}
			for _, m := range ms {
				m.lease = id
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
	n := int64(max(lease.Seconds(d)/time.Second, 1))
	shift := max(bits.Len64(uint64(n))-5, 0)
	return time.Duration((n+1<<shift-1)>>shift<<shift) * time.Second
}

// loseReleased ends a term that was being released, and was lost before.
func (t *Term) loseReleased() {
	t.back()
	t.TakeAway(claimerr.Loss{Reason: claimerr.Superseded})
}

// Zombie ends a term, in which a handler may still run, as lost.
func (t *Term) Zombie(why claimerr.Loss) {
	m := t.move(protocol.KindZombie, t.s.Grant().TTL)
	t.terms.CleanUp(t.ID, &lease.Cleanup{Of: t.s, What: "re-homing the claim of a handler that goes on", Do: func(ctx context.Context) error {
		if err := m.carryOutOnce(ctx); !errors.Is(err, claimerr.ErrLost) {
			return err
		}
		return nil
	}})
	t.back()
	t.TakeAway(why)
}
