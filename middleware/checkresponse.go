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

// CheckResponse returns a *Problem if the response is a refusal by a wrapper of
// this package. Otherwise it returns nil, and the caller looks at the status. The
// problem matches one of these errors:
//
//	fencing.ErrStale      a newer owner has been seen: stop. errors.As finds a *fencing.StaleError with Newest
//	fencing.ErrNoToken    the resource requires a token of its key
//	fencing.ErrMalformed  the resource could not parse the token
//	fencing.ErrHeld       another owner holds the key: see Problem.Owner and Problem.RetryAfter
//	fencing.ErrLost       the claim that the request ran under was lost
//	fencing.ErrUnknown    the request may have been carried out
//
// A problem with another reason matches none of these errors. CheckResponse does
// not authenticate the server: it accepts any response with the right format.
//
// The body can be read afterwards as if CheckResponse had not read it. The caller
// must close it as usual.
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
		return nil // truncated, or of another program
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

// reread is a body whose beginning was already read, and is read again.
type reread struct {
	io.Reader
	io.Closer
}

// retryAfter parses a Retry-After header: seconds or a date.
func retryAfter(value string) time.Duration {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
