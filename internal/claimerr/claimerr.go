// Package claimerr has the errors that the layers of a client return to its callers, and the reasons for which
// claims are lost. Package etcdclaims exports them under the same names.
package claimerr

import (
	"errors"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/txn"
)

// Those of package etcdclaims, which documents them.
var (
	ErrHeld      = errtext.Namesake("etcdclaims: held by another", fencing.ErrHeld)
	ErrRefused   = errors.New("etcdclaims: a given condition does not hold")
	ErrLost      = errtext.Namesake("etcdclaims: claim lost", fencing.ErrLost)
	ErrReleased  = errors.New("etcdclaims: claim was released")
	ErrSuspected = errors.New("etcdclaims: suspected")
	ErrClosed    = errtext.Namesake("etcdclaims: client is closed", attach.ErrClosed)

	ErrInvalidKey = errors.New("etcdclaims: invalid key")
)

// ErrSession is matched by the error of what waited for a session, or on one, that was lost.
var ErrSession = errors.New("etcdclaims: session lost")

// IsPassing reports whether what failed, of a kind that changes nothing, may succeed when it is tried again.
func IsPassing(err error) bool {
	if errors.Is(err, ErrClosed) || errors.Is(err, store.ErrRewound) {
		return false
	}
	return txn.IsTransient(err) || errors.Is(err, txn.ErrUnknown) || errors.Is(err, ErrSession) || txn.MayPass(err)
}
