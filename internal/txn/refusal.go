package txn

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Verdict is what an error says of the request that failed with it. Every loop of this
// module judges errors by it.
type Verdict int

const (
	// Final means that the request was refused before it was carried out, and would be
	// refused again.
	Final Verdict = iota
	// NotSent means that the request was not carried out, because it was not sent or was
	// refused before it was proposed. It may succeed when it is sent again: the next
	// request often reaches another member.
	NotSent
	// Passing means that etcd or the way to it failed. The request may have been carried
	// out, or may be yet. One that changes nothing may succeed when it is sent again.
	Passing
	// Lasting means that the request may have been carried out, and would fail again.
	Lasting
)

// byName are the errors of etcd whose verdict is not that of their code. Members of etcd 3.4
// and 3.5 give some of them another code.
var byName = map[rpctypes.EtcdError]Verdict{
	named(rpctypes.ErrGRPCNoLeader):               NotSent,
	named(rpctypes.ErrGRPCNotLeader):              NotSent,
	named(rpctypes.ErrGRPCNotSupportedForLearner): NotSent, // a member that is being added or replaced
	named(rpctypes.ErrGRPCNotCapable):             NotSent, // a member that starts
	named(rpctypes.ErrGRPCRequestTooManyRequests): NotSent,
	named(rpctypes.ErrGRPCAuthOldRevision):        NotSent,
	named(rpctypes.ErrGRPCInvalidAuthToken):       NotSent,
	named(rpctypes.ErrGRPCNoSpace):                Lasting, // the request by which space runs out is carried out, and answered so
}

func named(err error) rpctypes.EtcdError {
	e, _ := rpctypes.Error(err).(rpctypes.EtcdError) //nolint:errorlint // it is never wrapped
	return e
}

// byCode are the verdicts of all codes of gRPC. etcd gives errors for which it has no code,
// such as raft.ErrProposalDropped, the code Unknown. Codes that etcd does not use are those
// of a proxy.
var byCode = map[codes.Code]Verdict{
	codes.InvalidArgument:    Final,
	codes.NotFound:           Final,
	codes.FailedPrecondition: Final,
	codes.OutOfRange:         Final,
	codes.PermissionDenied:   Final,
	codes.Unauthenticated:    Final,
	codes.Unimplemented:      Final,
	codes.Canceled:           Passing,
	codes.DeadlineExceeded:   Passing,
	codes.Unavailable:        Passing,
	codes.Internal:           Passing,
	codes.Aborted:            Passing,
	codes.Unknown:            Passing,
	codes.DataLoss:           Passing, // until an operator disarms the alarm
	codes.AlreadyExists:      Passing,
	codes.ResourceExhausted:  Passing, // but for the length of a message
}

// Judge returns the verdict of an error.
func Judge(err error) Verdict {
	if IsNotSent(err) {
		return NotSent
	}
	st, isStatus := statusOf(err)
	var e rpctypes.EtcdError
	switch {
	case errors.As(err, &e):
	case isStatus:
		e = named(st.Err())
	case errors.Is(err, context.DeadlineExceeded):
		return Passing
	default:
		return Lasting // of this process, as is the end of a context
	}
	if v, ok := byName[e]; ok {
		return v
	}
	code := Code(err)
	switch {
	case code == codes.ResourceExhausted && IsTooLargeToSend(err):
		return Final
	case IsReplyTooLarge(err):
		return Lasting
	case IsClosing(err):
		return Lasting
	}
	return byCode[code]
}

// IsClosing reports whether gRPC refused a request because the client of etcd was closed.
func IsClosing(err error) bool {
	return Code(err) == codes.Canceled && strings.Contains(err.Error(), "client connection is closing")
}

// statusOf returns the status of gRPC within an error, without the text around it.
func statusOf(err error) (*status.Status, bool) {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) && s.GRPCStatus() != nil {
		return s.GRPCStatus(), true
	}
	return nil, false
}

// MayBeDone reports whether a request that failed with err can have been
// carried out, or can be yet. Whatever is not known to exclude that does not.
func MayBeDone(err error) bool {
	v := Judge(err)
	return v == Passing || v == Lasting
}

// MayPass reports whether a request that changes nothing may succeed when it is sent
// again: etcd or the way to it failed, and did not refuse.
func MayPass(err error) bool {
	v := Judge(err)
	return v == Passing || v == NotSent
}

// IsDenied reports whether etcd refused the client's user, and would again. A token that has
// expired is not that: the client gets another.
func IsDenied(err error) bool {
	code := Code(err)
	return (code == codes.PermissionDenied || code == codes.Unauthenticated) && Judge(err) == Final
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

// IsReplyTooLarge reports whether a message was over a limit, and that may be the reply, whoever refused it: of
// a range, fewer keys may pass.
func IsReplyTooLarge(err error) bool {
	return err != nil && Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max") && !IsTooLargeToSend(err)
}

// Code returns the gRPC code of an error, of etcd's own too. It is Unavailable if a proxy answered in
// place of etcd: gRPC turns the HTTP status of a proxy into a code that etcd gives for other reasons.
func Code(err error) codes.Code {
	var ee rpctypes.EtcdError
	if errors.As(err, &ee) {
		return ee.Code()
	}
	if st, ok := statusOf(err); ok {
		if strings.HasPrefix(st.Message(), "unexpected HTTP status code received from server") {
			return codes.Unavailable
		}
		return st.Code()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return codes.DeadlineExceeded
	}
	if errors.Is(err, context.Canceled) {
		return codes.Canceled
	}
	return codes.Unknown
}
