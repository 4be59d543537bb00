package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/middleware"
)

const sec = time.Second

type world = testclaims.Pair

// inWorld runs a subtest in a world of its own, beside the others.
var inWorld = testclaims.PairCase

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
