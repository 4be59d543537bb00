package middleware

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/etcdclaims/claims/fencing"
)

// Gate calls a handler only for requests that carry a token of their key and that
// gate admits. Transport sends such a token. The handler's context carries it.
// Gate refuses other requests with a Problem,
//
//   - with 428 if there is no token, or one of another key,
//   - with 400 if the token cannot be parsed, or there are several header lines,
//   - with 412 and the newest fence if a newer token was admitted,
//   - with 400 if the key of the request itself is empty or cannot be claimed,
//   - with 503 and RetryAfter if the gate fails, or its outcome is unknown.
//
// A gate in front of the handler is an early reject, however it stores fences. A
// request that was admitted may reach its write after a request with a newer
// fence. Check the token again in the transaction of the write (sqlguard,
// etcdguard, objectguard). ProblemOf makes the response to an error of that check.
//
// The key function keeps a token of one key from opening another. It is usually
// PathKey with the same pattern that the owners claim.
//
// Gate panics if gate or key is nil, or if cfg.Wait is set: it does not wait. The function that it returns panics if
// the handler is nil. In a program without etcd leave the handler unwrapped: no fence is sent there.
func Gate(gate fencing.Gate, key func(*http.Request) string, cfg Config) func(http.Handler) http.Handler {
	if gate == nil || key == nil || cfg.Wait != 0 {
		panic("middleware: Gate needs a gate and a key function, and does not wait")
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("middleware: Gate needs a handler")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t, p := admit(r, gate, key)
			if p != nil {
				refuse(w, r, p, cfg.Refuse)
				return
			}
			serve(next, w, r.WithContext(fencing.NewContext(r.Context(), t)), r)
		})
	}
}

// admit returns the request's token if the gate admits it, and otherwise the
// problem to answer with.
func admit(r *http.Request, gate fencing.Gate, key func(*http.Request) string) (fencing.Token, *Problem) {
	t, err := tokenOf(r)
	k := key(r)
	if kerr := checkKey(k); kerr != nil {
		if err == nil {
			p := newProblem(keyInvalid, "", kerr)
			p.Detail = kerr.Error()
			return t, p
		}
		k = "" // such as the key of a request whose key is that of its token
	}
	of := int64(0) // the fence that was sent for k
	if err == nil && t.Key != k {
		err = fmt.Errorf("%w for key %.80q: the token sent is for %.80q", fencing.ErrNoToken, k, t.Key)
	} else if err == nil {
		of = t.Fence
		err = gate.Admit(r.Context(), t)
	}
	if err == nil {
		return t, nil
	}
	var refusal fencing.Refusal
	known := false
	for _, refused := range []error{fencing.ErrStale, fencing.ErrNoToken, fencing.ErrMalformed} {
		if errors.Is(err, refused) {
			refusal, known = fencing.RefusalOf(refused)
			break
		}
	}
	if !known || errors.Is(err, fencing.ErrUnknown) { // nothing was done: the client may retry
		refusal = gateFailed
	}
	p := newProblem(refusal, k, err)
	p.Fence = of
	if known {
		p.Detail = err.Error()
	}
	return t, p
}
