package middleware

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// CheckResponse returns a *Problem if the response says, as the wrappers of this
// package do, that the request was refused, and nil otherwise: look at the status
// then. What the error matches tells the cases apart:
//
//	fencing.ErrStale      a newer owner was there; errors.As has a *fencing.StaleError, with Newest: stop
//	fencing.ErrNoToken    the resource wants a token of its key
//	fencing.ErrMalformed  the token was not understood
//	fencing.ErrHeld       another works on the key: Problem.Owner, Problem.RetryAfter
//	fencing.ErrLost       the claim that the request ran under was lost
//	fencing.ErrUnknown    the request may have been carried out
//
// A problem with another reason matches none of them. Whoever may answer in the
// name of the resource is believed.
//
// The body can be read as if it had not been read, and must be closed as ever.
func CheckResponse(resp *http.Response) error {
	if resp == nil || resp.StatusCode < 400 || resp.Body == nil {
		return nil
	}
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || media != problemType {
		return nil
	}
	const most = 64 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	resp.Body = &reread{Reader: io.MultiReader(bytes.NewReader(body), resp.Body), Closer: resp.Body}
	p := &Problem{}
	if err != nil || json.Unmarshal(body, p) != nil {
		return nil // cut off, or somebody else's
	}
	reason, ours := strings.CutPrefix(p.Type, fencing.Refusal{}.Type())
	if !ours {
		return nil
	}
	p.Status = resp.StatusCode
	p.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))
	p.Err = fencing.Refusal{Reason: reason}.Err()
	if errors.Is(p.Err, fencing.ErrStale) {
		p.Err = &fencing.StaleError{Token: fencing.Token{Key: p.Key, Fence: p.Fence}, Newest: p.Newest}
	}
	return p
}

// reread is a body of which the beginning was read already.
type reread struct {
	io.Reader
	io.Closer
}

// retryAfter reads the header of this name: seconds, or a date.
func retryAfter(value string) time.Duration {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
