package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/errtext"
)

// Transport is an http.RoundTripper that sends the token of the request's context
// as the header fencing.Header, for a Gate on the receiving side:
//
//	client := &http.Client{Transport: &middleware.Transport{}}
//
// If the request's context has ended, or a claim behind it is over by the local
// clock, Transport sends nothing and returns an error. A request that is under
// way is canceled when its context ends, as usual.
//
// If the context has no token, or a token with fence 0, Transport adds no header.
// If the caller has set the header, it is sent unchanged: a proxy passes on the
// token that it received. After a redirect to another host, or from https to
// http, neither is sent. A token is not a secret, but its key may be
// confidential. So use a separate client for servers that check tokens.
//
// The zero value is ready for use. A Transport is safe for concurrent use.
type Transport struct {
	// Base sends the requests. Default: http.DefaultTransport, which must then
	// not be a Transport itself.
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
			_ = r.Body.Close() // RoundTrip must always close the body
		}
		return nil, err
	}
	return base.RoundTrip(sent)
}

// CloseIdleConnections closes the idle connections of Base.
// http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if base, ok := base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// stamp returns the request to send.
func stamp(r *http.Request) (*http.Request, error) {
	ctx := r.Context()
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	if err := fencing.Check(ctx); err != nil {
		return nil, errtext.Wrap("middleware: request not sent", err)
	}
	set := spellings(r.Header)
	if elsewhere(r) {
		if len(set) == 0 {
			return r, nil
		}
		r = withHeader(r)
		for _, name := range set {
			delete(r.Header, name)
		}
		return r, nil
	}
	token, _ := fencing.FromContext(ctx)
	if len(set) > 0 || token.IsZero() {
		return r, nil
	}
	text, err := token.MarshalText()
	if err != nil {
		return nil, errtext.Wrap("middleware: request not sent", err)
	}
	r = withHeader(r)
	r.Header.Set(fencing.Header, string(text))
	return r, nil
}

// spellings returns the names of the token's header that are set. A caller who
// writes into the map may use any case. net/http sends it unchanged, and
// receivers treat all spellings as one field.
func spellings(h http.Header) (names []string) {
	for name := range h {
		if strings.EqualFold(name, fencing.Header) {
			names = append(names, name)
		}
	}
	return names
}

// ended returns an error that matches the error of an ended context, and its
// cause.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ctx.Err()) {
		return cause
	}
	return fmt.Errorf("%w: %w", ctx.Err(), cause)
}

// withHeader returns a copy of the request with its own header, because a
// RoundTripper must not change its argument.
func withHeader(r *http.Request) *http.Request {
	r = r.WithContext(r.Context())
	if r.Header = r.Header.Clone(); r.Header == nil {
		r.Header = make(http.Header, 1)
	}
	return r
}

// elsewhere reports whether the request follows a redirect away from the host of
// the first request. Every request after a redirect has the response that led to
// it.
func elsewhere(r *http.Request) bool {
	first := r
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	if first.Response != nil {
		return true // it follows a redirect from an unknown request
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
	// Only an upgrade from http to https on the default ports of the same host is not elsewhere.
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
