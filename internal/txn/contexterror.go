package txn

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/clock"
)

// ErrNotSent says that a request never left this process.
var ErrNotSent = errors.New("no connection to etcd")

// ContextError returns why the context ended: its error, and the cause that was given
// for it.
func ContextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if end, ok := ctx.Deadline(); ok && err == nil && !clock.Mono().Before(end) {
		// gRPC, and etcd, may have noticed before the context's own timer.
		return context.DeadlineExceeded
	}
	if err == nil || cause == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w (%w)", cause, err)
}

// withCause joins the end of the context to the error that was there before.
func withCause(ctx context.Context, err error) error {
	cause := ContextError(ctx)
	switch {
	case err == nil:
		return cause
	case cause == nil, errors.Is(err, context.Cause(ctx)) && errors.Is(err, ctx.Err()):
		return err
	case (cause == context.DeadlineExceeded || cause == context.Canceled) && errors.Is(err, cause): //nolint:errorlint // only itself: a cause that wraps it has more to say
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}
