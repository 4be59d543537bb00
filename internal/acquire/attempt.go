package acquire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Attempt is one try of a call to claim a key, as package protocol knows it, with what the
// client needs to carry it out. One goroutine uses it at a time.
type Attempt struct {
	protocol.Try

	User  string // the key that the call is for
	S     *lease.Session
	Call  *Call
	Put   *beside.Put // what it puts under the key beside it, or nil
	since time.Time   // by the wall clock, for people
	ttl   int64       // of the session's lease, in seconds
	ac    *Acquirer

	overtakes  bool       // the last holder of what is beside it has died
	supersedes *term.Term // the own term that it supersedes, or nil
	with       []*Attempt // claim other keys in the same transaction

	Enqueues bool // whether a place in line may have been put
	unsure   bool // whether a request may still arrive
	answered bool // its unknown outcome was resolved, so no request of it arrives any more

	HandedAt int64         // revision at which a releaser handed it the key, or 0
	Noticed  bool          // it was handed the key, or may have been, by a notice
	Behind   protocol.Line // the waiters behind it, as far as known
	Trace    string        // what the holder that handed it the key has passed on

	hooked context.Context // for the hooks, or nil
}

// New begins an attempt for a key in the mode of the call, which its caller ends with End.
func (ac *Acquirer) New(s *lease.Session, mode protocol.Mode, o *Call) *Attempt {
	id, epoch := uuid.NewString(), ac.Store.Epoch()
	a := &Attempt{
		Try: protocol.Try{
			Layout: ac.Store.Layout, Mode: mode.For(id, epoch.Value), ID: id, Ticket: id,
			Lease: int64(s.ID()), Epoch: epoch, Ask: o.asks(),
		},
		User: mode.Keys().User, S: s, since: ac.Clock.Time(), ttl: int64(s.Grant().TTL / time.Second),
		Call: o, ac: ac, hooked: o.Hooked,
	}
	a.Describe()
	ac.Keys.Register(a.ID)
	return a
}

// End ends an attempt, whatever became of it.
func (a *Attempt) End() { a.ac.Keys.Unregister(a.ID) }

// AskedAt returns when the call asked for the key, by the wall clock.
func (a *Attempt) AskedAt() time.Time { return a.since }

// Claim returns the try.
func (a *Attempt) Claim() *protocol.Try { return &a.Try }

// Under has the attempt claim under an epoch.
func (a *Attempt) Under(e *txn.Epoch) {
	a.Epoch = e
	a.Describe()
}

// Handed returns what the attempt was granted by a holder of its own client.
func (a *Attempt) Handed(rev int64, behind protocol.Line, trace string) term.Grant {
	a.HandedAt, a.Behind, a.Trace = rev, behind, trace
	return a.grant(rev)
}

// HandedUnread notes that the attempt was handed the key, for all that is known: then
// there is a notice that was not read.
func (a *Attempt) HandedUnread() { a.Noticed, a.Behind = true, protocol.Unread }

// grant is the claim that the attempt has at a revision.
func (a *Attempt) grant(rev int64) term.Grant {
	o := a.Call
	return term.Grant{
		Given: term.Given{
			Since: a.since, Put: a.Put, MinHold: o.MinHold, MaxHold: o.MaxHold, Noted: o.Note != nil,
			Suspectable: o.Suspectable, Prefers: o.Prefers, Preference: o.Preference,
		},
		Try: &a.Try, Rev: rev, Session: a.S, Noticed: a.Noticed, From: o.From, Line: a.Behind,
	}
}

// Copied returns the attempt as it is now, for a cleanup that runs beside it.
func (a *Attempt) Copied() *Attempt {
	now := *a
	return &now
}

// Describe makes the value of the claim, and that of the key beside it.
func (a *Attempt) Describe() {
	if b := a.Call.Beside; b != nil {
		a.Put = b.Put(beside.Attempt{Claim: a.ID, Epoch: a.Epoch.Value, Since: a.since})
		a.Beside = &protocol.Beside{Key: a.Put.Key, Rev: b.Rev(), Value: a.Put.Value, Lease: int64(a.Put.Lease)}
	}
	a.Value = a.ac.value(a)
}

// Supersede makes the attempt take the key from a term of its own client, nil for none.
func (a *Attempt) Supersede(t *term.Term) {
	if a.supersedes, a.Over = t, nil; t != nil {
		a.Over = protocol.Supersede(&t.Held)
	}
}

// lineKey is the key of the attempt's line, and of its requests in round trips.
func (a *Attempt) lineKey() string { return a.Mode.Keys().Line }

// claimKey is the key whose etcd key is the claim.
func (a *Attempt) claimKey() string { return a.Mode.Keys().Claim }

// Learnt makes what the attempt has learnt of the key known to the call's next attempt.
func (a *Attempt) Learnt() { a.Call.Mode = a.Mode }

// judged returns the revision at which the attempt has the key, as the reply to a take shows. If it
// has not, judged finds out why from the reply or, if that is not enough, by another read. It then
// returns an error, which is nil if another attempt makes sense.
func (a *Attempt) judged(ctx context.Context, resp *clientv3.TxnResponse) (rev int64, err error) {
	taken := protocol.Take{Try: &a.Try}.Judge((*pb.TxnResponse)(resp))
	switch {
	case taken.Rev > 0:
		return taken.Rev, nil
	case taken.Seen != nil:
		return a.refused(ctx, *taken.Seen)
	case a.supersedes != nil && !a.supersedes.Found(a.supersedes.OfKey(taken.OwnKey)):
		if taken.Own == nil {
			return 0, nil // free
		}
		return 0, a.heldBy(ctx, taken.Own, 0)
	case a.supersedes == nil && taken.Own != nil:
		return 0, a.heldBy(ctx, taken.Own, 0)
	case a.Put != nil && a.Call.Beside.Changed(taken.Beside):
		return 0, nil
	}
	look := protocol.Look{Try: &a.Try}
	r := look.Build()
	r.Until = a.Call.Until
	resp, err = a.ac.Store.Send(ctx, r)
	if err != nil {
		if claimerr.IsPassing(err) {
			return 0, nil
		}
		return 0, txn.Failed(err)
	}
	v := look.Judge((*pb.TxnResponse)(resp))
	if a.supersedes != nil && a.Has(v) == 0 && !a.supersedes.Found(a.supersedes.OfEpoch(v.EpochKey)) && v.Own != nil {
		return 0, a.heldBy(ctx, v.Own, v.Waiting)
	}
	return a.refused(ctx, v)
}

// refused returns why the attempt does not have the key, as v shows: nil means to try again. Or it
// returns the revision at which it has the key after all.
func (a *Attempt) refused(ctx context.Context, v protocol.Seen) (rev int64, err error) {
	if rev := a.Has(v); rev > 0 {
		return rev, nil
	}
	st := a.ac.Store
	if err := st.LearnEpoch(v.EpochKey, v.Rev); err != nil {
		return 0, err
	}
	verdict, err := a.Judge(v, st.Epoch())
	a.Learnt()
	if err != nil {
		return 0, err
	}
	switch verdict.Outcome {
	case protocol.HeldByOther:
		return 0, a.heldBy(ctx, verdict.Own, verdict.Waiting)
	case protocol.OtherEpoch, protocol.OtherClaim:
		return 0, nil // see again who holds it
	}
	if a.Put != nil && a.Call.Beside.Changed(v.Beside) {
		return 0, nil
	}
	switch verdict.Outcome {
	case protocol.BehindLine:
		return 0, a.ac.Errors.Held(Holder{Key: a.User, Slots: a.Mode.Keys().Slots, Waiting: verdict.Waiting})
	case protocol.Unmet:
		if a.supersedes != nil {
			return 0, fmt.Errorf("%w: superseding the claim on %q", claimerr.ErrRefused, a.User)
		}
		return 0, claimerr.ErrRefused
	}
	return 0, nil // what stood in the way is gone already
}

// heldBy returns the error of an attempt that own excludes; see Acquirer.HeldBy.
func (a *Attempt) heldBy(ctx context.Context, own *mvccpb.KeyValue, waiting int64) error {
	h := a.HolderOf(own)
	h.Waiting = waiting
	return a.ac.HeldBy(ctx, h)
}

// HolderOf describes what holds the key that the call is for.
func (a *Attempt) HolderOf(own *mvccpb.KeyValue) Holder {
	h := Holder{Key: a.User, Own: own}
	if n := a.Mode.Keys().Slots; n > 0 && own != nil {
		if _, ok := a.Mode.At(own.Key, own.ModRevision); ok {
			h.Slots = n
		}
	}
	return h
}

// takeOnce is the request of a TryAcquire.
func (a *Attempt) takeOnce() txn.Request {
	r := protocol.Take{Try: &a.Try}.Build()
	r.Until = a.Call.Until
	if a.Call.ask != nil {
		r.Departed = &a.Call.ask.Departed
	}
	return r
}

// Send carries out a request of the attempt, resolving an unknown outcome; see settled.
func (a *Attempt) Send(ctx context.Context, r txn.Request) (*clientv3.TxnResponse, int64, error) {
	resp, err := a.ac.Store.Do(ctx, r)
	return a.settled(ctx, resp, err)
}

// settled resolves an unknown outcome of a request. It returns the reply, or with a nil one the
// revision at which the lost request succeeded, 0 if it did not.
func (a *Attempt) settled(ctx context.Context, resp *clientv3.TxnResponse, err error) (*clientv3.TxnResponse, int64, error) {
	if err == nil {
		return resp, 0, nil
	}
	if !errors.Is(err, txn.ErrUnknown) {
		return nil, 0, err
	}
	a.doubt(err)
	resolving, cancel := ctx, context.CancelFunc(func() {})
	if !a.Enqueues { // a call that does not wait in line has a time limit
		until := a.Call.Until
		if until.IsZero() {
			until = clock.Mono().Add(a.ac.Bound)
		}
		resolving, cancel = context.WithDeadline(ctx, until)
	}
	rev, rerr := a.resolve(resolving)
	cancel()
	if rerr != nil {
		a.Undo()
		if errors.Is(rerr, err) {
			return nil, 0, rerr
		}
		return nil, 0, fmt.Errorf("%w; it is undone in the background (%w)", err, txn.Failed(rerr))
	}
	if rev == 0 && a.answered {
		return nil, 0, txn.Failed(err)
	}
	if rev == 0 && a.Put != nil {
		a.Undo() // the claim may have come and gone, and what it put beside it would stay
	}
	return nil, rev, nil
}

// NamesLeases reports whether a request of the attempt can name other leases than its session's.
func (a *Attempt) NamesLeases() bool {
	return len(a.Call.Then) > 0 || a.Put != nil || a.Over != nil && a.Over.Notify != nil
}

// LeaseGone handles an answer that a lease does not exist: true means that another
// attempt, on other leases, makes sense.
func (a *Attempt) LeaseGone(ctx context.Context, err error) bool {
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false
	}
	return a.S.Gone(ctx, err, a.NamesLeases()) || a.Put != nil && a.Call.Beside.LeaseGone(a.Put, err)
}

// doubt notes that the outcome of a request is unknown. Others that wait for its
// answer need not wait until that is resolved.
func (a *Attempt) doubt(err error) {
	if a.Call.ask != nil {
		a.ac.asks.Answer(a.Call.ask, func() verdict { return verdict{again: true, err: txn.Failed(err)} })
	}
	a.unsure, a.answered = true, errors.Is(err, rpctypes.ErrNoSpace)
}

// number is the number of the attempt, of what has a key beside the claim.
func (a *Attempt) number() int {
	if a.Put == nil {
		return 0
	}
	return a.Put.Number
}
