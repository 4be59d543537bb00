package telemetry

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// resultOf returns how an acquiring call ended, and the type of its error if that
// is neither an answer nor the caller's doing.
func resultOf(err error) (result, errorType string) {
	switch {
	case err == nil:
		return "acquired", ""
	case errors.Is(err, etcdclaims.ErrHeld):
		return "contended", ""
	case errors.Is(err, work.ErrDone):
		return "done", ""
	case errors.Is(err, work.ErrDead):
		return "dead", ""
	case errors.Is(err, work.ErrBackoff):
		return "waiting", ""
	case errors.Is(err, etcdclaims.ErrRefused):
		return "refused", ""
	}
	return "error", errorTypeOf(err)
}

// errorTypeOf returns the value of error.type for an error, of a few.
func errorTypeOf(err error) string {
	for _, known := range []struct {
		err  error
		name string
	}{
		{etcdclaims.ErrPermissionDenied, "permission_denied"},
		{etcdclaims.ErrUnknown, "unknown_outcome"},
		{etcdclaims.ErrRewound, "rewound"},
		{etcdclaims.ErrClosed, "closed"},
		{etcdclaims.ErrTooLarge, "too_large"},
		{context.DeadlineExceeded, "deadline_exceeded"},
		{etcdclaims.ErrLost, "lost"}, // before Canceled, which it matches too
		{context.Canceled, "canceled"},
		{fencing.ErrStale, "stale"},
		{rpctypes.ErrNoSpace, "no_space"},
		{rpctypes.ErrLeaseNotFound, "lease_not_found"},
	} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	switch code := txn.Code(err); {
	case code == codes.Canceled:
		return "canceled"
	case code == codes.DeadlineExceeded:
		return "deadline_exceeded"
	case txn.IsDenied(err):
		return "permission_denied"
	case txn.MayPass(err):
		return "unavailable"
	}
	return "_OTHER"
}

// reasonOf returns why a claim ended.
func reasonOf(e etcdclaims.TermInfo) string {
	var lost *etcdclaims.LostError
	if !errors.As(e.Err, &lost) {
		switch work.State(e.Outcome) {
		case work.StateDone:
			return "completed"
		case work.StateFailed:
			return "failed"
		case work.StateDead:
			return "dead"
		}
		return "released"
	}
	switch lost.Reason {
	case etcdclaims.ReasonExpired:
		return "expired"
	case etcdclaims.ReasonDeleted:
		return "deleted"
	case etcdclaims.ReasonSuperseded:
		return "superseded"
	case etcdclaims.ReasonRevoked:
		return "lease_revoked"
	case etcdclaims.ReasonSessionDead:
		return "session_dead"
	case etcdclaims.ReasonMaxHold:
		return "max_hold"
	case etcdclaims.ReasonShutdown:
		return "shutdown"
	case etcdclaims.ReasonOutlived:
		return "handler_outlived"
	case etcdclaims.ReasonNoProgress:
		return "no_progress"
	}
	return "_OTHER"
}

// admissionOf returns the result of Gate.Admit.
func admissionOf(err error) string {
	switch {
	case err == nil:
		return "admitted"
	case errors.Is(err, fencing.ErrStale):
		return "stale"
	case errors.Is(err, fencing.ErrNoToken):
		return "missing"
	case errors.Is(err, fencing.ErrMalformed):
		return "malformed"
	case errors.Is(err, fencing.ErrUnknown):
		return "unknown"
	}
	return "error"
}
