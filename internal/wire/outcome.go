// Package wire sends transactions to etcd once, and says what an error tells of
// their outcome. It also finds which subtrees of a prefix have keys.
package wire

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

// ErrNotSent says that a request never left this process.
var ErrNotSent = errors.New("no connection to etcd")

// ContextError returns why the context ended: its error, and the cause that was given
// for it.
func ContextError(ctx context.Context) error {
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

// WithCause joins the end of the context to the error that was there before.
func WithCause(ctx context.Context, err error) error {
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

// MayBeDone reports whether a request that failed with err can have been
// carried out, or can be yet. Whatever is not known to exclude that does not.
func MayBeDone(err error) bool {
	if IsNotSent(err) || errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrRequestTooLarge) {
		return false // refused before it was proposed
	}
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return true // the request by which space runs out is carried out, and answered so
	}
	switch Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange,
		codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return false
	case codes.ResourceExhausted:
		// Of a message that is too large only the client's own request was not
		// carried out. Else it may be the reply, whoever refuses it.
		return strings.Contains(err.Error(), "larger than max") && !IsTooLargeToSend(err)
	}
	return true
}

// MayPass reports whether a request that changes nothing may succeed when it is sent
// again: etcd or the way to it failed, and did not refuse. etcd gives what it has no code
// for, such as raft.ErrProposalDropped, the code Unknown.
func MayPass(err error) bool {
	switch Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Aborted:
		return true
	case codes.Unknown: // of etcd, not of something else that has no code
		_, ok := status.FromError(err)
		return ok
	}
	return false
}

// IsNotSent reports whether gRPC had no connection to send the request on.
func IsNotSent(err error) bool {
	if errors.Is(err, ErrNotSent) {
		return true
	}
	if Code(err) != codes.Unavailable {
		return false
	}
	msg := err.Error()
	return strings.Contains(msg, "Error while dialing") ||
		strings.Contains(msg, "there is no address available") ||
		strings.Contains(msg, "there is no connection available")
}

// IsTooManyOps reports whether etcd refused a transaction for its size in
// operations.
func IsTooManyOps(err error) bool { return errors.Is(err, rpctypes.ErrTooManyOps) }

// IsTooLargeToSend reports whether the client itself refused to send a request,
// for its length. A server that cannot send its reply uses the same words, after
// "grpc: ".
func IsTooLargeToSend(err error) bool {
	return Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "desc = trying to send message larger than max")
}

// Code returns the gRPC code of an error, of etcd's own too.
func Code(err error) codes.Code {
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
