package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// outcome turns the error of a request that may change something into one that
// says whether it can have: ErrUnknown stands in it if so. The context is the
// caller's, whose end an error must show too.
func outcome(ctx context.Context, err error) error {
	if errors.Is(err, rpctypes.ErrRequestTooLarge) || isTooManyOps(err) || isTooLargeToSend(err) {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if !mayBeDone(err) {
		return err
	}
	return unknownError{withCause(ctx, err)}
}

// unknownError is an outcome that is not known.
type unknownError struct{ error }

func (e unknownError) Error() string { return ErrUnknown.Error() + ": " + e.error.Error() }

func (e unknownError) Is(target error) bool { return errors.Is(ErrUnknown, target) }

func (e unknownError) Unwrap() error { return e.error }

// failed returns the error of a request that changes nothing, whose outcome
// therefore is known: it failed.
func failed(err error) error {
	var u unknownError
	if errors.As(err, &u) {
		return u.error
	}
	return err
}

// contextError returns why the context ended: its error, and the cause that was given
// for it.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if end, ok := ctx.Deadline(); ok && err == nil && !time.Now().Before(end) {
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
	cause := contextError(ctx)
	switch {
	case err == nil:
		return cause
	case cause == nil, errors.Is(err, context.Cause(ctx)) && errors.Is(err, ctx.Err()):
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}

// mayBeDone reports whether a request that failed with err can have been
// carried out, or can be yet. Whatever is not known to exclude that does not.
func mayBeDone(err error) bool {
	if isNotSent(err) || errors.Is(err, rpctypes.ErrNoLeader) {
		return false // refused before it was proposed
	}
	switch code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange,
		codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return false
	case codes.ResourceExhausted:
		return strings.Contains(err.Error(), "received message larger than max")
	}
	return true
}

// isTransient reports whether the same request may well succeed later. Unknown
// outcomes are not transient: they have to be resolved first.
func isTransient(err error) bool {
	if errors.Is(err, ErrUnknown) {
		return false
	}
	return isNotSent(err) ||
		errors.Is(err, rpctypes.ErrNoLeader) ||
		errors.Is(err, rpctypes.ErrTooManyRequests) ||
		errors.Is(err, rpctypes.ErrAuthOldRevision) ||
		errors.Is(err, rpctypes.ErrInvalidAuthToken)
}

// isPassing reports whether what failed, of a kind that changes nothing, may
// succeed when it is tried again.
func isPassing(err error) bool {
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrRewound) {
		return false
	}
	if isTransient(err) || errors.Is(err, ErrUnknown) || errors.Is(err, errSessionLost) {
		return true
	}
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Aborted:
		return true
	case codes.Unknown: // of etcd, not of something else that has no code
		_, ok := status.FromError(err)
		return ok
	}
	return false
}

// isNotSent reports whether gRPC had no connection to send the request on.
func isNotSent(err error) bool {
	if errors.Is(err, errNotSent) {
		return true
	}
	if code(err) != codes.Unavailable {
		return false
	}
	msg := err.Error()
	return strings.Contains(msg, "Error while dialing") ||
		strings.Contains(msg, "there is no address available") ||
		strings.Contains(msg, "there is no connection available")
}

func isTooManyOps(err error) bool { return errors.Is(err, rpctypes.ErrTooManyOps) }

// isTooLargeToSend is the client's own limit, of the same code as no space.
func isTooLargeToSend(err error) bool {
	return code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "trying to send message larger than max")
}

func code(err error) codes.Code {
	var ee rpctypes.EtcdError
	if errors.As(err, &ee) {
		return ee.Code()
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if st, ok := status.FromError(e); ok {
			return st.Code()
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return codes.DeadlineExceeded
	}
	if errors.Is(err, context.Canceled) {
		return codes.Canceled
	}
	return codes.Unknown
}
