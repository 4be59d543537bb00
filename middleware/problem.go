package middleware

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// problemType is the media type of RFC 9457.
const problemType = "application/problem+json"

// Problem is the refusal of a request: an RFC 9457 document, and the headers that
// go with it. On the server it is an http.Handler that answers with the document.
// In a client it is an error: see CheckResponse.
//
// In JSON, fences are strings, because JavaScript numbers cannot represent all of
// them.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Key is the key of the claim that the request was about, as Lookup takes it.
	// It is empty if the request has no valid key. The key of Once is derived
	// from its scope.
	Key string `json:"key,omitempty"`
	// IdempotencyKey is the request's Idempotency-Key. Only Once sets it.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	// Fence is the fence of the request's own claim, or of its token if that is a
	// token of Key.
	Fence int64 `json:"fence,string,omitempty"`
	// Newest is the greatest fence known for the key. If another owner holds the
	// key, it is that owner's fence.
	Newest int64 `json:"newest,string,omitempty"`
	// Owner is the label of the holder. The default label is the host name and
	// process id, which you may not want to disclose; etcdclaims.Config.Owner
	// sets another one.
	Owner string `json:"owner,omitempty"`
	// Since is when the holder acquired the key.
	Since time.Time `json:"since,omitzero"`
	// RetryAfter is when the client may retry. It is sent as the header
	// Retry-After, rounded up to full seconds. Zero means that no header is sent.
	RetryAfter time.Duration `json:"-"`
	// Err is the complete cause. It is not sent.
	Err error `json:"-"`
}

// The refusals that package fencing does not define.
var (
	unavailable = fencing.Refusal{
		Reason: "UNAVAILABLE",
		Status: http.StatusServiceUnavailable,
		Code:   14,
		Title:  "The key could not be claimed.",
	}
	gateFailed = fencing.Refusal{
		Reason: "UNAVAILABLE",
		Status: http.StatusServiceUnavailable,
		Code:   14,
		Title:  "The fencing token could not be checked.",
	}
	dead = fencing.Refusal{
		Reason: "DEAD",
		Status: http.StatusConflict,
		Code:   9,
		Title:  "The work failed for good, and will not be retried.",
	}
	keyInvalid = fencing.Refusal{
		Reason: "INVALID_KEY",
		Status: http.StatusBadRequest,
		Code:   3,
		Title:  "The request has no key that can be claimed.",
	}
)

// perhapsDone is the Detail of a request whose handler was called.
const perhapsDone = "The request may have been carried out, in part or entirely."

// soon is the default of RetryAfter.
const soon = time.Second

// RefusalOf returns how a server reports an error of a wrapper to the sender of
// the request. Unlike fencing.RefusalOf, it knows whether the handler or function
// was called. If it was not, the refusal is HELD if another owner holds the key,
// INVALID_KEY for ErrInvalidKey, and DEAD for work that never runs again. Otherwise it
// is UNAVAILABLE (503), which the client may retry. ok is false for errors
// of the wrapped function itself.
func RefusalOf(err error) (r fencing.Refusal, ok bool) {
	var notRun *NotRunError
	if errors.As(err, &notRun) {
		switch {
		case held(err):
			return fencing.RefusalOf(fencing.ErrHeld)
		case errors.Is(err, ErrInvalidKey):
			return keyInvalid, true
		}
		var work retry
		if errors.As(err, &work) {
			if _, ok := work.RetryAt(); !ok {
				return dead, true
			}
		}
		return unavailable, true
	}
	return fencing.RefusalOf(err)
}

// ProblemOf returns the Problem with which a handler answers an error of a gate, a claim or a
// wrapper of this package. An example is the fencing.ErrStale of a gate that the handler asks in the
// transaction of its write. ok is false for other errors.
//
// The Problem is that of Gate for an error of a gate, and that of Exclusive for a *NotRunError, or if the claim
// was lost or the outcome is unknown. For a key that another owner holds it is HELD without the holder, as it has no Key.
func ProblemOf(err error) (p *Problem, ok bool) {
	refusal, ok := RefusalOf(err)
	if !ok {
		return nil, false
	}
	var notRun *NotRunError
	if errors.As(err, &notRun) {
		return claimProblem(notRun.Key, err), true
	}
	p = newProblem(refusal, "", err)
	var stale *fencing.StaleError
	switch {
	case errors.Is(err, fencing.ErrUnknown):
		p.Detail = perhapsDone
	case errors.As(err, &stale):
		p.Key, p.Detail = stale.Token.Key, stale.Error()
	case errors.Is(err, fencing.ErrStale), errors.Is(err, fencing.ErrNoToken), errors.Is(err, fencing.ErrMalformed):
		p.Detail = err.Error()
	case errors.Is(err, fencing.ErrHeld):
		p.Owner, p.Newest, p.Since = "", 0, time.Time{} // of a key that the document does not have
	case errors.Is(err, fencing.ErrLost):
		p.Detail = perhapsDone
	}
	return p, true
}

// retry is implemented by the error for work that cannot run now. RetryAt returns
// when it can run again; ok is false if it never can.
type retry interface {
	error
	RetryAt() (at time.Time, ok bool)
}

// newProblem returns the problem of a refusal.
func newProblem(r fencing.Refusal, key string, err error) *Problem {
	p := &Problem{Type: r.Type(), Title: r.Title, Status: r.Status, Key: key, Err: err}
	switch r.Reason {
	case "HELD", "CLAIM_LOST", unavailable.Reason:
		p.RetryAfter = soon
	}
	var work retry
	if errors.As(err, &work) {
		if at, ok := work.RetryAt(); ok {
			p.RetryAfter = max(time.Until(at), soon)
		}
	}
	var holder interface {
		Holder() (owner string, fence int64, since time.Time)
	}
	if errors.As(err, &holder) {
		p.Owner, p.Newest, p.Since = holder.Holder()
	}
	var stale *fencing.StaleError
	if errors.As(err, &stale) {
		p.Fence, p.Newest = stale.Token.Fence, stale.Newest
	}
	return p
}

// Error returns the status, title, detail and key.
func (p *Problem) Error() string {
	s := fmt.Sprintf("middleware: %d %s", p.Status, p.Title)
	if p.Detail != "" {
		s += " " + p.Detail
	}
	if p.Key != "" {
		s += fmt.Sprintf(" (key %q)", p.Key)
	}
	return s
}

// Unwrap returns Err.
func (p *Problem) Unwrap() error { return p.Err }

// ServeHTTP answers a request with the problem.
func (p *Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	// As http.Error does: these fields describe another response.
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Content-Type", problemType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.RetryAfter.Seconds()))))
	}
	w.WriteHeader(p.Status)
	body, err := json.Marshal(p)
	if err == nil {
		_, _ = w.Write(append(body, '\n')) // the client is gone if this fails
	}
}

// refuse answers with the problem, through the configured function if there is
// one.
func refuse(w http.ResponseWriter, r *http.Request, p *Problem, answer func(http.ResponseWriter, *http.Request, *Problem)) {
	if answer != nil {
		answer(w, r, p)
		return
	}
	p.ServeHTTP(w, r)
}
