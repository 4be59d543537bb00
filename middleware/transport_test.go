package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
)

// spy records what would be sent.
type spy struct {
	sent []*http.Request
}

func (s *spy) RoundTrip(r *http.Request) (*http.Response, error) {
	s.sent = append(s.sent, r)
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// closing counts how often a body was closed.
type closing struct {
	io.Reader
	closed atomic.Int64
}

func (c *closing) Close() error { c.closed.Add(1); return nil }

func TestTransport(t *testing.T) {
	t.Parallel()
	held := fencing.NewContext(t.Context(), fencing.Token{Key: "k", Fence: 7})
	lost := fencing.WithCheck(held, func() error { return fencing.ErrLost })
	own := errors.New("own")
	ended, cancel := context.WithCancelCause(held)
	cancel(own)
	for name, c := range map[string]struct {
		ctx  context.Context
		set  string
		want string // the header
		err  error
	}{
		"token":            {held, "", `7;key="k"`, nil},
		"no token":         {t.Context(), "", "", nil},
		"fence 0":          {fencing.NewContext(t.Context(), fencing.Token{Key: "k"}), "", "", nil},
		"invalid":          {fencing.NewContext(t.Context(), fencing.Token{Key: "", Fence: 7}), "", "", fencing.ErrMalformed},
		"negative":         {fencing.NewContext(t.Context(), fencing.Token{Key: "k", Fence: -7}), "", "", fencing.ErrMalformed},
		"set":              {held, `3;key="j"`, `3;key="j"`, nil},
		"lost":             {lost, "", "", fencing.ErrLost},
		"lost, header set": {lost, `3;key="j"`, "", fencing.ErrLost},
		"ended":            {ended, "", "", own},
		"ended, the error": {ended, "", "", context.Canceled},
	} {
		base, body := &spy{}, &closing{Reader: strings.NewReader("body")}
		r := httptest.NewRequestWithContext(c.ctx, http.MethodPost, "http://stock.example/7", body)
		if c.set != "" {
			r.Header.Set(fencing.Header, c.set)
		}
		before := r.Header.Clone()
		resp, err := (&middleware.Transport{Base: base}).RoundTrip(r)
		if !errors.Is(err, c.err) || (resp == nil) != (c.err != nil) {
			t.Errorf("%s: %v, %v, want %v", name, resp, err, c.err)
		}
		if body.closed.Load() != 1 {
			t.Errorf("%s: the body was closed %d times", name, body.closed.Load())
		}
		if len(before) != len(r.Header) || before.Get(fencing.Header) != r.Header.Get(fencing.Header) {
			t.Errorf("%s: the caller's request was changed: %v", name, r.Header)
		}
		if c.err != nil {
			if len(base.sent) > 0 {
				t.Errorf("%s: sent", name)
			}
			continue
		}
		if got := base.sent[0].Header.Values(fencing.Header); strings.Join(got, "|") != c.want {
			t.Errorf("%s: sent %q, want %q", name, got, c.want)
		}
	}
}

// net/http sends a header as it is spelled in the map, and whoever receives it reads
// all spellings as one.
func TestTransportSpellings(t *testing.T) {
	t.Parallel()
	held := fencing.NewContext(t.Context(), fencing.Token{Key: "k", Fence: 7})
	send := func(r *http.Request) http.Header {
		t.Helper()
		base := &spy{}
		if _, err := (&middleware.Transport{Base: base}).RoundTrip(r); err != nil {
			t.Fatal(err)
		}
		return base.sent[0].Header
	}
	for _, name := range []string{"fencing-token", "FENCING-TOKEN", "Fencing-token"} {
		r := httptest.NewRequestWithContext(held, http.MethodGet, "http://stock.example/7", nil)
		r.Header[name] = []string{`3;key="j"`}
		if got := send(r); len(got) != 1 || got[name][0] != `3;key="j"` {
			t.Errorf("%s: sent %v", name, got)
		}
		u, err := url.Parse("http://b.example/")
		if err != nil {
			t.Fatal(err)
		}
		hop := &http.Request{Method: http.MethodGet, URL: u, Header: r.Header.Clone(), Response: &http.Response{Request: r}}
		if got := send(hop.WithContext(held)); len(got) > 0 {
			t.Errorf("%s: sent to another host: %v", name, got)
		}
	}
}

// A token does not follow a redirect to another host, nor one that was set by hand.
func TestTransportRedirects(t *testing.T) {
	t.Parallel()
	chain := func(hops ...string) *http.Request {
		var last *http.Request
		for _, hop := range hops {
			u, err := url.Parse(hop)
			if err != nil {
				t.Fatal(err)
			}
			r := (&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}).
				WithContext(fencing.NewContext(t.Context(), fencing.Token{Key: "k", Fence: 7}))
			if last != nil {
				r.Response = &http.Response{Request: last}
			}
			last = r
		}
		return last
	}
	for hops, want := range map[string]bool{
		"http://a/":                                   true,
		"http://a/ http://a/x":                        true,
		"http://a/ http://A:80/x":                     true,
		"http://a/ http://b/":                         false,
		"http://a/ http://sub.a/":                     false,
		"http://a/ http://a:81/":                      false,
		"http://a/ https://a/":                        true,
		"http://a:80/ https://a:443/":                 true,
		"http://a:8080/ https://a/":                   false,
		"http://a/ https://a:8443/":                   false,
		"https://a/ http://a/":                        false,
		"https://a/ https://a:443/x https://a/y":      true,
		"https://a/ https://b/ https://a/":            true, // it was never sent to b
		"https://a/ https://b/ https://b/x":           false,
		"http://[::1]:80/ http://[::1]/":              true,
		"https://a/ https://a/x http://a/ https://a/": true,
	} {
		for _, set := range []bool{false, true} {
			base := &spy{}
			r := chain(strings.Fields(hops)...)
			if set {
				r.Header.Set(fencing.Header, `3;key="j"`)
			}
			if _, err := (&middleware.Transport{Base: base}).RoundTrip(r); err != nil {
				t.Fatal(err)
			}
			if got := base.sent[0].Header.Get(fencing.Header); (got != "") != want {
				t.Errorf("%s, set %v: sent %q", hops, set, got)
			}
			if set && r.Header.Get(fencing.Header) == "" {
				t.Errorf("%s: the caller's request was changed", hops)
			}
		}
	}
}

// The same with http.Client over the network, and what the gate answers.
func TestTransportClient(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if h := r.Header.Values(fencing.Header); len(h) > 0 {
			t.Errorf("the other host got %q", h)
		}
	}))
	defer other.Close()
	var gate fencing.Memory
	mux := http.NewServeMux()
	mux.HandleFunc("/away", func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/moved", func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "/stock/7", http.StatusTemporaryRedirect)
	})
	mux.Handle("/stock/{id}", middleware.Gate(&gate, middleware.PathKey("stock/{id}"), middleware.Config{})(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(rw, r.Body)
	})))
	server := httptest.NewServer(mux)
	defer server.Close()
	client := &http.Client{Transport: &middleware.Transport{Base: server.Client().Transport}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	do := func(fence int64, path string, set ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(fencing.NewContext(t.Context(), fencing.Token{Key: "stock/7", Fence: fence}), http.MethodPut, server.URL+path, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range set {
			r.Header.Add(fencing.Header, line)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	for _, path := range []string{"/stock/7", "/moved"} {
		resp := do(5, path)
		if err := middleware.CheckResponse(resp); err != nil || read(t, resp) != "body" {
			t.Errorf("%s: %d, %v", path, resp.StatusCode, err)
		}
	}
	do(5, "/away")
	do(5, "/away", `5;key="stock/7"`)
	problem(t, do(4, "/stock/7"), 412, "STALE_FENCE")
	problem(t, do(0, "/stock/7"), 428, "MISSING_FENCE")
	problem(t, do(6, "/stock/8"), 428, "MISSING_FENCE")
	if resp := do(4, "/stock/7", `6;key="stock/7"`); resp.StatusCode != 200 {
		t.Errorf("set by hand: %d", resp.StatusCode)
	}
	client.Transport.(*middleware.Transport).CloseIdleConnections()
	(&middleware.Transport{}).CloseIdleConnections()
}

// What is none of the package's problems is none, and can be read yet.
func TestCheckResponse(t *testing.T) {
	t.Parallel()
	response := func(status int, media, body string) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {media}, "Retry-After": {"3"}}, Body: io.NopCloser(strings.NewReader(body))}
	}
	const held = `{"type":"https://github.com/etcdclaims/claims/blob/main/docs/gates.md#HELD","title":"t","status":409,"key":"k","owner":"o","newest":"9007199254740993"}`
	for _, media := range []string{"application/problem+json", "Application/Problem+JSON; charset=utf-8"} {
		resp := response(409, media, held)
		var p *middleware.Problem
		err := middleware.CheckResponse(resp)
		if !errors.As(err, &p) || !errors.Is(err, fencing.ErrHeld) || p.Owner != "o" || p.Newest != 1<<53+1 || p.RetryAfter != 3*time.Second || !strings.Contains(p.Error(), `"k"`) {
			t.Errorf("got %+v", err)
		}
		if read(t, resp) != held {
			t.Error("the body cannot be read again")
		}
	}
	for name, resp := range map[string]*http.Response{
		"success":        response(200, "application/problem+json", held),
		"other media":    response(409, "application/json", held),
		"no media":       response(409, "", held),
		"other problem":  response(409, "application/problem+json", `{"type":"about:blank","status":409}`),
		"no JSON":        response(409, "application/problem+json", `<html>`),
		"numbers":        response(409, "application/problem+json", `{"type":7}`),
		"nothing":        response(409, "application/problem+json", ""),
		"cut off":        {StatusCode: 409, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: io.NopCloser(io.MultiReader(strings.NewReader(held), iotestErr{}))},
		"without a body": {StatusCode: 412},
	} {
		if err := middleware.CheckResponse(resp); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := middleware.CheckResponse(nil); err != nil {
		t.Error(err)
	}
	for _, after := range []string{"", "-1", "x", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)} {
		resp := response(409, "application/problem+json", held)
		resp.Header.Set("Retry-After", after)
		var p *middleware.Problem
		if !errors.As(middleware.CheckResponse(resp), &p) || p.RetryAfter != 0 {
			t.Errorf("Retry-After %q: %v", after, p.RetryAfter)
		}
	}
	resp := response(409, "application/problem+json", held)
	resp.Header.Set("Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
	var p *middleware.Problem
	if !errors.As(middleware.CheckResponse(resp), &p) || p.RetryAfter < 59*time.Minute || p.RetryAfter > time.Hour {
		t.Errorf("a date: %v", p.RetryAfter)
	}
	var bytes strings.Builder
	big := response(409, "application/problem+json", strings.Repeat(" ", 100<<10))
	if err := middleware.CheckResponse(big); err != nil {
		t.Error(err)
	}
	if n, err := io.Copy(&bytes, big.Body); n != 100<<10 || err != nil {
		t.Errorf("a large body: %d, %v", n, err)
	}
}

type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
