package grpcmw

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
	"google.golang.org/grpc/codes"
)

// The refusals that neither package fencing nor package middleware defines.
var (
	gateFailed = fencing.Refusal{
		Reason: "UNAVAILABLE",
		Code:   uint32(codes.Unavailable),
		Title:  "The fencing token could not be checked.",
	}
	notSent = fencing.Refusal{
		Reason: "UNAVAILABLE",
		Code:   uint32(codes.Unavailable),
		Title:  "It is unknown whether the claim is still held.",
	}
	unclaimed = fencing.Refusal{
		Reason: "UNCLAIMED",
		Code:   uint32(codes.Internal),
		Title:  "The handler did not wait for the message with its key.",
	}
)

const (
	// soon is the default of RetryAfter.
	soon = time.Second

	nothingDone = "Nothing was done."
	perhapsDone = "The call may have been carried out, in part or entirely."
)

// errNotCalled is for claims that break their contract.
var errNotCalled = errors.New("grpcmw: the claims returned without calling the function")

// newRefused returns the error for a refusal. Its message is short, because
// metadata has a size limit, and the key is sent separately.
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

// keyInvalid returns the refusal of a call without a valid key.
func keyInvalid(err error, detail string) *RefusedError {
	r, _ := middleware.RefusalOf(&middleware.NotRunError{Err: middleware.ErrInvalidKey})
	return newRefused(r, fencing.Token{}, err, detail)
}

// gateRefusal returns the refusal of a token that was not admitted for the key.
// The key is "" if it is not known. begun means that the handler was called before, with
// an earlier message of the stream.
func gateRefusal(key string, t fencing.Token, err error, begun bool) *RefusedError {
	failed, done := gateFailed, nothingDone
	if begun { // a client must not treat the call as safe to repeat
		failed, _ = fencing.RefusalOf(fencing.ErrUnknown)
		done = perhapsDone
	}
	if t.Key != key {
		t = fencing.Token{} // the fences of different keys cannot be compared
		if (fencing.Token{Key: key, Fence: 1}).Validate() == nil {
			t.Key = key
		}
	}
	var stale *fencing.StaleError
	switch {
	case errors.Is(err, fencing.ErrUnknown): // the fence may be remembered
		return newRefused(failed, t, err, done)
	case errors.Is(err, middleware.ErrInvalidKey):
		return keyInvalid(err, done)
	case errors.As(err, &stale):
		r, _ := fencing.RefusalOf(fencing.ErrStale)
		detail := fmt.Sprintf("The fence sent is %d.", stale.Token.Fence)
		if stale.Newest != 0 {
			detail = fmt.Sprintf("The fence sent is %d, the newest is %d.", stale.Token.Fence, stale.Newest)
		}
		e := newRefused(r, stale.Token, err, detail)
		e.Newest = stale.Newest
		return e
	}
	for _, known := range []error{fencing.ErrStale, fencing.ErrNoToken, fencing.ErrMalformed} {
		if errors.Is(err, known) {
			r, _ := fencing.RefusalOf(known)
			return newRefused(r, t, err, fmt.Sprintf("%.400v", err))
		}
	}
	return newRefused(failed, t, err, done)
}

// claimRefusal returns the refusal of a call that was not served under a claim,
// or not to its end.
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
		return keyInvalid(err, nothingDone)
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

// sendRefusal returns the refusal of a client that sends nothing. err is the
// error of fencing.Check.
func sendRefusal(t fencing.Token, err error) *RefusedError {
	r := notSent
	if !errors.Is(err, fencing.ErrUnknown) {
		r, _ = fencing.RefusalOf(fencing.ErrLost) // or its holder released it
	}
	e := newRefused(r, t, err, "It was not sent.")
	if r != notSent {
		e.RetryAfter = 0 // a retry with this claim cannot succeed
	}
	return e
}
