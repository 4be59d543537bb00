package middleware

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// ExclusiveConfig says how a handler is wrapped. The zero value refuses a request
// at once whose key is held.
type ExclusiveConfig struct {
	// Wait is how long a request may wait in line for its key. 0: not at all.
	// Negative: as long as its context allows, which should have a bound: that a
	// client has left is not noticed by net/http before the request's body was
	// read.
	Wait time.Duration
	// Refuse answers what is refused, to log it, to change it, or to answer in
	// another form. Default: Problem.ServeHTTP.
	Refuse func(w http.ResponseWriter, r *http.Request, p *Problem)
}

// Exclusive runs a handler under a claim on the key of the request: at most one
// request per key at a time, in all processes. The context of the handler's
// request carries the token and ends with the claim.
//
// The handler is not called, and the request is refused with a Problem: if the key
// is empty or cannot be claimed (400); if another holds it, and went on to for all
// of the Wait (409, with Retry-After, and who it is); if the claim cannot be had
// for any other reason (503, with Retry-After).
//
// What the handler sends is passed on while the claim is held, by the clock's
// account at each write. If the claim is lost before the handler sent a header, by
// WriteHeader, Write or Flush, the response is a Problem (409, reason CLAIM_LOST,
// or 504 if it is unknown), whatever the handler goes on to say; if it is lost
// afterwards, before the handler has returned, the response is cut off, by a panic
// with http.ErrAbortHandler as net/http has it. So no response is whole that was
// not all sent under the claim. But what the handler did, it did: to be
// protected it must be fenced. A hijacked connection is the handler's own affair.
//
// The key is given up when the handler has returned, before the end of its
// response is sent: who gets the answer and asks again is not refused because of
// itself. A handler that goes on though its context has ended is a zombie: see
// etcdclaims.Client.TryRun. One that returns before its work is done gives the key
// up too early: http.TimeoutHandler belongs around Exclusive, not into it.
//
// Exclusive panics if key is nil, and what it returns if the handler is. With
// claims that are nil or a passthrough a handler is returned as it is.
func Exclusive[O any](claims Claims[O], key func(*http.Request) string, cfg ExclusiveConfig, opts ...O) func(http.Handler) http.Handler {
	if key == nil {
		panic("middleware: Exclusive needs a key function")
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("middleware: Exclusive needs a handler")
		}
		if passes(claims) {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			k := key(r)
			var sent *response
			serve := func(ctx context.Context) error {
				sent = newResponse(ctx, w)
				next.ServeHTTP(sent.writer(), r.WithContext(ctx))
				return nil
			}
			err := checkKey(k)
			if err != nil {
				err = &NotRunError{Key: k, Err: err}
			} else {
				err = under(r.Context(), k, cfg.Wait, claiming(claims.TryRun, k, opts), claiming(claims.Run, k, opts), serve)
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

// outcome returns why the response of a handler must not stand. Without a response
// that is why the handler was not called.
func (w *response) outcome(err error) error {
	switch {
	case w == nil:
		return err
	case w.hijacked:
		return nil
	case w.refused != nil:
		return w.refused // what came first
	}
	return err
}

// claimProblem says why a request was not served under a claim, or not to its end.
func claimProblem(key string, err error) *Problem {
	r, ok := RefusalOf(err)
	if !ok { // the handler was called, and its outcome is not recorded
		r, _ = fencing.RefusalOf(fencing.ErrUnknown)
	}
	p := newProblem(r, key, err)
	var notRun *NotRunError
	switch {
	case !errors.As(err, &notRun):
		p.Detail = "The request may have been carried out in part, or as a whole."
	case r == dead:
		p.Detail = "It was begun before, and may have been carried out in part, or as a whole."
	case r == keyInvalid:
		p.Detail = notRun.Err.Error()
		p.Key = ""
	case p.Owner != "":
		p.Detail = fmt.Sprintf("It is held by %s. Nothing was done.", p.Owner)
	default:
		p.Detail = "Nothing was done."
	}
	return p
}

// abort ends a response so that nobody takes it for whole.
func abort(w http.ResponseWriter, r *http.Request) {
	if !r.ProtoAtLeast(1, 1) { // its end is that of the connection: reset it
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
