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

// Problem is how a request is refused: a document of RFC 9457 and the headers that
// go with it. It is an http.Handler, which answers so; on the side of the client
// it is an error: see CheckResponse.
//
// Fences are strings in JSON, since not all of them are exact as the numbers of
// JavaScript.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Key is the key that the request was about.
	Key string `json:"key,omitempty"`
	// Fence is that of the request's own claim or token.
	Fence int64 `json:"fence,string,omitempty"`
	// Newest is the greatest fence that is known for the key: of the holder, if
	// it is held by another.
	Newest int64 `json:"newest,string,omitempty"`
	// Owner is the label of who holds the key, and Since when it began. The
	// label is the host's name and process id unless etcdclaims.Config.Owner
	// says otherwise: not for everybody's eyes, perhaps.
	Owner string    `json:"owner,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// RetryAfter is sent as the header, in full seconds. 0: none.
	RetryAfter time.Duration `json:"-"`
	// Err is why, in full. It is not sent.
	Err error `json:"-"`
}

// What is refused for reasons that package fencing does not have.
var (
	unavailable = fencing.Refusal{Reason: "UNAVAILABLE", Status: http.StatusServiceUnavailable, Code: 14, Title: "The claim on the key could not be had."}
	gateFailed  = fencing.Refusal{Reason: "UNAVAILABLE", Status: http.StatusServiceUnavailable, Code: 14, Title: "The fencing token could not be checked."}
	dead        = fencing.Refusal{Reason: "DEAD", Status: http.StatusConflict, Code: 9, Title: "The work failed for good, and is not tried again."}
	keyInvalid  = fencing.Refusal{Reason: "INVALID_KEY", Status: http.StatusBadRequest, Code: 3, Title: "The request names no key that can be claimed."}
)

// soon is when to try again what may succeed later, unless something better is
// known.
const soon = time.Second

// RefusalOf returns how an error of a wrapper is told to whoever sent the request.
// It is fencing.RefusalOf, but knows whether anything was done: what was not run
// is HELD if another has the key, DEAD if it is work that is never run again, and
// else UNAVAILABLE (503), for which try again. ok is false for errors of the wrapped function itself.
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

// retry is what the error for work that cannot be begun now knows: from when on it
// can, if ever.
type retry interface {
	error
	RetryAt() (at time.Time, ok bool)
}

// newProblem makes a problem of a refusal.
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
		p.Key, p.Fence, p.Newest = stale.Token.Key, stale.Token.Fence, stale.Newest
	}
	return p
}

// Error says what it says.
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
	// As with http.Error: these are of another response.
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
		_, _ = w.Write(append(body, '\n')) // nobody is left to tell of an error
	}
}

// refuse answers with the problem, in the way that was asked for.
func refuse(w http.ResponseWriter, r *http.Request, p *Problem, answer func(http.ResponseWriter, *http.Request, *Problem)) {
	if answer != nil {
		answer(w, r, p)
		return
	}
	p.ServeHTTP(w, r)
}
