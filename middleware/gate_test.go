package middleware_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
)

func TestGate(t *testing.T) {
	t.Parallel()
	served := 0
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if token, ok := fencing.FromContext(r.Context()); !ok || token.Key != "stock/7" {
			t.Errorf("token %v, %v", token, ok)
		}
		served++
		rw.WriteHeader(http.StatusNoContent)
	})
	var gate fencing.Memory
	mux := http.NewServeMux()
	mux.Handle("PUT /stock/{id}", middleware.Gate(&gate, middleware.PathKey("stock/{id}"), middleware.Config{})(handler))
	put := func(path string, lines ...string) *http.Response {
		r := httptest.NewRequest(http.MethodPut, path, nil)
		r.Header[fencing.Header] = lines
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, r)
		return rec.Result()
	}
	for range 2 { // the owner may repeat itself
		if resp := put("/stock/7", `5;key="stock/7"`); resp.StatusCode != http.StatusNoContent {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	served = 0
	p := problem(t, put("/stock/7", `3;key="stock/7"`), 412, "STALE_FENCE")
	var stale *fencing.StaleError
	if !errors.As(p, &stale) || stale.Newest != 5 || stale.Token != (fencing.Token{Key: "stock/7", Fence: 3}) || !errors.Is(p, fencing.ErrStale) {
		t.Errorf("got %+v", p)
	}
	if p.Newest != 5 || p.Fence != 3 || p.Key != "stock/7" || p.RetryAfter != 0 {
		t.Errorf("got %+v", p)
	}
	// A valid token, of another key: the problem is about the key of the request.
	for _, other := range []string{"/stock/8", "/stock/7%2F"} {
		p := problem(t, put(other, `6;key="stock/7"`), 428, "MISSING_FENCE")
		if !errors.Is(p, fencing.ErrNoToken) || p.Key != other[1:] || p.Fence != 0 {
			t.Errorf("got %+v", p)
		}
	}
	if p := problem(t, put("/stock/7"), 428, "MISSING_FENCE"); p.Key != "stock/7" || p.Fence != 0 {
		t.Errorf("got %+v", p)
	}
	for _, bad := range [][]string{{""}, {"7"}, {`0;key="stock/7"`}, {`-1;key="stock/7"`}, {`7;key="stock/7"`, `7;key="stock/7"`}, {`7;key="stock/7", 8;key="stock/7"`}} {
		if p := problem(t, put("/stock/7", bad...), 400, "MALFORMED_FENCE"); !errors.Is(p, fencing.ErrMalformed) || p.Key != "stock/7" || p.Fence != 0 {
			t.Errorf("got %+v", p)
		}
	}
	if served != 0 {
		t.Errorf("the handler ran %d times", served)
	}
}

// A gate that has no answer lets nothing through, and what it may have remembered
// was not carried out.
func TestGateFails(t *testing.T) {
	t.Parallel()
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })
	for name, err := range map[string]error{"error": errors.New("database is down"), "unknown": fencing.ErrUnknown, "cancelled": context.Canceled} {
		gate := fencing.GateFunc(func(context.Context, fencing.Token) error { return err })
		r := httptest.NewRequest(http.MethodPut, "/", nil)
		r.Header.Set(fencing.Header, `5;key="k"`)
		rec := httptest.NewRecorder()
		var seen error
		middleware.Gate(gate, anyKey, middleware.Config{
			Refuse: func(rw http.ResponseWriter, r *http.Request, p *middleware.Problem) { seen = p.Err; p.ServeHTTP(rw, r) },
		})(never).ServeHTTP(rec, r)
		if p := problem(t, rec.Result(), 503, "UNAVAILABLE"); p.RetryAfter != sec || p.Detail != "" {
			t.Errorf("%s: got %+v: what the database says is nobody's business", name, p)
		}
		if !errors.Is(seen, err) {
			t.Errorf("%s: Refuse saw %v", name, seen)
		}
	}
	r := httptest.NewRequest(http.MethodPut, "/", nil)
	r.Header.Set(fencing.Header, `5;key="k"`)
	rec := httptest.NewRecorder()
	middleware.Gate(new(fencing.Memory), fixed(""), middleware.Config{})(never).ServeHTTP(rec, r)
	problem(t, rec.Result(), 400, "INVALID_KEY")
}

// A gate that was forgotten does not let every request pass.
func TestGateWantsAGate(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"gate": func() { middleware.Gate(nil, anyKey, middleware.Config{}) },
		"key":  func() { middleware.Gate(new(fencing.Memory), nil, middleware.Config{}) },
		"Wait": func() { middleware.Gate(new(fencing.Memory), anyKey, middleware.Config{Wait: 1}) },
	} {
		if !panics(f) {
			t.Errorf("%s: no panic", name)
		}
	}
}

// A handler that asks a gate in its own transaction answers as Gate does.
func TestProblemOf(t *testing.T) {
	t.Parallel()
	old := fencing.Token{Key: "k", Fence: 5}
	stale := fmt.Errorf("sqlguard: %w", &fencing.StaleError{Token: old, Newest: 8})
	notRun := &middleware.NotRunError{Key: "k", Err: errors.New("no answer")}
	for _, test := range []struct {
		err    error
		status int
		reason string
	}{
		{stale, 412, "STALE_FENCE"},
		{errors.Join(stale, sql.ErrTxDone), 412, "STALE_FENCE"},
		{fencing.ErrNoToken, 428, "MISSING_FENCE"},
		{fencing.ErrMalformed, 400, "MALFORMED_FENCE"},
		{&middleware.NotRunError{Key: "a//b", Err: middleware.ErrInvalidKey}, 400, "INVALID_KEY"},
		{&etcdclaims.HeldError{Info: etcdclaims.Info{Key: "other", Owner: "api-7", Fence: 3, Held: true}}, 409, "HELD"},
		{fencing.ErrLost, 409, "CLAIM_LOST"},
		{fmt.Errorf("commit: %w", fencing.ErrUnknown), 504, "OUTCOME_UNKNOWN"},
		{notRun, 503, "UNAVAILABLE"},
	} {
		p, ok := middleware.ProblemOf(test.err)
		if !ok || !errors.Is(p, test.err) {
			t.Fatalf("%v: %v %v", test.err, p, ok)
		}
		rec := httptest.NewRecorder()
		p.ServeHTTP(rec, nil)
		got := problem(t, rec.Result(), test.status, test.reason)
		if test.status == 412 && (got.Key != "k" || got.Fence != 5 || got.Newest != 8 || got.Detail == "") {
			t.Errorf("%v: %+v", test.err, got)
		}
		if test.reason != "HELD" && got.Detail == "" {
			t.Errorf("%v has no detail", test.err)
		}
		if got.Owner != "" || test.status != 412 && got.Newest != 0 || test.reason == "INVALID_KEY" && got.Key != "" {
			t.Errorf("%v: %+v", test.err, got)
		}
		if test.reason == "UNAVAILABLE" && (got.Key != "k" || got.RetryAfter == 0) {
			t.Errorf("%v: %+v", test.err, got)
		}
	}
	for _, err := range []error{nil, sql.ErrNoRows} {
		if p, ok := middleware.ProblemOf(err); ok || p != nil {
			t.Errorf("%v: %v", err, p)
		}
	}
}

// What is not configured costs nothing: it is the handler itself.
func TestPassthrough(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux() // can be compared
	if middleware.Exclusive(without, fixed("k"), middleware.Config{})(mux) != http.Handler(mux) {
		t.Error("a client without etcd wraps")
	}
}

func TestPathKey(t *testing.T) {
	t.Parallel()
	f := func(pattern, path, key, want string) {
		t.Helper()
		got, mux := "", http.NewServeMux()
		mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) { got = middleware.PathKey(key)(r) })
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
		if got != want {
			t.Errorf("%s of %s: got %q, want %q", key, path, got, want)
		}
	}
	f("/o/{id}", "/o/42", "orders/{id}", "orders/42")
	f("/o/{id}/{line}", "/o/42/7", "lines/{line}.of/x-{id}.x", "lines/7.of/x-42.x")
	f("/o/{id}/{line}", "/o/a%2Fb/c", "{id}/{line}", "a%2Fb/c")
	f("/o/{id}/{line}", "/o/a/b%2Fc", "{id}/{line}", "a/b%2Fc")
	f("/files/{name...}", "/files/eu/report", "files/{name}", "files/eu%2Freport")
	f("/o/{rest...}", "/o/", "{rest}", "")
	f("/o/{id}", "/o/42", "orders/{name}", "")
	for _, bad := range []string{"", "orders", "orders/{id", "orders/id}", "orders/{}", "{a{b}}", "{a}}"} {
		if !panics(func() { middleware.PathKey(bad) }) {
			t.Errorf("%q: no panic", bad)
		}
	}
	// Two requests would share a key: those with b and c:d, and with b:c and d.
	for _, joined := range []string{"{a}{b}", "{a}:{b}", "o/{a}.of.{b}/x", "{a}/{b}-{c}", "{a}%2F{b}"} {
		if !panics(func() { middleware.PathKey(joined) }) {
			t.Errorf("%q: no panic", joined)
		}
	}
}

// A wrapper that was put together wrongly says so as the program starts.
func TestPanicsEarly(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"Gate without a key":          func() { middleware.Gate(new(fencing.Memory), nil, middleware.Config{}) },
		"Gate that waits":             func() { middleware.Gate(new(fencing.Memory), anyKey, middleware.Config{Wait: 1}) },
		"Gate without a handler":      func() { middleware.Gate(new(fencing.Memory), anyKey, middleware.Config{})(nil) },
		"Exclusive without a key":     func() { middleware.Exclusive(without, nil, middleware.Config{}) },
		"Exclusive without a handler": func() { middleware.Exclusive(without, fixed("k"), middleware.Config{})(nil) },
		"Func without a key":          func() { middleware.Func(without, nil, double, middleware.FuncConfig{}) },
		"Func without a function": func() {
			middleware.Func[string, int](without, func(s string) string { return s }, nil, middleware.FuncConfig{})
		},
	} {
		if !panics(f) {
			t.Errorf("%s: no panic", name)
		}
	}
}

func panics(f func()) (p bool) {
	defer func() { p = recover() != nil }()
	f()
	return false
}

// anyKey lets a token of any key pass.
func anyKey(r *http.Request) string {
	token, _ := fencing.Parse(r.Header.Get(fencing.Header))
	return token.Key
}
