package acquire

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Decider decides what an attempt does next: its protocol.Acquisition, or a protocol.AllOrNone of several.
type Decider interface {
	Step(ev protocol.Event) protocol.Action
}

// InLine is what an attempt that may wait in line has more than others. The goroutine of the attempt calls it.
type InLine interface {
	// Before is called before each action of an attempt that has had a place in line, except the end.
	Before(ctx context.Context, do protocol.Do)
	// Barred reports whether the error of an Advance concerns only the way in which the attempt was to take the key.
	Barred(err error) bool
	// Await waits at a position in line. It steps the attempt by what it hears, until that leads to an action.
	Await(ctx context.Context, p protocol.Position) protocol.Action
}

// Drive carries out act, and what follows from it, until the attempt has ended. It begins the cleanup that
// is due then. in is nil for an attempt that does not wait in line.
func (a *Attempt) Drive(ctx context.Context, by Decider, act protocol.Action, in InLine) protocol.Action {
	st := a.ac.Store
	sending, cancel := ctx, context.CancelFunc(nil)
	defer func() {
		if cancel != nil {
			cancel()
		}
	}()
	var last error // why the last request failed
	for a.note(&act); act.Do != protocol.DoEnd; a.note(&act) {
		if a.Placed() {
			in.Before(ctx, act.Do)
		}
		switch act.Do {
		case protocol.DoSend:
			if in == nil && a.Phase() == protocol.Confirming && cancel == nil {
				sending, cancel = a.limited(ctx) // a call that does not wait in line has a time limit
			}
			var resp *clientv3.TxnResponse
			resp, last = st.Do(sending, a.request(&act))
			act = by.Step(a.answer(sending, resp, last, in))
		case protocol.DoQuery:
			resp, err := st.Send(ctx, a.request(&act))
			act = by.Step(queried(resp, err))
		case protocol.DoLearn:
			ev := protocol.Event{Kind: protocol.Learnt}
			if err := st.LearnEpoch(act.EpochKey, act.Rev); err != nil {
				ev = protocol.Event{Kind: protocol.Failed, Err: err}
			}
			ev.Epoch = st.Epoch()
			act = by.Step(ev)
		case protocol.DoPrepare:
			act = by.Step(a.prepare(ctx))
		case protocol.DoPause:
			ev := protocol.Event{Kind: protocol.Resumed}
			if !retry.PauseUnless(sending, a.S.Dead(), act.Pauses) {
				ev = a.Cut(sending, last)
			}
			act = by.Step(ev)
		case protocol.DoWait:
			act = in.Await(ctx, act.Position)
		}
	}
	if act.Undo {
		a.Undo()
	}
	if act.End != protocol.AnswerWon {
		a.Call.Mode = a.Mode // its next attempt knows what this one has learnt of the key
	}
	return act
}

// limited returns ctx with the time limit of the call.
func (a *Attempt) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	until := a.Call.Until
	if until.IsZero() {
		until = clock.Mono().Add(a.ac.Bound)
	}
	return context.WithDeadline(ctx, until)
}

// request returns the request of an action, with what the call has to add.
func (a *Attempt) request(act *protocol.Action) txn.Request {
	r := act.Request
	r.Until = a.Call.Until
	if a.Call.ask != nil && a.Phase() == protocol.Taking {
		r.Departed = &a.Call.ask.Departed
	}
	if r.Void != nil {
		a.S.Voided(a.Ticket)
	}
	return r
}

// note takes over what the attempt has found out on its way to an action.
func (a *Attempt) note(act *protocol.Action) {
	if act.Found != protocol.Kept {
		a.supersedes.Found(act.Found)
	}
	if act.News {
		a.Call.Beside.Changed(act.Beside)
	}
}

// answer is the event of an answer to a request that may claim the key.
func (a *Attempt) answer(ctx context.Context, resp *clientv3.TxnResponse, err error, in InLine) protocol.Event {
	if err == nil {
		return protocol.Event{Kind: protocol.Replied, Reply: (*pb.TxnResponse)(resp)}
	}
	return protocol.Event{Kind: protocol.Failed, Class: a.classOf(ctx, err, in), Err: err}
}

func (a *Attempt) classOf(ctx context.Context, err error, in InLine) protocol.Class {
	phase := a.Phase()
	switch {
	case errors.Is(err, txn.ErrUnknown):
		if a.Call.ask != nil { // others that wait for its answer need not wait until that is resolved
			a.ac.asks.Answer(a.Call.ask, func() verdict { return verdict{again: true, err: txn.Failed(err)} })
		}
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return protocol.NoSpace
		}
		return protocol.Unknown
	case a.S.Gone(ctx, err, phase != protocol.Confirming && a.NamesLeases()):
		return protocol.SessionGone
	case phase == protocol.Advancing && in.Barred(err):
		return protocol.Barred
	case errors.Is(err, rpctypes.ErrLeaseNotFound) && a.Put != nil && a.Call.Beside.LeaseGone(a.Put, err):
		return protocol.LeaseGone
	case txn.IsTransient(err):
		return protocol.Transient
	}
	return protocol.Refused
}

// queried is the event of an answer to a request that puts nothing of the attempt.
func queried(resp *clientv3.TxnResponse, err error) protocol.Event {
	switch {
	case err == nil:
		return protocol.Event{Kind: protocol.Replied, Reply: (*pb.TxnResponse)(resp)}
	case claimerr.IsPassing(err):
		return protocol.Event{Kind: protocol.Failed, Class: protocol.Passing, Err: err}
	}
	return protocol.Event{Kind: protocol.Failed, Err: txn.Failed(err)}
}

// prepare makes what another request of the attempt puts.
func (a *Attempt) prepare(ctx context.Context) protocol.Event {
	if a.Put != nil {
		if err := a.Call.Beside.Prepare(ctx); err != nil {
			ev := queried(nil, err)
			ev.Err = err
			return ev
		}
	}
	a.Describe()
	return protocol.Event{Kind: protocol.Prepared}
}

// Cut is the event of an attempt that cannot go on, because its session or its caller's context has ended. last is why
// its last request failed, or nil.
func (a *Attempt) Cut(ctx context.Context, last error) protocol.Event {
	if a.S.Ended() {
		return protocol.Event{Kind: protocol.SessionEnded, Err: cmp.Or(last, claimerr.ErrSession)}
	}
	return protocol.Event{Kind: protocol.TimeUp, Err: txn.WithCause(ctx, last)}
}

// Conclude makes of the end of an attempt its result.
func (ac *Acquirer) Conclude(ctx context.Context, a *Attempt, act *protocol.Action) Result {
	switch act.End {
	case protocol.AnswerWon:
		return ac.Grant(ctx, a, act.Rev)
	case protocol.AnswerAgain:
		return Result{Next: Retry}
	case protocol.AnswerLater:
		return Result{Next: Later, Err: act.Err}
	case protocol.AnswerHeld, protocol.AnswerBehind:
		return Result{Err: a.excluded(act)}
	case protocol.AnswerUnmet:
		switch {
		case a.Supersedes != nil:
			return Result{Err: fmt.Errorf("%w: superseding the claim on %q", claimerr.ErrRefused, a.User)}
		case a.Placed():
			return Result{Err: fmt.Errorf("%w: acquiring %q", claimerr.ErrRefused, a.User)}
		}
		return Result{Err: claimerr.ErrRefused}
	case protocol.AnswerUnsettled:
		return Result{Err: unsettled(act)}
	}
	return Result{Err: act.Err}
}

// excluded is the error of an attempt that a holder, or the line, excludes.
func (a *Attempt) excluded(act *protocol.Action) error {
	h := a.HolderOf(act.Own)
	h.Waiting, h.Shared = act.Waiting, act.Sharers
	if act.Own == nil {
		h.Slots = a.Mode.Keys().Slots
	}
	return a.ac.Errors.Held(h)
}

// unsettled is the error of an attempt whose outcome cannot be found out.
func unsettled(act *protocol.Action) error {
	why := act.Why
	if errors.Is(why, rpctypes.ErrLeaseNotFound) { // a caller that retries then must not retry this
		why = errors.New(errtext.Bare(why))
	}
	if why = txn.Unknown(why); errors.Is(why, act.Err) {
		return why
	}
	return fmt.Errorf("%w; it is undone in the background (%w)", act.Err, txn.Failed(why))
}
