package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/middleware"
)

// Without a client nothing runs and nothing panics: the error of New was ignored.
func TestNoClient(t *testing.T) {
	t.Parallel()
	never := func(context.Context, string) (int, error) { t.Error("it was called"); return 0, nil }
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
	key := func(s string) string { return s }
	for name, c := range map[string]middleware.Claims{"nil": nil, "nil client": (*etcdclaims.Client)(nil), "zero client": new(etcdclaims.Client)} {
		var works middleware.Works
		if c != nil {
			works = (*work.Runner)(nil)
		}
		var reported error
		refuse := func(w http.ResponseWriter, r *http.Request, p *middleware.Problem) {
			reported = p.Err
			p.ServeHTTP(w, r)
		}
		for what, wrapped := range map[string]http.Handler{
			"Exclusive": middleware.Exclusive(c, fixed("k"), middleware.Config{Refuse: refuse})(handler),
			"Once":      middleware.Once(works, fixed("k"), middleware.OnceConfig{Refuse: refuse})(handler),
		} {
			reported = nil
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
			r.Header.Set("Idempotency-Key", `"a"`)
			w := httptest.NewRecorder()
			wrapped.ServeHTTP(w, r)
			if w.Code != http.StatusServiceUnavailable || !errors.Is(reported, etcdclaims.ErrNoClient) {
				t.Errorf("%s, %s: %d, %v", name, what, w.Code, reported)
			}
		}
		for what, f := range map[string]func(context.Context, string) (int, error){
			"Func":     middleware.Func(c, key, never, middleware.FuncConfig{Skip: true}),
			"FuncOnce": middleware.FuncOnce(works, key, never, middleware.FuncConfig{Skip: true}),
		} {
			_, err := f(t.Context(), "k")
			var notRun *middleware.NotRunError
			if !errors.As(err, &notRun) || !errors.Is(err, etcdclaims.ErrNoClient) || !strings.Contains(err.Error(), "NewPassthrough") {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		err := middleware.Singleton(t.Context(), c, "k", func(ctx context.Context) error { _, err := never(ctx, ""); return err }, middleware.SingletonConfig{})
		if !errors.Is(err, etcdclaims.ErrNoClient) || !strings.HasPrefix(err.Error(), `middleware: lead "k": no client: `) {
			t.Errorf("%s, Singleton: %v", name, err)
		}
	}
}

// Keys that features keep for themselves are invalid: no retry could succeed.
func TestKeptKeysAreInvalid(t *testing.T) {
	inWorld(t, "client", func(t *testing.T, w *world) {
		for _, key := range []string{"sched/g/owner", "queue/q", "a#slot-1", " "} {
			wrapped := middleware.Exclusive(w.Claims, fixed(key), middleware.Config{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") }))
			recorder := httptest.NewRecorder()
			wrapped.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/", nil))
			if recorder.Code != http.StatusBadRequest {
				t.Errorf("%q: %d %s", key, recorder.Code, recorder.Body)
			}
		}
	})
}
