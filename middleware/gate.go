package middleware

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/etcdclaims/claims/fencing"
)

// GateConfig says how a resource is wrapped.
type GateConfig struct {
	// Refuse answers what is refused, to log it, to change it, or to answer in
	// another form. Default: Problem.ServeHTTP.
	Refuse func(w http.ResponseWriter, r *http.Request, p *Problem)
}

// Gate admits to a handler what carries a token of the request's key that the gate
// admits: a Transport sends it. The handler's context carries the token. Others
// are refused with a Problem: without a token, or with one of another key (428);
// with a token that is not one, or with several header lines (400); with one that
// is older than one that was admitted (412, with the newest fence); and if the
// gate has no answer, or the outcome is unknown (503, with Retry-After). A request
// whose own key is empty or no key is refused, too (400).
//
// A gate that stands before the handler is an early reject, however it remembers
// fences: a request that was admitted may come to its write after one with a newer
// fence. What must not happen has to be refused by the write itself: check the
// token there again, in the same transaction (sqlguard, etcdguard, objectguard).
//
// The key function is what keeps a token for one key from opening another:
// PathKey, say, with what the owners claim. TokenKey lets any key pass.
//
// Gate panics if key is nil, and what it returns if the handler is. With a nil
// gate a handler is returned as it is.
func Gate(gate fencing.Gate, key func(*http.Request) string, cfg GateConfig) func(http.Handler) http.Handler {
	if key == nil {
		panic("middleware: Gate needs a key function; TokenKey lets any key pass")
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("middleware: Gate needs a handler")
		}
		if gate == nil {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t, p := admit(r, gate, key)
			if p != nil {
				refuse(w, r, p, cfg.Refuse)
				return
			}
			next.ServeHTTP(w, r.WithContext(fencing.NewContext(r.Context(), t)))
		})
	}
}

// admit returns the request's token if the gate admits it, and else what to
// answer.
func admit(r *http.Request, gate fencing.Gate, key func(*http.Request) string) (fencing.Token, *Problem) {
	t, err := tokenOf(r)
	if err == nil {
		k := key(r)
		if kerr := checkKey(k); kerr != nil {
			p := newProblem(keyInvalid, "", kerr)
			p.Detail = kerr.Error()
			return t, p
		}
		if t.Key != k {
			err = fmt.Errorf("%w for key %.80q: the one sent is for %.80q", fencing.ErrNoToken, k, t.Key)
		} else if err = gate.Admit(r.Context(), t); err == nil {
			return t, nil
		}
	}
	var refusal fencing.Refusal
	known := false
	for _, refused := range []error{fencing.ErrStale, fencing.ErrNoToken, fencing.ErrMalformed} {
		if errors.Is(err, refused) {
			refusal, known = fencing.RefusalOf(refused)
			break
		}
	}
	if !known || errors.Is(err, fencing.ErrUnknown) { // nothing was done: ask again
		refusal = gateFailed
	}
	p := newProblem(refusal, t.Key, err)
	p.Fence = t.Fence
	if known {
		p.Detail = err.Error()
	}
	return t, p
}
