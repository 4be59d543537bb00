package grpcmw

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
	"google.golang.org/grpc/codes"
)

// What is refused for reasons that neither package fencing nor middleware has.
var (
	gateFailed = fencing.Refusal{Reason: "UNAVAILABLE", Code: uint32(codes.Unavailable), Title: "The fencing token could not be checked."}
	notSent    = fencing.Refusal{Reason: "UNAVAILABLE", Code: uint32(codes.Unavailable), Title: "It is not known whether the claim is held yet."}
	unclaimed  = fencing.Refusal{Reason: "UNCLAIMED", Code: uint32(codes.Internal), Title: "The handler went on before a message had named its key."}
)

const (
	// soon is when to try again what may succeed later.
	soon = time.Second

	nothingDone = "Nothing was done."
	perhapsDone = "The call may have been carried out in part, or as a whole."
)

// errNotCalled is for claims that break their contract.
var errNotCalled = errors.New("grpcmw: the claims returned without calling the function")

// newRefused makes what a refusal tells a client. The text stays short, since
// metadata has a limit, and the key stands beside it.
func newRefused(r fencing.Refusal, t fencing.Token, err error, detail string) *RefusedError {
	e := &RefusedError{Reason: r.Reason, Code: codes.Code(r.Code), Message: r.Title, Key: t.Key, Fence: t.Fence, Err: err}
	if detail != "" {
		e.Message += " " + detail
	}
	switch e.Code {
	case codes.Aborted, codes.Unavailable:
		e.RetryAfter = soon
	}
	return e
}

// keyInvalid is how a call is refused that names no key.
func keyInvalid(err error) *RefusedError {
	r, _ := middleware.RefusalOf(&middleware.NotRunError{Err: middleware.ErrInvalidKey})
	return newRefused(r, fencing.Token{}, err, nothingDone)
}

// gateRefusal says why a token was not admitted.
func gateRefusal(t fencing.Token, err error) *RefusedError {
	var stale *fencing.StaleError
	switch {
	case errors.Is(err, fencing.ErrUnknown): // perhaps it was remembered, but nothing was done
		return newRefused(gateFailed, t, err, nothingDone)
	case errors.Is(err, middleware.ErrInvalidKey):
		return keyInvalid(err)
	case errors.As(err, &stale):
		r, _ := fencing.RefusalOf(fencing.ErrStale)
		e := newRefused(r, stale.Token, err, fmt.Sprintf("The fence sent is %d, the newest is %d.", stale.Token.Fence, stale.Newest))
		e.Newest = stale.Newest
		return e
	}
	for _, known := range []error{fencing.ErrStale, fencing.ErrNoToken, fencing.ErrMalformed} {
		if errors.Is(err, known) {
			r, _ := fencing.RefusalOf(known)
			return newRefused(r, t, err, fmt.Sprintf("%.400v", err))
		}
	}
	return newRefused(gateFailed, t, err, nothingDone)
}

// claimRefusal says why a call was not served under a claim, or not to its end.
func claimRefusal(t fencing.Token, err error) *RefusedError {
	r, ok := middleware.RefusalOf(err)
	var notRun *middleware.NotRunError
	if !errors.As(err, &notRun) {
		if !ok {
			r, _ = fencing.RefusalOf(fencing.ErrUnknown)
		}
		return newRefused(r, t, err, perhapsDone)
	}
	if errors.Is(err, middleware.ErrInvalidKey) {
		return keyInvalid(err)
	}
	e := newRefused(r, t, err, nothingDone)
	var holder interface {
		Holder() (owner string, fence int64, since time.Time)
	}
	if errors.As(err, &holder) {
		e.Owner, e.Newest, e.Since = holder.Holder()
	}
	return e
}

// sendRefusal says why a client sends nothing: err is that of fencing.Check.
func sendRefusal(t fencing.Token, err error) *RefusedError {
	r := notSent
	if !errors.Is(err, fencing.ErrUnknown) {
		r, _ = fencing.RefusalOf(fencing.ErrLost) // or it was given up by its holder
	}
	e := newRefused(r, t, err, "It was not sent.")
	if r != notSent {
		e.RetryAfter = 0 // not with this claim
	}
	return e
}
