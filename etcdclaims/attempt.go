package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// attempt is one try of a call to claim a key, as package protocol knows it, with what the
// client needs to carry it out.
type attempt struct {
	protocol.Try

	user       string // the key that the call is for
	s          *session
	since      time.Time // by the wall clock, for people
	ttl        int64     // of the session's lease, in seconds
	opts       *acquireOptions
	put        *beside.Put // what it puts under the key beside it, or nil
	overtakes  bool        // the last holder of that has died
	supersedes *term       // the own term that it supersedes, or nil
	with       []*attempt  // claim other keys in the same transaction

	turnOver func() // ends its turn to put the record of a shared key

	enqueues bool          // whether a place in line may have been put
	unsure   bool          // whether a request may still arrive
	answered bool          // its unknown outcome was resolved, so no request of it arrives any more
	granted  int64         // revision at which a releaser handed it the key, or 0
	noticed  bool          // it was handed the key, or may have been, by a notice
	line     protocol.Line // the waiters behind it, as far as known

	hooked context.Context // for the hooks, or nil
	trace  string          // what the holder that handed it the key has passed on
}

// newAttempt begins an attempt for a key in the mode of the call, which its caller ends with
// unregister.
func (c *Client) newAttempt(s *session, mode protocol.Mode, o *acquireOptions) *attempt {
	id, epoch := uuid.NewString(), c.store.Epoch()
	a := &attempt{
		Try: protocol.Try{
			Layout: c.store.Layout, Mode: mode.For(id, epoch.Value), ID: id, Ticket: id,
			Lease: int64(s.id), Epoch: epoch, Ask: o.asks(),
		},
		user: mode.Keys().User, s: s, since: c.clock.Time(), ttl: int64(s.lease.Load().ttl / time.Second),
		opts: o, hooked: o.hooked, turnOver: func() {},
	}
	a.describe()
	c.keys.Register(a.ID)
	return a
}

// asks is what the call asks for beside the key.
func (o *acquireOptions) asks() protocol.Ask {
	ask := protocol.Ask{Concern: o.concern}
	if len(o.cmps)+len(o.ops) > 0 {
		in := txn.Of(o.cmps, o.ops, nil)
		ask.If, ask.Then = in.Compare, in.Success
	}
	if o.note != nil {
		ask.Note = protocol.NewNote(1, o.note)
	}
	return ask
}

// copied returns the attempt as it is now, for a cleanup that runs beside it.
func (a *attempt) copied() *attempt {
	now := *a
	return &now
}

// describe makes the value of the claim, and that of the key beside it.
func (a *attempt) describe() {
	if a.opts.beside != nil {
		a.put = a.opts.beside.Put(beside.Attempt{Claim: a.ID, Epoch: a.Epoch.Value, Since: a.since})
		a.Beside = &protocol.Beside{Key: a.put.Key, Rev: a.opts.beside.Rev(), Value: a.put.Value, Lease: int64(a.put.Lease)}
	}
	a.Value = a.s.c.claimValue(a)
}

// supersede makes the attempt take the key from a term of its own client, nil for none.
func (a *attempt) supersede(t *term) {
	if a.supersedes, a.Over = t, nil; t != nil {
		a.Over = protocol.Supersede(&t.Held)
	}
}

// lineKey is the key of the attempt's line, and of its requests in round trips.
func (a *attempt) lineKey() string { return a.Mode.Keys().Line }

// claimKey is the key whose etcd key is the claim.
func (a *attempt) claimKey() string { return a.Mode.Keys().Claim }

// learnt makes what the attempt has learnt of the key known to the call's next attempt.
func (a *attempt) learnt() { a.opts.mode = a.Mode }

// judged returns the revision at which the attempt has the key, as the reply to a take shows. If it
// has not, judged finds out why from the reply or, if that is not enough, by another read. It then
// returns an error, which is nil if another attempt makes sense.
func (a *attempt) judged(ctx context.Context, resp *clientv3.TxnResponse) (rev int64, err error) {
	taken := protocol.Take{Try: &a.Try}.Judge((*pb.TxnResponse)(resp))
	switch {
	case taken.Rev > 0:
		return taken.Rev, nil
	case taken.Seen != nil:
		return a.refused(ctx, *taken.Seen)
	case a.supersedes != nil && !a.supersedes.found(a.supersedes.OfKey(taken.OwnKey)):
		if taken.Own == nil {
			return 0, nil // free
		}
		return 0, a.heldBy(ctx, taken.Own, 0)
	case a.supersedes == nil && taken.Own != nil:
		return 0, a.heldBy(ctx, taken.Own, 0)
	case a.put != nil && a.opts.beside.Changed(taken.Beside):
		return 0, nil
	}
	c, look := a.s.c, protocol.Look{Try: &a.Try}
	r := look.Build()
	r.Until = a.opts.until
	resp, err = c.store.Send(ctx, r)
	if err != nil {
		if isPassing(err) {
			return 0, nil
		}
		return 0, txn.Failed(err)
	}
	v := look.Judge((*pb.TxnResponse)(resp))
	if a.supersedes != nil && a.Has(v) == 0 && !a.supersedes.found(a.supersedes.OfEpoch(v.EpochKey)) && v.Own != nil {
		return 0, a.heldBy(ctx, v.Own, v.Waiting)
	}
	return a.refused(ctx, v)
}

// refused returns why the attempt does not have the key, as v shows: nil means to try again. Or it
// returns the revision at which it has the key after all.
func (a *attempt) refused(ctx context.Context, v protocol.Seen) (rev int64, err error) {
	if rev := a.Has(v); rev > 0 {
		return rev, nil
	}
	st := a.s.c.store
	if err := st.LearnEpoch(v.EpochKey, v.Rev); err != nil {
		return 0, err
	}
	verdict, err := a.Judge(v, st.Epoch())
	a.learnt()
	if err != nil {
		return 0, err
	}
	switch verdict.Outcome {
	case protocol.HeldByOther:
		return 0, a.heldBy(ctx, verdict.Own, verdict.Waiting)
	case protocol.OtherEpoch, protocol.OtherClaim:
		return 0, nil // see again who holds it
	}
	if a.put != nil && a.opts.beside.Changed(v.Beside) {
		return 0, nil
	}
	switch verdict.Outcome {
	case protocol.BehindLine:
		return 0, &HeldError{Info: Info{Key: a.user, Slots: a.Mode.Keys().Slots, Waiting: verdict.Waiting}}
	case protocol.Unmet:
		if a.supersedes != nil {
			return 0, fmt.Errorf("%w: superseding the claim on %q", ErrRefused, a.user)
		}
		return 0, ErrRefused
	}
	return 0, nil // what stood in the way is gone already
}

// heldBy returns the error of an attempt that own excludes; see Client.heldBy.
func (a *attempt) heldBy(ctx context.Context, own *mvccpb.KeyValue, waiting int64) error {
	i := a.holderOf(own)
	i.Waiting = waiting
	return a.s.c.heldBy(ctx, own, i)
}

// holderOf describes what holds the key that the call is for.
func (a *attempt) holderOf(own *mvccpb.KeyValue) Info {
	i := a.s.c.info(a.user, own, nil, 0)
	if n := a.Mode.Keys().Slots; n > 0 {
		if _, ok := a.Mode.At(own.Key, own.ModRevision); ok {
			i.Slots = n
		}
	}
	return i
}

// takeOnce is the request of a TryAcquire.
func (a *attempt) takeOnce() txn.Request {
	r := protocol.Take{Try: &a.Try}.Build()
	r.Until = a.opts.until
	if a.opts.ask != nil {
		r.Departed = &a.opts.ask.Departed
	}
	return r
}

// send carries out a request of the attempt, resolving an unknown outcome; see settled.
func (a *attempt) send(ctx context.Context, r txn.Request) (*clientv3.TxnResponse, int64, error) {
	resp, err := a.s.c.store.Do(ctx, r)
	return a.settled(ctx, resp, err)
}

// settled resolves an unknown outcome of a request. It returns the reply, or with a nil one the
// revision at which the lost request succeeded, 0 if it did not.
func (a *attempt) settled(ctx context.Context, resp *clientv3.TxnResponse, err error) (*clientv3.TxnResponse, int64, error) {
	if err == nil {
		return resp, 0, nil
	}
	if !errors.Is(err, ErrUnknown) {
		return nil, 0, err
	}
	a.doubt(err)
	resolving, cancel := ctx, context.CancelFunc(func() {})
	if !a.enqueues { // a call that does not wait in line has a time limit
		until := a.opts.until
		if until.IsZero() {
			until = clock.Mono().Add(a.s.c.bound())
		}
		resolving, cancel = context.WithDeadline(ctx, until)
	}
	rev, rerr := a.resolve(resolving)
	cancel()
	if rerr != nil {
		a.undo()
		if errors.Is(rerr, err) {
			return nil, 0, rerr
		}
		return nil, 0, fmt.Errorf("%w; it is undone in the background (%w)", err, txn.Failed(rerr))
	}
	if rev == 0 && a.answered {
		return nil, 0, txn.Failed(err)
	}
	if rev == 0 && a.put != nil {
		a.undo() // the claim may have come and gone, and what it put beside it would stay
	}
	return nil, rev, nil
}

// namesLeases reports whether a request of the attempt can name other leases than its session's.
func (a *attempt) namesLeases() bool {
	return len(a.opts.ops) > 0 || a.put != nil || a.Over != nil && a.Over.Notify != nil
}

// leaseGone handles an answer that a lease does not exist: true means that another
// attempt, on other leases, makes sense.
func (a *attempt) leaseGone(ctx context.Context, err error) bool {
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false
	}
	return a.s.gone(ctx, err, a.namesLeases()) || a.put != nil && a.opts.beside.LeaseGone(a.put, err)
}

// doubt notes that the outcome of a request is unknown. Others that wait for its
// answer need not wait until that is resolved.
func (a *attempt) doubt(err error) {
	if a.opts.ask != nil {
		a.s.c.asks.Answer(a.opts.ask, func() verdict { return verdict{again: true, err: txn.Failed(err)} })
	}
	a.unsure, a.answered = true, errors.Is(err, rpctypes.ErrNoSpace)
}
