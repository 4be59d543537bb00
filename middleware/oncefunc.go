package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrDone says that a function was called for the key before, and so is not again.
var ErrDone = errors.New("middleware: done before")

// FuncOnce returns fn, to run once for each key of its input, in whatever process.
// What it returned is remembered as JSON, in the transaction that records it as
// done, for as long as done work is (etcdclaims.Config's Retention): a call that
// comes later returns the same Out, with an error that matches ErrDone, or without
// one if the config says Skip. An Out of which more than 64 KiB would be stored, or
// that is not to be had as JSON, is not remembered: then such a call has the zero
// Out, and ErrDone in any case.
//
// If fn returns an error the attempt failed, and when a call may try again is
// decided by what the works have for that: backing off, a limit of attempts. Until
// then a call returns a *NotRunError. If the process dies in fn, or the claim is
// lost, another call runs it again, unless the options say otherwise
// (etcdclaims.AtMostOnce): guard what must not be done twice by the fence.
//
// The other errors, Wait and Skip, panics and nil works are as with Func. An error
// that matches fencing.ErrUnknown says that the outcome may have been recorded:
// call again to find out.
func FuncOnce[In, Out, O any](works Works[O], key func(In) string, fn func(context.Context, In) (Out, error), cfg FuncConfig, opts ...O) func(context.Context, In) (Out, error) {
	if key == nil || fn == nil {
		panic("middleware: FuncOnce needs a key function and a function")
	}
	if passes(works) {
		return fn
	}
	return func(ctx context.Context, in In) (out Out, err error) {
		k := key(in)
		if err := checkKey(k); err != nil {
			return out, &NotRunError{Key: k, Err: err}
		}
		called := false
		var result []byte
		made := func() ([]byte, error) { return remembered(out), nil }
		err = under(ctx, k, cfg.Wait,
			remembering(works.TryRunOnce, k, opts, &result, made),
			remembering(works.RunOnce, k, opts, &result, made),
			func(ctx context.Context) (err error) {
				called = true
				out, err = fn(ctx, in)
				return err
			})
		switch {
		case called:
			return out, err // which may be about another claim
		case err != nil:
			return out, cfg.skip(err)
		}
		if len(result) == 0 {
			return out, fmt.Errorf("%w, for key %q; what it returned was not kept", ErrDone, k)
		}
		if err := json.Unmarshal(result, &out); err != nil {
			return out, fmt.Errorf("%w, for key %q; what it returned cannot be read: %w", ErrDone, k, err)
		}
		if cfg.Skip {
			return out, nil
		}
		return out, fmt.Errorf("%w, for key %q", ErrDone, k)
	}
}

// remembered returns what is stored of a function's outcome, nothing if it cannot
// be: the function has run, and must not be said to have failed.
func remembered(out any) []byte {
	b, err := json.Marshal(out)
	if err != nil || len(b) > maxResult {
		return nil
	}
	return b
}
