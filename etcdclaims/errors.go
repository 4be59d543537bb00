package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/txn"
)

// Errors that calls return, to be tested with errors.Is. ErrHeld, ErrLost,
// ErrUnknown and ErrClosed also match the errors of the same name in package
// fencing, for code that does not import this package.
var (
	// ErrHeld is returned when the key is held, or when other callers wait in
	// line for it. The error is a *HeldError.
	ErrHeld = claimerr.ErrHeld
	// ErrRefused is returned when a condition given with If does not hold, or
	// when work.Runner.Forget finds the record in another state. Nothing was changed.
	ErrRefused = claimerr.ErrRefused
	// ErrLost is returned when the claim does not belong to this client any
	// more. The error is a *LostError. A lost claim never comes back: acquire
	// the key again for a new term.
	ErrLost = claimerr.ErrLost
	// ErrReleased is returned when the caller is releasing or has released the
	// claim, or has ended its work.
	ErrReleased = claimerr.ErrReleased
	// ErrUnknown is returned when a request was sent and its outcome is not
	// known. It may have been carried out, so do not treat it as a failure.
	ErrUnknown = txn.ErrUnknown
	// ErrSuspected is the cause of a loss, in LostError.Err, if the client did not
	// answer and the claim was Suspectable: the first in line took the key. It is
	// missing if the client learns of the loss otherwise, as by a refused write.
	ErrSuspected = claimerr.ErrSuspected
	// ErrClosed is returned when the client has been closed.
	ErrClosed = claimerr.ErrClosed
	// ErrInvalidKey is returned when a key is not UTF-8 of 1 to 1,024 bytes
	// without control characters. Calls that claim a key also return it for a key that is
	// blank, begins with sched/, queue/ or group/, or contains #slot- or #shared-: those
	// are kept for the claims of schedulers, queues, groups, Slots and Shared. TryAcquireAll and
	// TryAcquireEach also return it for a key that is given twice.
	ErrInvalidKey = claimerr.ErrInvalidKey
	// ErrSlots is returned when a call with Slots asks for another number of slots
	// than the key has. admin.ForceRelease returns it for a key with slots: release one
	// slot by its SlotKey. admin.Resize changes the number.
	ErrSlots = protocol.ErrSlots
	// ErrTooLarge is returned when a request would exceed a limit of etcd or
	// of this package: too many operations, or too many bytes. Nothing was
	// changed.
	ErrTooLarge = txn.ErrTooLarge
	// ErrRewound is returned when etcd's revision went back, as after a
	// restore from a snapshot without --bump-revision. Fences could repeat;
	// see admin.RaiseEpoch.
	ErrRewound = store.ErrRewound
	// ErrUnreachable is returned by Client.Health and Client.Unreachable while
	// etcd does not answer.
	ErrUnreachable = errors.New("etcdclaims: etcd unreachable")
	// ErrPermissionDenied is returned when etcd denies the client's user a
	// permission that a claim needs. The role was revoked, or the credentials
	// are missing or invalid. It wraps the error of etcd.
	//
	// A claim whose renewal is denied expires at its deadline. Its LostError
	// matches ErrPermissionDenied too.
	ErrPermissionDenied = txn.ErrPermissionDenied
	// ErrPassthrough is returned when a call needs etcd, and the client has
	// none.
	ErrPassthrough = passthrough.ErrPassthrough
)

// callError says of which call and key an error is, unless it says so itself.
func callError(call, key string, err error) error { return errtext.Call(call, key, err) }

// Reason is why a claim was lost.
type Reason int

// How claims are lost.
const (
	// ReasonExpired means that the claim was not renewed in time.
	ReasonExpired Reason = iota + 1
	// ReasonDeleted means that the key was deleted, for example by
	// admin.ForceRelease.
	ReasonDeleted
	// ReasonSuperseded means that the key has a newer owner, or that the epoch
	// was raised; see admin.RaiseEpoch.
	ReasonSuperseded
	// ReasonRevoked means that the lease is gone although it was renewed in
	// time.
	ReasonRevoked
	// ReasonSessionDead means that the claims' shared lease could not be kept.
	// Err has the cause.
	ReasonSessionDead
	// ReasonMaxHold means that the claim reached its MaxHold.
	ReasonMaxHold
	// ReasonShutdown means that the client was closed.
	ReasonShutdown
	// ReasonOutlived means that the context given to Run has ended and the handler did
	// not return within its drain. Err has the cause of the context's end.
	ReasonOutlived
	// ReasonNoProgress means that the handler of a claim with Progress did not call Claim.Beat in time.
	ReasonNoProgress
)

func (r Reason) String() string { return claimerr.Reason(r).String() }

// LostError describes a lost claim. It matches ErrLost. It also matches
// context.Canceled, because it is the cause of the claim's context. So code that treats
// context.Canceled as an orderly end must test for ErrLost first.
type LostError struct {
	Token  fencing.Token
	Reason Reason
	Err    error // what is known beyond that, or nil
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("etcdclaims: claim on %q (fence %d) lost: %v", e.Token.Key, e.Token.Fence, e.Reason)
	if e.Token.Fence == 0 {
		// It was never this client's.
		s = fmt.Sprintf("acquire %q: the attempt was lost: %v", e.Token.Key, e.Reason)
	}
	if e.Err != nil {
		s += ": " + errtext.Bare(e.Err)
	}
	if e.Token.Fence == 0 {
		s += "; call again"
	}
	return s
}

// Is matches ErrLost and context.Canceled. The latter lets code that only
// knows contexts recognize the end of a claim's context.
func (e *LostError) Is(target error) bool {
	return target == context.Canceled || errors.Is(ErrLost, target)
}

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }
