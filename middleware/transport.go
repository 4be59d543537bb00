package middleware

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/etcdclaims/claims/fencing"
)

// Transport is an http.RoundTripper that sends the token of the request's context
// as the header fencing.Header, for a Gate on the other side:
//
//	client := &http.Client{Transport: &middleware.Transport{}}
//
// It sends nothing, and returns an error, once the request's context has ended or
// a claim behind it is over by the clock's account: what was late before it was
// sent need not be refused by others. A request that is under way is cut off by
// the end of its context, as ever.
//
// A context without a token, or with fence 0, adds none: the gate refuses what it
// must. A header that the caller has set goes as it is, in place of the context's
// token: who passes a request on passes its token on. A redirect to another host,
// or from https to http, gets neither. Use a client of its own for those who
// check tokens: a token is no secret, but its key may be nobody else's affair.
//
// The zero value is ready for use.
type Transport struct {
	// Base sends the requests. Default: http.DefaultTransport, which then must not
	// be such a Transport itself.
	Base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	sent, err := stamp(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as the contract of RoundTripper has it
		}
		return nil, err
	}
	return base.RoundTrip(sent)
}

// CloseIdleConnections is for http.Client's method of this name.
func (t *Transport) CloseIdleConnections() {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if base, ok := base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// stamp returns the request as it is to be sent.
func stamp(r *http.Request) (*http.Request, error) {
	ctx := r.Context()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := fencing.Check(ctx); err != nil {
		return nil, fmt.Errorf("middleware: not sent: %w", err)
	}
	_, set := r.Header[fencing.Header]
	if elsewhere(r) {
		if !set {
			return r, nil
		}
		r = withHeader(r)
		r.Header.Del(fencing.Header)
		return r, nil
	}
	token, _ := fencing.FromContext(ctx)
	if set || token.IsZero() {
		return r, nil
	}
	text, err := token.MarshalText()
	if err != nil {
		return nil, fmt.Errorf("middleware: not sent: %w", err)
	}
	r = withHeader(r)
	r.Header.Set(fencing.Header, string(text))
	return r, nil
}

// withHeader returns a copy of the request that has a header of its own: all that
// is changed, and a RoundTripper must not change what it was given.
func withHeader(r *http.Request) *http.Request {
	r = r.WithContext(r.Context())
	if r.Header = r.Header.Clone(); r.Header == nil {
		r.Header = make(http.Header, 1)
	}
	return r
}

// elsewhere reports whether the request follows a redirect away from the host that
// the caller meant: every request of a chain names the response that led to it.
func elsewhere(r *http.Request) bool {
	first := r
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	if first.Response != nil {
		return true // it follows a redirect, and nothing says from where
	}
	if first == r || first.URL == nil || r.URL == nil {
		return false
	}
	from, to := first.URL, r.URL
	switch {
	case !strings.EqualFold(from.Hostname(), to.Hostname()):
		return true
	case from.Scheme == to.Scheme:
		return port(from.Scheme, from.Port()) != port(to.Scheme, to.Port())
	}
	// To the secure port of the same host, as sites send their visitors.
	return from.Scheme != "http" || port(from.Scheme, from.Port()) != "80" || to.Scheme != "https" || port(to.Scheme, to.Port()) != "443"
}

func port(scheme, given string) string {
	switch {
	case given != "":
		return given
	case scheme == "https":
		return "443"
	}
	return "80"
}
