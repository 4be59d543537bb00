package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/passthrough"
)

// Config configures Exclusive and Gate. The zero value refuses a request at once if its
// key is held.
type Config struct {
	// Wait is how long a request waits in line for its key. Zero means that it
	// does not wait. A negative value means that it waits until its context ends.
	// Give that context a deadline: net/http notices that a client has
	// disconnected only after the request's body was read. It is of Exclusive only.
	Wait time.Duration
	// Refuse answers a request that is refused. Use it to log or change the
	// problem, or to answer in another format. Default: Problem.ServeHTTP.
	Refuse func(w http.ResponseWriter, r *http.Request, p *Problem)
}

// Exclusive runs a handler under a claim on the key of the request: at most one
// request per key at a time, across all processes. The context of the handler's
// request carries the token and ends with the claim.
//
// Exclusive refuses the request with a Problem, without calling the handler,
//
//   - with 400 if the key is empty or cannot be claimed,
//   - with 409 HELD if the key is still held when Wait elapses; the Problem has RetryAfter and
//     the holder,
//   - with 503 and RetryAfter if the key cannot be claimed for any other reason.
//
// Before each write to the response, the local clock decides whether the claim is
// still held. If the claim is lost before the handler sends a header (with
// WriteHeader, Write or Flush), the response is a Problem: 409 CLAIM_LOST, or 504
// if the outcome is unknown. It replaces whatever the handler writes. If the
// claim is lost later, before the handler has returned, the response is cut off
// by a panic with http.ErrAbortHandler. So a complete response was sent entirely
// under the claim. The handler's other effects are not undone: fence them. A
// hijacked connection is not guarded.
//
// The key is released when the handler has returned, before the end of the
// response is sent. So a client that asks again after the answer is not refused
// because of its own request. A handler that continues after its context has
// ended is a zombie: see etcdclaims.Client.TryRun. A handler that returns before
// its work is done releases the key too early. So put http.TimeoutHandler around
// Exclusive, not inside.
//
// Exclusive panics if key is nil. The function that it returns panics if the
// handler is nil. If claims is a passthrough (see etcdclaims.NewPassthrough), the handler is
// returned unchanged. If claims is nil, or a nil *etcdclaims.Client, every request is refused
// with 503.
func Exclusive(claims Claims, key func(*http.Request) string, cfg Config, opts ...AcquireOption) func(http.Handler) http.Handler {
	if key == nil {
		panic("middleware: Exclusive needs a key function")
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("middleware: Exclusive needs a handler")
		}
		if passthrough.Of(claims) {
			return next
		}
		none := passthrough.Check(claims)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			k := key(r)
			var sent *response
			handle := func(ctx context.Context) error {
				sent = newResponse(ctx, w)
				serve(next, sent.writer(), r.WithContext(ctx), r)
				return nil
			}
			err := cmp.Or(none, checkClaimed(k))
			if err != nil {
				err = &NotRunError{Key: k, Err: err}
			} else {
				_, err = under(r.Context(), k, cfg.Wait, claiming(claims.TryRun, k, opts), claiming(claims.Run, k, opts), handle)
			}
			if err = sent.outcome(err); err == nil {
				return
			}
			if sent != nil && !sent.reset() {
				abort(w, r)
			}
			p := claimProblem(k, err)
			if sent != nil {
				p.Fence = sent.fence()
			}
			refuse(w, r, p, cfg.Refuse)
		})
	}
}

// outcome returns why the handler's response must be replaced. Without a response
// it returns why the handler was not called.
func (w *response) outcome(err error) error {
	switch {
	case w == nil:
		return err
	case w.hijacked:
		return nil
	case w.refused != nil:
		return w.refused // the first cause
	}
	return err
}

// claimProblem returns the problem of a request that was not served under a
// claim, or not to its end.
func claimProblem(key string, err error) *Problem {
	r, ok := RefusalOf(err)
	if !ok { // the handler was called, and its outcome is not recorded
		r, _ = fencing.RefusalOf(fencing.ErrUnknown)
	}
	p := newProblem(r, key, err)
	var notRun *NotRunError
	var work retry
	switch {
	case !errors.As(err, &notRun):
		p.Detail = perhapsDone
	case r == dead:
		p.Detail = "An earlier attempt may have carried it out, in part or entirely."
	case r == keyInvalid:
		p.Detail = notRun.Err.Error()
		p.Key = ""
	case p.Owner != "":
		p.Detail = fmt.Sprintf("It is held by %s. Nothing was done.", p.Owner)
	case errors.As(err, &work): // an earlier attempt panicked or died, and its back-off is not over
		p.Detail = "An earlier attempt failed, after it may have carried out a part. Try again later."
	default:
		p.Detail = "Nothing was done."
	}
	return p
}

// abort ends a response so that no client counts it as complete.
func abort(w http.ResponseWriter, r *http.Request) {
	if !r.ProtoAtLeast(1, 1) { // the response ends with its connection: reset the connection
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			if c, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
				conn = c.NetConn()
			}
			if c, ok := conn.(*net.TCPConn); ok {
				_ = c.SetLinger(0)
			}
			_ = conn.Close()
		}
	}
	panic(http.ErrAbortHandler)
}
