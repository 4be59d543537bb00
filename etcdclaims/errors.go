package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// What a call can end with. Test with errors.Is. ErrHeld, ErrLost, ErrUnknown and
// ErrClosed match their namesakes of package fencing, for code that does not know
// claims.
var (
	// ErrHeld says that another holds the key, or that others wait in line for
	// it; see HeldError.
	ErrHeld error = &sentinel{"etcdclaims: held by another", fencing.ErrHeld}
	// ErrRefused says that a condition given with If did not hold. Nothing was
	// changed.
	ErrRefused = errors.New("etcdclaims: a given condition does not hold")
	// ErrLost says that the claim is no longer this client's; see LostError.
	// A lost claim never comes back: acquire again for a new term.
	ErrLost error = &sentinel{"etcdclaims: claim lost", fencing.ErrLost}
	// ErrReleased says that the claim was given up by its own holder before.
	ErrReleased = errors.New("etcdclaims: claim was released")
	// ErrUnknown says that a request was sent and its outcome cannot be known:
	// it may have been carried out. Never take it for a failure.
	ErrUnknown error = &sentinel{"etcdclaims: outcome unknown", fencing.ErrUnknown}
	// ErrDone says that the work was completed before; see WorkError.
	ErrDone = errors.New("etcdclaims: work is done")
	// ErrDead says that the work failed for good; see WorkError.
	ErrDead = errors.New("etcdclaims: work is dead")
	// ErrWaiting says that the work failed and waits for its next attempt; see
	// WorkError.
	ErrWaiting = errors.New("etcdclaims: work waits for its next attempt")
	// ErrClosed says that the client was closed.
	ErrClosed error = &sentinel{"etcdclaims: client is closed", fencing.ErrClosed}
	// ErrInvalidKey says that a key is not UTF-8 of 1 to 1024 bytes without
	// control characters.
	ErrInvalidKey = errors.New("etcdclaims: invalid key")
	// ErrTooLarge says that a request would exceed a limit of etcd: too many
	// operations, or too many bytes. Nothing was changed.
	ErrTooLarge = errors.New("etcdclaims: over a limit of etcd")
	// ErrRewound says that the revision of etcd went back, as it does when a
	// snapshot is restored without --bump-revision: fences could repeat.
	ErrRewound = errors.New("etcdclaims: etcd's revision went back")
	// ErrPassthrough says that a client without etcd was asked for something
	// that needs one.
	ErrPassthrough = errors.New("etcdclaims: needs etcd, and this client has none")
)

// sentinel is an error that is a namesake in package fencing, too.
type sentinel struct {
	text string
	also error
}

func (e *sentinel) Error() string { return e.text }

// Is matches the namesake.
func (e *sentinel) Is(target error) bool { return target == e.also }

// HeldError says who holds a key. It matches ErrHeld.
type HeldError struct {
	// Info is what the claim's key says of the holder: not its note, nor who
	// waits, for which see Lookup. Info.Held is false if nobody holds the key
	// but others wait in line for it, as Info.Waiting then says.
	Info Info
}

func (e *HeldError) Error() string {
	if !e.Info.Held {
		return fmt.Sprintf("etcdclaims: key %q is free but others wait in line for it: use Acquire to join them, or Barge", e.Info.Key)
	}
	return fmt.Sprintf("etcdclaims: key %q is held by %s (fence %d, since %s)",
		e.Info.Key, e.Info.Owner, e.Info.Fence, e.Info.Since.Format(time.RFC3339))
}

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return errors.Is(ErrHeld, target) }

// Holder returns who holds the key, its label and fence, and since when: for code
// that does not know claims. They are zero if nobody does but others wait.
func (e *HeldError) Holder() (owner string, fence int64, since time.Time) {
	return e.Info.Owner, e.Info.Fence, e.Info.Since
}

// Reason says how a claim was lost.
type Reason int

// How claims are lost.
const (
	// ReasonExpired: it could not be renewed in time.
	ReasonExpired Reason = iota + 1
	// ReasonDeleted: somebody deleted the key, or forced its release.
	ReasonDeleted
	// ReasonSuperseded: the key has a newer owner.
	ReasonSuperseded
	// ReasonRevoked: its lease is gone, though it was renewed in time.
	ReasonRevoked
	// ReasonSessionDead: its session was given up, for the reason in Err.
	ReasonSessionDead
	// ReasonMaxHold: it was held for as long as its MaxHold allows.
	ReasonMaxHold
	// ReasonShutdown: its client was closed.
	ReasonShutdown

	reasons = int(ReasonShutdown) + 1
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
	}
	return "unknown reason"
}

// LostError says which claim was lost, and how. It matches ErrLost. As the
// cause of a context it matches context.Canceled too.
type LostError struct {
	Token  fencing.Token
	Reason Reason
	Err    error // what is known beyond that, or nil
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("etcdclaims: claim on %q (fence %d) lost: %v", e.Token.Key, e.Token.Fence, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is matches ErrLost, and context.Canceled, so that what only knows contexts
// takes the end of a claim's context for what it is.
func (e *LostError) Is(target error) bool {
	return target == context.Canceled || errors.Is(ErrLost, target)
}

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// WorkError says why work cannot be begun: it matches ErrDone, ErrDead or
// ErrWaiting, and carries the record.
type WorkError struct{ Record Record }

func (e *WorkError) Error() string {
	r := e.Record
	switch r.State {
	case StateDone:
		return fmt.Sprintf("etcdclaims: work %q was done by %s in attempt %d", r.Key, r.Owner, r.Attempt)
	case StateDead:
		return fmt.Sprintf("etcdclaims: work %q is dead after attempt %d: %s", r.Key, r.Attempt, r.Error)
	}
	return fmt.Sprintf("etcdclaims: work %q waits until %s after attempt %d: %s",
		r.Key, r.NotBefore.Format(time.RFC3339), r.Attempt, r.Error)
}

// Is matches the sentinel of the record's state.
func (e *WorkError) Is(target error) bool {
	switch e.Record.State {
	case StateDone:
		return target == ErrDone
	case StateDead:
		return target == ErrDead
	}
	return target == ErrWaiting
}

// RetryAt returns from when on the work may be begun again; ok is false if never,
// as with work that is done or dead. It is for code that does not know work.
func (e *WorkError) RetryAt() (at time.Time, ok bool) {
	return e.Record.NotBefore, e.Record.State == StateFailed
}

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks an error given to Work.Fail, or returned by a handler, as one
// that another attempt would not change: the work is dead at once. A nil error
// stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

type retryAfterError struct {
	error
	after time.Duration
}

func (e retryAfterError) Unwrap() error { return e.error }

// RetryAfter marks an error given to Work.Fail, or returned by a handler, as one
// after which the next attempt may come d from now, whatever the Backoff says.
// A nil error stays nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return retryAfterError{err, max(d, 0)}
}
