package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// run runs fn under a claim, for example with Claims.Run.
type run func(ctx context.Context, fn func(ctx context.Context) error) error

// claiming returns a method of Claims, bound to one key.
func claiming(method func(context.Context, string, func(context.Context) error, ...AcquireOption) error,
	key string, opts []AcquireOption,
) run {
	return func(ctx context.Context, fn func(context.Context) error) error {
		return method(ctx, key, fn, opts...)
	}
}

// remembering returns a method of Works, bound to one key. It stores what made
// returns after fn, and puts what was stored into result.
func remembering(method func(context.Context, string, func(context.Context) ([]byte, error), ...WorkOption) ([]byte, bool, error),
	key string, opts []WorkOption, result *[]byte, made func() ([]byte, error),
) run {
	return func(ctx context.Context, fn func(context.Context) error) (err error) {
		*result, _, err = method(ctx, key, func(ctx context.Context) ([]byte, error) {
			if err := fn(ctx); err != nil {
				return nil, err
			}
			return made()
		}, opts...)
		return err
	}
}

// held reports whether an error is certain that another owner holds the key.
func held(err error) bool {
	return errors.Is(err, fencing.ErrHeld) && !errors.Is(err, fencing.ErrUnknown)
}

// under calls fn with try. If the key is held and wait is not 0, it calls fn with
// line. It reports whether fn was called. If not, an error is a *NotRunError. If
// so, the error may be about another claim that fn used.
func under(ctx context.Context, key string, wait time.Duration, try, line run,
	fn func(ctx context.Context) error,
) (called bool, err error) {
	begin := func(ctx context.Context) error {
		called = true
		return fn(ctx)
	}
	switch {
	case wait < 0:
		err = line(ctx, begin)
	default:
		// Try first even if it may wait: the error then names the holder.
		err = try(ctx, begin)
		if wait > 0 && !called && held(err) {
			err = inTime(ctx, wait, err, line, begin)
		}
	}
	if err != nil && !called {
		return false, &NotRunError{Key: key, Err: err}
	}
	return called, err
}

// lastLook is how long a wait for work that has ended in vain is prolonged, at most.
const lastLook = time.Second

// underWork is under for works. That a wait has ended does not show that the work has not:
// word of it may be late, or lost. So the record is read once before the caller is refused.
func underWork(ctx context.Context, key string, wait time.Duration, try, line run,
	fn func(ctx context.Context) error,
) (called bool, err error) {
	called, err = under(ctx, key, wait, try, line, fn)
	var late *lateError
	if called || !errors.As(err, &late) {
		return called, err
	}
	ctx, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	_, again := under(ctx, key, 0, try, nil, func(context.Context) error { return tooLate{late} })
	var outcome retry
	if again == nil || errors.As(again, &outcome) {
		return false, again
	}
	return false, err
}

// inTime calls fn with line if line acquires the key within wait. Otherwise it
// returns the earlier refusal.
func inTime(ctx context.Context, wait time.Duration, refusal error, line run, fn func(ctx context.Context) error) error {
	late := &lateError{wait, refusal}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	timer := time.AfterFunc(wait, func() { giveUp(late) })
	defer timer.Stop()
	called := false
	err := line(ctx, func(ctx context.Context) error {
		if !timer.Stop() {
			return tooLate{late} // the key was acquired as the wait ended
		}
		called = true
		return fn(ctx)
	})
	if !called && err != nil && errors.Is(context.Cause(ctx), late) {
		return late
	}
	return err
}

// lateError is a refusal after a wait.
type lateError struct {
	wait time.Duration
	err  error
}

func (e *lateError) Error() string { return fmt.Sprintf("after waiting for %v: %v", e.wait, e.err) }

func (e *lateError) Unwrap() error { return e.err }

// tooLate is a lateError for works only.
type tooLate struct{ *lateError }

// GiveBack reports that an acquisition after the wait does not count as an
// attempt.
func (tooLate) GiveBack() bool { return true }

func (e tooLate) Unwrap() error { return e.lateError }
