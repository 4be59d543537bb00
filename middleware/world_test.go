package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/middleware"
)

const sec = time.Second

// world is one etcd in virtual time, and two processes, each on its machine.
type world struct {
	server     *claimtest.Server
	host, near *claimtest.Host
	claims     *etcdclaims.Client // on host
	other      *etcdclaims.Client // on near
}

// inWorld runs a subtest in a world of its own, beside the others.
func inWorld(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			server := claimtest.Start(t)
			w := &world{server: server, host: server.Host(t), near: server.Host(t)}
			w.claims = claimtest.NewClient(t, w.host, etcdclaims.Config{Owner: "here"})
			w.other = claimtest.NewClient(t, w.near, etcdclaims.Config{Owner: "there"})
			f(t, w)
		})
	})
}

// revoke takes the key away from whoever holds it, as an operator might.
func (w *world) revoke(t *testing.T, key string) {
	t.Helper()
	w.server.Revoke(t, testclaims.Key("", key))
}

// free fails unless the key is held by nobody.
func (w *world) free(t *testing.T, key string) {
	t.Helper()
	info, err := w.other.Lookup(context.Background(), key)
	if err != nil || info.Held {
		t.Errorf("%s is not free: %+v, %v", key, info, err)
	}
}

// get serves a request to the handler without a network.
func get(h http.Handler, target string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, target, nil))
	return rec
}

// problem fails unless the response is a problem of the reason and status.
func problem(t *testing.T, resp *http.Response, status int, reason string) *middleware.Problem {
	t.Helper()
	var p *middleware.Problem
	if err := middleware.CheckResponse(resp); !errors.As(err, &p) {
		t.Fatalf("status %d, %v: not a problem", resp.StatusCode, resp.Header)
	}
	if p.Status != status || p.Type != "https://github.com/etcdclaims/claims/blob/main/docs/gates.md#"+reason || p.Title == "" {
		text, _ := json.Marshal(p)
		t.Fatalf("got %s, want %d %s", text, status, reason)
	}
	return p
}

// fixed is a key function.
func fixed(key string) func(*http.Request) string { return func(*http.Request) string { return key } }

// free are claims that cost nothing.
type free struct{}

func (free) Run(ctx context.Context, _ string, fn func(context.Context) error, _ ...middleware.AcquireOption) error {
	return fn(ctx)
}

func (free) TryRun(ctx context.Context, _ string, fn func(context.Context) error, _ ...middleware.AcquireOption) error {
	return fn(ctx)
}

// losing are claims that are lost by the clock's account at once, of which nobody
// tells.
type losing struct{ free }

func (losing) TryRun(ctx context.Context, _ string, fn func(context.Context) error, _ ...middleware.AcquireOption) error {
	return fn(fencing.WithCheck(ctx, func() error { return fencing.ErrLost }))
}
