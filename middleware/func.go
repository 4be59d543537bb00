package middleware

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/internal/passthrough"
)

// FuncConfig configures Func and FuncOnce. The zero value refuses a call at once
// if its key is held.
type FuncConfig struct {
	// Wait is how long a call waits in line for its key. Zero means that it does
	// not wait. A negative value means that it waits until its context ends.
	Wait time.Duration
	// Skip makes a call return the zero Out and no error if its key is still held
	// when Wait elapses. Otherwise the error matches fencing.ErrHeld.
	Skip bool
}

// Func returns a function that runs fn under a claim on the key of its input: at
// most one call per key at a time, across all processes. The context of fn
// carries the token and ends with the claim.
//
// If fn was not called, the error is a *NotRunError. It matches fencing.ErrHeld
// if another owner holds the key. If the claim was lost before fn returned, the
// error matches fencing.ErrLost, whatever fn returned. Do not treat such a call
// as a success: another owner may have run at the same time. The returned Out is
// that of fn in every case.
//
// Func panics if key or fn is nil. If claims is a passthrough (see
// etcdclaims.NewPassthrough), it returns fn. If claims is nil, or a nil *etcdclaims.Client,
// every call returns a *NotRunError.
func Func[In, Out any](
	claims Claims, key func(In) string, fn func(context.Context, In) (Out, error), cfg FuncConfig, opts ...AcquireOption,
) func(context.Context, In) (Out, error) {
	if key == nil || fn == nil {
		panic("middleware: Func needs a key function and a function")
	}
	if passthrough.Of(claims) {
		return fn
	}
	none := passthrough.Check(claims)
	return func(ctx context.Context, in In) (out Out, err error) {
		k := key(in)
		if err := cmp.Or(none, checkClaimed(k)); err != nil {
			return out, &NotRunError{Key: k, Err: err}
		}
		try, line := claiming(claims.TryRun, k, opts), claiming(claims.Run, k, opts)
		called, err := under(ctx, k, cfg.Wait, try, line, func(ctx context.Context) (err error) {
			out, err = fn(ctx, in)
			return err
		})
		if called {
			return out, err
		}
		return out, cfg.skip(err)
	}
}

// skip returns nil, if Skip is set, for an error that only reports another
// holder.
func (cfg FuncConfig) skip(err error) error {
	var notRun *NotRunError
	if cfg.Skip && errors.As(err, &notRun) && held(err) {
		return nil
	}
	return err
}
