package txn

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/errtext"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// Errors that outcomes match. Package etcdclaims exports them under the same names
// and documents them.
var (
	// ErrUnknown is matched when a request was sent and its outcome is not known.
	ErrUnknown = errtext.Namesake("etcdclaims: outcome unknown", fencing.ErrUnknown)
	// ErrTooLarge is matched when a request exceeds a limit. Nothing was changed.
	ErrTooLarge = errors.New("etcdclaims: over a limit")
	// ErrPermissionDenied is matched when etcd refuses the client's user.
	ErrPermissionDenied = errors.New("etcdclaims: permission denied by etcd")
)

// Outcome classifies the error of a request that may change something. The result
// matches ErrUnknown if the request may have been carried out, or may still be. The
// context is the caller's; the cause of its end becomes part of the result.
func Outcome(ctx context.Context, err error) error {
	if isTooLarge(err) || IsTooManyOps(err) {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if !MayBeDone(err) {
		return Denied(err)
	}
	return unknownError{withCause(ctx, err)}
}

// isTooLarge reports whether a request was refused for its bytes.
func isTooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrRequestTooLarge) || IsTooLargeToSend(err)
}

// grantIt is the remedy for a missing permission.
const grantIt = "grant the client's user read and write below the prefix of its keys; see docs/permissions.md of etcdclaims"

// Denied adds ErrPermissionDenied to an error by which etcd refuses the client's
// user.
func Denied(err error) error {
	if errors.Is(err, ErrPermissionDenied) {
		return err
	}
	switch {
	case err == nil:
		return nil
	case Code(err) == codes.PermissionDenied && IsDenied(err):
		return fmt.Errorf("%w: %w; %s", ErrPermissionDenied, err, grantIt)
	case IsDenied(err), errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrAuthFailed),
		errors.Is(err, rpctypes.ErrUserNotFound):
		return fmt.Errorf("%w: %w", ErrPermissionDenied, err)
	}
	return err
}

// WithCause joins the cause of the context's end to an error. An unknown outcome
// stays the outermost error, because Failed removes only that.
func WithCause(ctx context.Context, err error) error {
	if u, ok := err.(unknownError); ok { //nolint:errorlint // only the outermost
		return unknownError{withCause(ctx, u.error)}
	}
	return withCause(ctx, err)
}

// Unknown makes an error match ErrUnknown. Its text names that once.
func Unknown(err error) error {
	if errors.Is(err, ErrUnknown) {
		return err
	}
	return unknownError{err}
}

// AfterSent returns the error of a call that ends without a result, or nil. It matches ErrUnknown
// if one of the call's requests may have been carried out.
func AfterSent(sent bool, err error) error {
	if sent && err != nil {
		return Unknown(err)
	}
	return err
}

type unknownError struct{ error }

func (e unknownError) Error() string { return ErrUnknown.Error() + ": " + errtext.Bare(e.error) }

func (e unknownError) Is(target error) bool { return errors.Is(ErrUnknown, target) }

func (e unknownError) Unwrap() error { return e.error }

// Failed returns the error of a request that changes nothing. Whatever became of
// such a request, its outcome is known: it failed.
func Failed(err error) error {
	var u unknownError
	if errors.As(err, &u) {
		return u.error
	}
	return err
}

// IsTransient reports whether a request was not carried out, and the same one may succeed
// later. An unknown outcome is not transient, because it must be resolved first.
func IsTransient(err error) bool {
	if errors.Is(err, ErrUnknown) {
		return false
	}
	return Judge(err) == NotSent
}
