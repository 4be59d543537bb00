package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/wire"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// outcome turns the error of a request that may change something into one that
// says whether it can have: ErrUnknown stands in it if so. The context is the
// caller's, whose end an error must show too.
func outcome(ctx context.Context, err error) error {
	if errors.Is(err, rpctypes.ErrRequestTooLarge) || wire.IsTooManyOps(err) || wire.IsTooLargeToSend(err) {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if !wire.MayBeDone(err) {
		return denied(err)
	}
	return unknownError{wire.WithCause(ctx, err)}
}

// denied adds ErrPermissionDenied to an error by which etcd refuses the client's
// user.
func denied(err error) error {
	if errors.Is(err, ErrPermissionDenied) {
		return err
	}
	switch code := wire.Code(err); {
	case err == nil:
		return nil
	case code == codes.PermissionDenied, code == codes.Unauthenticated,
		errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserNotFound):
		return fmt.Errorf("%w: %w", ErrPermissionDenied, err)
	}
	return err
}

// unanswered returns the cause of the end of a context in which etcd was waited for.
func unanswered(ctx context.Context) error {
	err := wire.ContextError(ctx)
	if err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	return fmt.Errorf("etcd has not answered: %w", err)
}

// withCause joins the end of the context to an error. An unknown outcome remains
// the outermost error: failed takes off nothing else.
func withCause(ctx context.Context, err error) error {
	if u, ok := err.(unknownError); ok { //nolint:errorlint // only the outermost
		return unknownError{wire.WithCause(ctx, u.error)}
	}
	return wire.WithCause(ctx, err)
}

// unknown makes an error match ErrUnknown, and says so once.
func unknown(err error) error {
	if errors.Is(err, ErrUnknown) {
		return err
	}
	return unknownError{err}
}

// unknownError is an outcome that is not known.
type unknownError struct{ error }

func (e unknownError) Error() string { return ErrUnknown.Error() + ": " + cause(e.error) }

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

// isTransient reports whether the same request may well succeed later. Unknown
// outcomes are not transient: they have to be resolved first.
func isTransient(err error) bool {
	if errors.Is(err, ErrUnknown) {
		return false
	}
	return wire.IsNotSent(err) ||
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
	switch wire.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Aborted:
		return true
	case codes.Unknown: // of etcd, not of something else that has no code
		_, ok := status.FromError(err)
		return ok
	}
	return false
}
