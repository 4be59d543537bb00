package middleware

import (
	"context"
	"errors"
	"time"
)

// FuncConfig says how a function is wrapped. The zero value refuses a call at once
// whose key is held.
type FuncConfig struct {
	// Wait is how long a call may wait in line for its key. 0: not at all.
	// Negative: as long as its context allows.
	Wait time.Duration
	// Skip lets a call whose key is held by another, at once or for all of its
	// Wait, return the zero Out and no error, instead of one that matches
	// fencing.ErrHeld: another is doing it.
	Skip bool
}

// Func returns fn, to run under a claim on the key of its input: at most one call
// per key at a time, in all processes. The context of fn carries the token and
// ends with the claim.
//
// If fn is not called the error is a *NotRunError, which matches fencing.ErrHeld
// if another holds the key. If the claim was lost before fn had returned, the
// error matches fencing.ErrLost, whatever fn returned: its outcome must not be
// taken for a success, since another may have been at it. The Out is that of fn in
// any case.
//
// Func panics if key or fn is nil. With claims that are nil or a passthrough it
// returns fn.
func Func[In, Out, O any](claims Claims[O], key func(In) string, fn func(context.Context, In) (Out, error), cfg FuncConfig, opts ...O) func(context.Context, In) (Out, error) {
	if key == nil || fn == nil {
		panic("middleware: Func needs a key function and a function")
	}
	if passes(claims) {
		return fn
	}
	return func(ctx context.Context, in In) (out Out, err error) {
		k := key(in)
		if err := checkKey(k); err != nil {
			return out, &NotRunError{Key: k, Err: err}
		}
		called := false
		err = under(ctx, k, cfg.Wait, claiming(claims.TryRun, k, opts), claiming(claims.Run, k, opts), func(ctx context.Context) (err error) {
			called = true
			out, err = fn(ctx, in)
			return err
		})
		if called {
			return out, err // which may be about another claim
		}
		return out, cfg.skip(err)
	}
}

// skip drops an error that only says that another is at it.
func (cfg FuncConfig) skip(err error) error {
	var notRun *NotRunError
	if cfg.Skip && errors.As(err, &notRun) && held(err) {
		return nil
	}
	return err
}
