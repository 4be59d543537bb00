package acquire

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Holder is what excludes a call: the holder of the key, or the line.
type Holder struct {
	Key     string
	Own     *mvccpb.KeyValue // nil: it is free, but others wait in line
	Waiting int64
	Slots   int   // the number of slots, if Own is the holder of one
	Shared  int64 // how many callers share the key
}

// Errors makes the errors by which callers see who excludes them.
type Errors interface {
	// Held returns the error of a call that is excluded, and HeldBy that of one that a claim of its own client excludes.
	Held(h Holder) error
	HeldBy(t *term.Term) error
	// ClaimOf returns the id of the holder in such an error, "" if it names none.
	ClaimOf(held error) string
	// Copy returns such an error for another caller.
	Copy(held error) error
	// Waited returns the error of a call whose context ended while it waited for a holder, and WaitedBehind while it waited
	// for a claim of its own client. t is nil, or h without a holder, if none is known.
	Waited(h Holder, cause error) error
	WaitedBehind(key string, t *term.Term, cause error) error
	// Explain names the call and the key of an error of an acquiring call, once.
	Explain(key string, err error) error
}

// Acquirer makes the attempts of a client's calls. Its methods are safe for concurrent use.
type Acquirer struct {
	*term.Terms
	Errors Errors
	// Began reports a term to its call's hooks.
	Began func(t *term.Term, hooked context.Context, tookOver bool, trace string)

	Attempts, Acquired, Contended atomic.Int64

	Names    Names
	asks     asks   // TryAcquires that are about to be sent
	valueEnd string // of the values of claims
}

// NewAcquirer returns one for a client.
func NewAcquirer(terms *term.Terms, errs Errors, began func(*term.Term, context.Context, bool, string)) *Acquirer {
	return &Acquirer{Terms: terms, Errors: errs, Began: began, valueEnd: valueEnd(terms.Owner, terms.Store.Layout.Instance)}
}

// Next is what a call does after an attempt.
type Next int

// What calls do.
const (
	Stop  Next = iota // the attempt has an answer
	Retry             // another attempt at once: this one has learnt something
	Later             // another attempt after a pause
)

// Result is how an attempt came out: with a term, or with what to do next and why it has none.
type Result struct {
	Term *term.Term
	Next Next
	Err  error
}

// RetryIf is a result without a term: another attempt makes sense, or not.
func RetryIf(again bool, err error) Result {
	switch {
	case !again:
		return Result{Err: err}
	case err == nil:
		return Result{Next: Retry}
	}
	return Result{Next: Later, Err: err}
}

// Make makes one attempt in a session with a reserved place.
type Make func(ctx context.Context, s *lease.Session, key string, o *Call) Result

// mostRefusals is how often a call for a shared key tries again without a pause: others put
// and delete its record all the time.
const mostRefusals = 32

// Try acquires the key if that needs no waiting for others.
func (ac *Acquirer) Try(ctx context.Context, key string, o *Call) (*term.Term, error) {
	shares := !o.HasOps() && !o.Supersede
	return ac.Loop(ctx, key, o, func(ctx context.Context) Result {
		if shares {
			return ac.together(ctx, key, o, ac.TryOnce)
		}
		return ac.Alone(ctx, key, o, ac.TryOnce)
	})
}

// Loop makes attempts until one has an answer, for as long as ctx and the
// call's own end allow.
func (ac *Acquirer) Loop(ctx context.Context, key string, o *Call, attempt func(context.Context) Result) (*term.Term, error) {
	closing := ac.Life.Open.Done()
	for try := 0; ; try++ {
		if try == 1 && !o.Until.IsZero() {
			// The first attempt keeps to its time without a context: most calls
			// need no clock of their own.
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, o.Until)
			defer cancel()
			defer ac.Outage.Await(key)()
		}
		if o.Reentrant {
			if t := ac.Share(key); t != nil {
				return t, nil
			}
		}
		if err := txn.ContextError(ctx); err != nil && try == 0 {
			return nil, ac.Life.Explain(fmt.Errorf("not attempted: %w", err)) // no request was sent
		}
		if o.Beside != nil {
			if err := o.Beside.Prepare(ctx); err != nil {
				if claimerr.IsPassing(err) && retry.PauseUnless(ctx, closing, try) {
					continue // no claim was tried for yet
				}
				return nil, ac.Life.Explain(txn.WithCause(ctx, err))
			}
		}
		r := ac.afterOwn(key, o, attempt(ctx))
		switch {
		case r.Term != nil:
			return r.Term, nil
		case r.Next == Stop:
			return nil, ac.Life.Explain(r.Err)
		case r.Next == Retry && (try < 3 || o.Mode.Keys().Mark != "" && try < mostRefusals):
			continue
		}
		if !retry.PauseUnless(ctx, closing, try) {
			return nil, ac.Life.Explain(txn.WithCause(ctx, r.Err))
		}
	}
}

// afterOwn is what a refusal means for a call that may have the key together with, or instead of, its own client.
func (ac *Acquirer) afterOwn(key string, o *Call, r Result) Result {
	if o.Reentrant && errors.Is(r.Err, claimerr.ErrHeld) {
		underWay := ac.Keys.IsUnderWay(ac.Errors.ClaimOf(r.Err)) // another goroutine was faster: it has the claim soon
		if t := ac.Share(key); t != nil {
			return Result{Term: t}
		}
		r = RetryIf(underWay, r.Err)
	}
	if o.Supersede && r.Next == Stop && ac.supersedable(r.Err, key) {
		r = RetryIf(true, r.Err)
	}
	return r
}

// supersedable reports whether a refusal names a claim of this client that it is about to have, has
// acquired meanwhile, or is still giving up. Then a call with Supersede tries again: it
// supersedes that claim, or the key will be free soon.
func (ac *Acquirer) supersedable(refusal error, key string) bool {
	claim := ac.Errors.ClaimOf(refusal)
	if claim == "" {
		return false
	}
	if ac.Keys.IsUnderWay(claim) {
		return true
	}
	t := ac.Keys.Term(key)
	return t != nil && t.ID == claim && t.IsHeld()
}

// Alone makes one attempt, which shares its answer with no other call.
func (ac *Acquirer) Alone(ctx context.Context, key string, o *Call, attempt Make) Result {
	s, err := ac.Pool.Session(ctx, o.TTL, o.Manual)
	if err != nil {
		// No claim was tried for yet: the outcome is known.
		return RetryIf(claimerr.IsPassing(err), txn.WithCause(ctx, txn.Failed(err)))
	}
	r := attempt(ctx, s, key, o)
	if r.Term == nil {
		s.Unreserve()
	}
	return r
}

// TryOnce takes the key or leaves it.
func (ac *Acquirer) TryOnce(ctx context.Context, s *lease.Session, key string, o *Call) Result {
	r := ac.tryOnce(ctx, s, key, o)
	if o.Lazy && r.Term != nil && !o.Supersede {
		ac.Keys.SetContended(key, false) // no caller was in line
	}
	return r
}

func (ac *Acquirer) tryOnce(ctx context.Context, s *lease.Session, key string, o *Call) Result {
	a := ac.New(s, o.Mode, o)
	defer a.End()
	if o.Supersede {
		a.Supersede(ac.Keys.Term(key))
	}
	if t, over := a.predecessor(); t != nil {
		return ac.succeed(ctx, a, t, over)
	}
	act := a.Drive(ctx, a, a.Step(protocol.Event{Kind: protocol.BeginTake}), nil)
	return ac.Conclude(ctx, a, &act)
}

// Grant makes the term of an attempt that succeeded, if its session is good for
// it.
func (ac *Acquirer) Grant(ctx context.Context, a *Attempt, rev int64) Result {
	t, err := ac.grant(ctx, a, rev)
	if err != nil && !errors.Is(err, claimerr.ErrLost) {
		err = txn.AfterSent(len(a.Call.Then) > 0, err) // they were carried out with the claim
	}
	return Result{Term: t, Err: err}
}

func (ac *Acquirer) grant(ctx context.Context, a *Attempt, rev int64) (*term.Term, error) {
	fence := a.Epoch.Fence(rev)
	if a.Call.Beside != nil {
		a.overtakes = a.Call.Beside.Granted(a.Supersedes != nil)
	}
	switch before := ac.Keys.Term(a.claimKey()); {
	case before == nil:
	case before.Fence > fence:
		// Word of a hand-over was on its way for so long that this client has
		// claimed the key anew meanwhile.
		a.Undo()
		return nil, claimerr.Loss{Reason: claimerr.Superseded}.Of(protocol.Token(a.Mode, fence))
	default:
		// Superseded on purpose, or taken away without this client noticing yet:
		// etcd has one owner.
		before.TakeAway(claimerr.Loss{Reason: claimerr.Superseded})
	}
	t := ac.Add(a.grant(rev))
	if t == nil {
		a.Undo()
		if ac.Life.Open.Err() != nil {
			return nil, claimerr.ErrClosed
		}
		return nil, a.S.LossOf(protocol.Token(a.Mode, fence))
	}
	return ac.Confirm(ctx, a, t)
}

// Confirm returns the term of an attempt that succeeded, if it is good to start
// work under.
func (ac *Acquirer) Confirm(ctx context.Context, a *Attempt, t *term.Term) (*term.Term, error) {
	if why, lost := ac.Keys.Taken(t.ID, t.Key); lost { // word of that has overtaken the reply
		t.TakeAway(why)
	}
	// A long wait or a slow answer has used up the time in which work may
	// start. Or the handoff notice took longer to arrive than a verification
	// takes, and the claim may have been taken away since.
	late := !a.S.Fresh() || a.HandedAt > 0 && a.HandedAt <= a.S.VerifiedAt()
	// The holder of a Manual claim may count on all of the lease, not on what the wait has left.
	if late || a.S.Manual() && !a.S.Young() {
		if err := ac.renewFirst(ctx, a, t); err != nil {
			return nil, err
		}
	}
	if err := t.Standing(); err != nil { // lost, or a ReleaseAll gives it up
		a.Undo()
		a.S.Again()
		return nil, err
	}
	if ac.Life.Open.Err() != nil {
		t.GiveUp(a.Undo)
		a.S.Again()
		return nil, claimerr.ErrClosed
	}
	t.Begin()
	ac.Acquired.Add(1)
	if a.hooked != nil {
		ac.Began(t, a.hooked, a.overtakes, a.Trace)
	}
	return t, nil
}

// renewFirst renews the session before work may start under the term, or gives the
// term up.
func (ac *Acquirer) renewFirst(ctx context.Context, a *Attempt, t *term.Term) error {
	renewing, cancel := ctx, context.CancelFunc(func() {})
	if !a.Call.Until.IsZero() {
		renewing, cancel = context.WithDeadline(ctx, a.Call.Until)
	}
	err := a.S.RenewVerified(renewing)
	cancel()
	if err == nil && a.S.Fresh() {
		return nil
	}
	t.GiveUp(a.Undo)
	a.S.Again()
	if cause := txn.ContextError(ctx); cause != nil {
		return cause
	}
	why := fmt.Errorf("it was not renewed before work may start: %w", errors.Join(err, claimerr.ErrSession))
	return claimerr.Loss{Reason: claimerr.SessionDead, Err: why}.Of(t.Token())
}

// HeldBy returns the error of a call that a holder excludes.
// Nil means that it was the record of a key without shared holders, and may be gone: to
// try again makes sense.
func (ac *Acquirer) HeldBy(ctx context.Context, h Holder) error {
	if !protocol.IsShared(h.Own) {
		return ac.Errors.Held(h)
	}
	n, err := ac.ClearShared(ctx, h.Key, h.Own)
	switch {
	case err != nil && !claimerr.IsPassing(err):
		return txn.Failed(err)
	case err != nil || n == 0:
		return nil
	}
	h.Shared = n
	return ac.Errors.Held(h)
}
