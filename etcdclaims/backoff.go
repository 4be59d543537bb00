package etcdclaims

import (
	"errors"
	"math/rand/v2"
	"time"
)

// How work, items of queues and jobs are tried again.

// Backoff returns how long work waits after failed attempt number attempt,
// which is 1 for the first. It must be safe for concurrent use and must not
// keep state.
type Backoff func(attempt int) time.Duration

// ExponentialBackoff returns a Backoff that doubles from base up to limit. The
// actual delay is random, between half of that value and all of it, so that
// work that failed together does not retry together.
//
// A base of zero or less means limit. A negative limit means 0.
func ExponentialBackoff(base, limit time.Duration) Backoff {
	limit = max(limit, 0)
	return func(attempt int) time.Duration {
		d := limit
		// The limit is shifted down, since the base shifted up can overflow.
		if shift := max(attempt-1, 0); shift < 63 && base > 0 && base <= limit>>shift {
			d = base << shift
		}
		if d <= 1 {
			return d
		}
		return d/2 + rand.N(d/2+1)
	}
}

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks an error as one that another attempt would not change. Work, or an item of a
// queue, that fails with it is dead at once. Pass it to Fail, or return it from a handler.
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

// RetryAfter attaches a delay to an error. After work, or an item of a queue, has failed with it,
// the next attempt may begin d later, and no back-off applies. Pass it to Fail, or return it from
// a handler. A negative d means 0.
//
// RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return retryAfterError{err, max(d, 0)}
}
