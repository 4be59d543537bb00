package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
)

// Errors that calls return, to be tested with errors.Is. ErrHeld, ErrLost,
// ErrUnknown and ErrClosed also match the errors of the same name in package
// fencing, for code that does not import this package.
var (
	// ErrHeld is returned when the key is held, or when other callers wait in
	// line for it. The error is a *HeldError.
	ErrHeld = errtext.Namesake("etcdclaims: held by another", fencing.ErrHeld)
	// ErrRefused is returned when a condition given with If does not hold, or
	// when Forget finds the record in another state. Nothing was changed.
	ErrRefused = errors.New("etcdclaims: a given condition does not hold")
	// ErrLost is returned when the claim does not belong to this client any
	// more. The error is a *LostError. A lost claim never comes back: acquire
	// the key again for a new term.
	ErrLost = errtext.Namesake("etcdclaims: claim lost", fencing.ErrLost)
	// ErrReleased is returned when the caller is releasing or has released the
	// claim, or when the work has ended.
	ErrReleased = errors.New("etcdclaims: claim was released")
	// ErrUnknown is returned when a request was sent and its outcome is not
	// known. It may have been carried out, so do not treat it as a failure.
	ErrUnknown = txn.ErrUnknown
	// ErrDone is returned when the work is already done. The error is a
	// *WorkError.
	ErrDone = errors.New("etcdclaims: work is done")
	// ErrDead is returned when the work has failed for good. The error is a
	// *WorkError.
	ErrDead = errors.New("etcdclaims: work is dead")
	// ErrBackoff is returned when the work has failed and its next attempt is
	// not due yet. The error is a *WorkError.
	ErrBackoff = errors.New("etcdclaims: work waits for its next attempt")
	// ErrSuspected is the cause of a loss, in LostError.Err, if the client did not
	// answer and the claim was Suspectable: the first in line took the key. It is
	// missing if the client learns of the loss otherwise, as by a refused write.
	ErrSuspected = errors.New("etcdclaims: suspected")
	// ErrClosed is returned when the client has been closed.
	ErrClosed = errtext.Namesake("etcdclaims: client is closed", fencing.ErrClosed)
	// ErrNoRecord is returned when the work has no record: it was never begun,
	// or the record has expired or was deleted.
	ErrNoRecord = errors.New("etcdclaims: nothing is recorded of the work")
	// ErrInvalidKey is returned when a key is not UTF-8 of 1 to 1,024 bytes
	// without control characters. Calls that claim a key also return it for a key that is
	// blank, begins with sched/, queue/ or group/, or contains #slot- or #shared-: those
	// are kept for the claims of schedulers, queues, groups, Slots and Shared.
	ErrInvalidKey = errors.New("etcdclaims: invalid key")
	// ErrSlots is returned when a call with Slots asks for another number of slots
	// than the key has. ForceRelease returns it for a key with slots: release one
	// slot by its SlotKey. Resize changes the number.
	ErrSlots = protocol.ErrSlots
	// ErrTooLarge is returned when a request would exceed a limit of etcd or
	// of this package: too many operations, or too many bytes. Nothing was
	// changed.
	ErrTooLarge = txn.ErrTooLarge
	// ErrRewound is returned when etcd's revision went back, as after a
	// restore from a snapshot without --bump-revision. Fences could repeat;
	// see admin.RaiseEpoch.
	ErrRewound = errors.New("etcdclaims: etcd's revision went back")
	// ErrUnreachable is returned by Client.Health and Client.Unreachable while
	// etcd does not answer.
	ErrUnreachable = errors.New("etcdclaims: etcd unreachable")
	// ErrPermissionDenied is returned when etcd denies the client's user a
	// permission that a claim needs. The role was revoked, or the credentials
	// are missing or invalid. It wraps the error of etcd.
	//
	// A claim whose renewal is denied expires at its deadline. Its LostError
	// matches ErrPermissionDenied too.
	ErrPermissionDenied = txn.ErrPermissionDenied
	// ErrPassthrough is returned when a call needs etcd, and the client has
	// none.
	ErrPassthrough = passthrough.ErrPassthrough
)

// callError says of which call and key an error is, unless it says so itself.
func callError(call, key string, err error) error { return errtext.Call(call, key, err) }

// afterRelease names the call and the key if the error is ErrReleased. A LostError names the
// key itself.
func (cl *Claim) afterRelease(call string, err error) error {
	if err == ErrReleased { //nolint:errorlint // a wrapped one has its call
		return callError(call, cl.key, err)
	}
	return err
}

// bothErrors matches what either error does. Unlike that of errors.Join its text is
// one line.
func bothErrors(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return &twoErrors{a, b}
}

type twoErrors struct{ a, b error }

func (e *twoErrors) Error() string   { return errtext.OneLine(e.a.Error()) + "; " + errtext.Bare(e.b) }
func (e *twoErrors) Unwrap() []error { return []error{e.a, e.b} }

// Reason is why a claim was lost.
type Reason int

// How claims are lost.
const (
	// ReasonExpired means that the claim was not renewed in time.
	ReasonExpired Reason = iota + 1
	// ReasonDeleted means that the key was deleted, for example by
	// admin.ForceRelease.
	ReasonDeleted
	// ReasonSuperseded means that the key has a newer owner, or that the epoch
	// was raised; see admin.RaiseEpoch.
	ReasonSuperseded
	// ReasonRevoked means that the lease is gone although it was renewed in
	// time.
	ReasonRevoked
	// ReasonSessionDead means that the claims' shared lease could not be kept.
	// Err has the cause.
	ReasonSessionDead
	// ReasonMaxHold means that the claim reached its MaxHold.
	ReasonMaxHold
	// ReasonShutdown means that the client was closed.
	ReasonShutdown
	// ReasonOutlived means that the context given to Run has ended and the handler did
	// not return within its drain. Err has the cause of the context's end.
	ReasonOutlived

	reasons = int(ReasonOutlived) + 1
)

func (r Reason) String() string {
	switch r {
	case ReasonExpired:
		return "expired"
	case ReasonDeleted:
		return "deleted"
	case ReasonSuperseded:
		return "superseded"
	case ReasonRevoked:
		return "lease revoked"
	case ReasonSessionDead:
		return "session dead"
	case ReasonMaxHold:
		return "held for its maximum"
	case ReasonShutdown:
		return "shut down"
	case ReasonOutlived:
		return "its handler outlived its context"
	}
	return "unknown reason"
}

// LostError describes a lost claim. It matches ErrLost. It also matches
// context.Canceled, because it is the cause of the claim's context. So code that treats
// context.Canceled as an orderly end must test for ErrLost first.
type LostError struct {
	Token  fencing.Token
	Reason Reason
	Err    error // what is known beyond that, or nil
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("etcdclaims: claim on %q (fence %d) lost: %v", e.Token.Key, e.Token.Fence, e.Reason)
	if e.Token.Fence == 0 {
		// It was never this client's.
		s = fmt.Sprintf("acquire %q: the attempt was lost: %v", e.Token.Key, e.Reason)
	}
	if e.Err != nil {
		s += ": " + errtext.Bare(e.Err)
	}
	if e.Token.Fence == 0 {
		s += "; call again"
	}
	return s
}

// Is matches ErrLost and context.Canceled. The latter lets code that only
// knows contexts recognize the end of a claim's context.
func (e *LostError) Is(target error) bool {
	return target == context.Canceled || errors.Is(ErrLost, target)
}

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// WorkError is returned when work cannot be begun. It matches ErrDone, ErrDead
// or ErrBackoff, by the state of its record.
//
// RunWork and TryRunWork also return it when the attempt that they made has
// failed.
type WorkError struct {
	Record Record
	// Err is the error of the function that RunWork or TryRunWork called. Nil
	// if the function was not called.
	Err error
}

func (e *WorkError) Error() string {
	r := e.Record
	s := fmt.Sprintf("begin work %q: ", r.Key)
	if e.Err != nil {
		s = fmt.Sprintf("run work %q: ", r.Key)
	}
	switch r.State {
	case StateDone:
		return s + fmt.Sprintf("done by %s in attempt %d", r.Owner, r.Attempt)
	case StateDead:
		s += fmt.Sprintf("dead after attempt %d: ", r.Attempt)
	default:
		s += fmt.Sprintf("waiting until %s after attempt %d: ", r.NotBefore.Format(time.RFC3339), r.Attempt)
	}
	if e.Err != nil {
		return s + errtext.Bare(e.Err)
	}
	return s + errtext.OneLine(r.Error)
}

// Unwrap returns Err.
func (e *WorkError) Unwrap() error { return e.Err }

// Is matches ErrDone, ErrDead or ErrBackoff, by the state of the record.
func (e *WorkError) Is(target error) bool {
	switch e.Record.State {
	case StateDone:
		return target == ErrDone
	case StateDead:
		return target == ErrDead
	}
	return target == ErrBackoff
}

// endedError is returned when an attempt at work is ended that has ended before.
type endedError struct{ record Record }

func (e *endedError) Error() string {
	switch r := e.record; r.State {
	case StateDone:
		return fmt.Sprintf("completed already, in attempt %d", r.Attempt)
	case StateFree:
		return "given back already"
	default:
		return fmt.Sprintf("failed already, in attempt %d: %s", r.Attempt, errtext.OneLine(r.Error))
	}
}

// Is matches ErrReleased.
func (e *endedError) Is(target error) bool { return target == ErrReleased }

// Unwrap returns the outcome, unless the work was given back.
func (e *endedError) Unwrap() error {
	if e.record.State == StateFree {
		return nil
	}
	return &WorkError{Record: e.record}
}

// RetryAt returns when the work may be begun again. ok is false if the work is
// done or dead. Code that does not import this package can call it by an
// interface.
func (e *WorkError) RetryAt() (at time.Time, ok bool) {
	return e.Record.NotBefore, e.Record.State == StateFailed
}

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks an error as one that another attempt would not change. Work
// that fails with it is dead at once. Pass it to Work.Fail, or return it from
// a handler.
//
// Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

// IsPermanent reports whether err, or an error that it wraps, was marked by
// Permanent.
func IsPermanent(err error) bool {
	var permanent permanentError
	return errors.As(err, &permanent)
}

// RetryDelay returns the delay that RetryAfter attached to err. ok is false if
// there is none.
func RetryDelay(err error) (d time.Duration, ok bool) {
	var after retryAfterError
	if !errors.As(err, &after) {
		return 0, false
	}
	return after.after, true
}

type retryAfterError struct {
	error
	after time.Duration
}

func (e retryAfterError) Unwrap() error { return e.error }

// RetryAfter attaches a delay to an error. After work has failed with it, the
// next attempt may begin d later; Config.Backoff does not apply. Pass it to
// Work.Fail, or return it from a handler. A negative d means 0.
//
// RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return retryAfterError{err, max(d, 0)}
}
