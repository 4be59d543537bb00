package serve

import (
	"errors"
	"net/http"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
)

// A kind is a kind of problem. Its code is part of the API: openapi.yaml explains each.
type kind struct {
	code   string
	status int
	title  string
	retry  time.Duration // zero: a repeated request is refused again
}

func (k kind) typ() string { return "urn:etcdclaims:problem:" + k.code }

var (
	badRequest     = kind{"bad-request", http.StatusBadRequest, "The request is not valid.", 0}
	fenceMalformed = kind{"fence-malformed", http.StatusBadRequest, "The fencing token is malformed.", 0}
	unauthorized   = kind{"unauthorized", http.StatusUnauthorized, "The bearer token is missing or wrong.", 0}
	forbidden      = kind{"forbidden", http.StatusForbidden, "Pages in browsers and other hosts are not served.", 0}
	notFound       = kind{"not-found", http.StatusNotFound, "There is no such thing.", 0}
	held           = kind{"held", http.StatusConflict, "Another holds the key.", time.Second}
	idConflict     = kind{"id-conflict", http.StatusConflict, "The id is in use for something else.", 0}
	deadLetter     = kind{"dead-letter", http.StatusConflict, "The item is a dead letter.", 0}
	queueConflict  = kind{"queue-conflict", http.StatusConflict, "The queue has another configuration.", time.Second}
	lost           = kind{"lost", http.StatusPreconditionFailed, "The lease is over. Nothing was done.", 0}
	stale          = kind{"stale", http.StatusPreconditionFailed, "The token is not that of the key's owner.", 0}
	tooLarge       = kind{"too-large", http.StatusRequestEntityTooLarge, "The request is too large.", 0}
	fenceMissing   = kind{"fence-missing", http.StatusPreconditionRequired, "It needs a fencing token of the key.", 0}
	limit          = kind{"limit", http.StatusTooManyRequests, "A limit of the server is reached.", time.Second}
	queueFull      = kind{"queue-full", http.StatusTooManyRequests, "The queue is full.", time.Second}
	unknownOutcome = kind{"unknown-outcome", http.StatusServiceUnavailable, "It may have been carried out.", time.Second}
	stopping       = kind{"stopping", http.StatusServiceUnavailable, "The server stops.", time.Second}
	unavailable    = kind{"unavailable", http.StatusServiceUnavailable, "etcd did not carry it out.", time.Second}
)

// kinds are the problems that errors of the SDK are. The first that matches counts: an
// error that also matches another one is still unknown.
var kinds = []struct {
	err error
	kind
}{
	{etcdclaims.ErrUnknown, unknownOutcome},
	{etcdclaims.ErrHeld, held},
	{etcdclaims.ErrLost, lost},
	{etcdclaims.ErrReleased, lost},
	{etcdclaims.ErrInvalidKey, badRequest},
	{etcdclaims.ErrSlots, badRequest},
	{etcdclaims.ErrTooLarge, tooLarge},
	{queue.ErrFull, queueFull},
	{queue.ErrConfig, queueConflict},
	{middleware.ErrInvalidKey, badRequest},
	{fencing.ErrStale, stale},
	{fencing.ErrNoToken, fenceMissing},
	{fencing.ErrMalformed, fenceMalformed},
}

// refused is a problem that the server itself has found.
type refused struct {
	kind
	detail string
}

func (r refused) Error() string { return r.title + " " + r.detail }

// kindOf returns the problem that an error is.
func kindOf(err error) kind {
	var own refused
	var body *http.MaxBytesError
	var without gone
	var before *ended
	var dead *queue.DeadLetterError
	var waited *etcdclaims.WaitError
	switch {
	case errors.As(err, &own):
		return own.kind
	case errors.As(err, &body):
		return tooLarge
	case errors.As(err, &without), errors.As(err, &before):
		return lost
	case errors.As(err, &dead):
		return deadLetter
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	if errors.As(err, &waited) && (waited.Info.Held || waited.Info.Waiting > 0) {
		return held
	}
	return unavailable
}

// problem is the answer to a request that failed.
func problem(err error) *middleware.Problem {
	k := kindOf(err)
	p := &middleware.Problem{Type: k.typ(), Title: k.title, Status: k.status, Detail: err.Error(), RetryAfter: k.retry}
	var own refused
	if errors.As(err, &own) {
		p.Detail = own.detail
	}
	var holder interface {
		Holder() (owner string, fence int64, since time.Time)
	}
	if errors.As(err, &holder) {
		p.Owner, p.Newest, p.Since = holder.Holder()
	}
	return p
}
