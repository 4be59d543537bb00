package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// run is how something runs under a claim: by Run, say.
type run func(ctx context.Context, fn func(ctx context.Context) error) error

// claiming is a method of Claims for one key.
func claiming[O any](method func(context.Context, string, func(context.Context) error, ...O) error, key string, opts []O) run {
	return func(ctx context.Context, fn func(context.Context) error) error {
		return method(ctx, key, fn, opts...)
	}
}

// remembering is a method of Works for one key. What was remembered is put into
// result, and what made returns after fn is to be.
func remembering[O any](method func(context.Context, string, func(context.Context) ([]byte, error), ...O) ([]byte, bool, error),
	key string, opts []O, result *[]byte, made func() ([]byte, error),
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

// held reports whether an error says for sure that another holds the key.
func held(err error) bool {
	return errors.Is(err, fencing.ErrHeld) && !errors.Is(err, fencing.ErrUnknown)
}

// under calls fn by try; or, if the key is held and the wait is not 0, by line. It
// returns a *NotRunError if fn was not called.
func under(ctx context.Context, key string, wait time.Duration, try, line run, fn func(ctx context.Context) error) error {
	called := false
	begin := func(ctx context.Context) error {
		called = true
		return fn(ctx)
	}
	var err error
	switch {
	case wait < 0:
		err = line(ctx, begin)
	default:
		// Who waits for a while tries first: it can tell then who held the key.
		err = try(ctx, begin)
		if wait > 0 && !called && held(err) {
			err = inTime(ctx, wait, err, line, begin)
		}
	}
	if err != nil && !called {
		return &NotRunError{Key: key, Err: err}
	}
	return err
}

// inTime calls fn by line if that has the key within the wait, and else returns
// the refusal that came before.
func inTime(ctx context.Context, wait time.Duration, refusal error, line run, fn func(ctx context.Context) error) error {
	late := &lateError{wait, refusal}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	timer := time.AfterFunc(wait, func() { giveUp(late) })
	defer timer.Stop()
	called := false
	err := line(ctx, func(ctx context.Context) error {
		if !timer.Stop() {
			return tooLate{late} // the key came as the wait ended: so does ctx
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

// tooLate is told to the works alone.
type tooLate struct{ *lateError }

// GiveBack keeps what came too late from counting as an attempt.
func (tooLate) GiveBack() bool { return true }

func (e tooLate) Unwrap() error { return e.lateError }
