package work

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/errtext"
)

// Errors that calls return, to be tested with errors.Is.
var (
	// ErrDone is returned when the work is already done. The error is an *Error.
	ErrDone = errors.New("work: done")
	// ErrDead is returned when the work has failed for good. The error is an *Error.
	ErrDead = errors.New("work: dead")
	// ErrBackoff is returned when the work has failed and its next attempt is
	// not due yet. The error is an *Error.
	ErrBackoff = errors.New("work: waits for its next attempt")
	// ErrNoRecord is returned when the work has no record: it was never begun,
	// or the record has expired or was deleted.
	ErrNoRecord = errors.New("work: nothing is recorded")
)

// Error is returned when work cannot be begun. It matches ErrDone, ErrDead
// or ErrBackoff, by the state of its record.
//
// Run and TryRun also return it when the attempt that they made has
// failed.
type Error struct {
	Record Record
	// Err is the error of the function that Run or TryRun called. Nil
	// if the function was not called.
	Err error
}

func (e *Error) Error() string {
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
func (e *Error) Unwrap() error { return e.Err }

// Is matches ErrDone, ErrDead or ErrBackoff, by the state of the record.
func (e *Error) Is(target error) bool {
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
func (e *endedError) Is(target error) bool { return target == etcdclaims.ErrReleased }

// Unwrap returns the outcome, unless the work was given back.
func (e *endedError) Unwrap() error {
	if e.record.State == StateFree {
		return nil
	}
	return &Error{Record: e.record}
}

// RetryAt returns when the work may be begun again. ok is false if the work is
// done or dead. Code that does not import this package can call it by an
// interface.
func (e *Error) RetryAt() (at time.Time, ok bool) {
	return e.Record.NotBefore, e.Record.State == StateFailed
}

// panicError is the cause with which work fails when its handler panics.
type panicError struct {
	Value any    // the value that the handler passed to panic
	Stack []byte // as runtime/debug.Stack returns it
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error, and nil otherwise.
func (e *panicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
