package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// leaving posts for a client that waits only for as long.
func leaving(t *testing.T, h http.Handler, key string, patience time.Duration) {
	t.Helper()
	ctx, leave := context.WithTimeout(t.Context(), patience)
	defer leave()
	r := httptest.NewRequest(http.MethodPost, "/", http.NoBody).WithContext(ctx)
	r.Header.Set("Idempotency-Key", key)
	h.ServeHTTP(httptest.NewRecorder(), r)
}

// A handler that was begun is carried out, whether or not its client waits for it:
// that client sends the same again, and must find what it asked for.
func TestOnceWhoseClientLeaves(t *testing.T) {
	for name, handler := range map[string]func(effects *int) http.HandlerFunc{
		"handler that looks": func(effects *int) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				select {
				case <-r.Context().Done():
					return // nobody is there to be answered
				case <-time.After(sec):
				}
				*effects++
				_, _ = io.WriteString(rw, "paid")
			}
		},
		"handler that does not": func(effects *int) http.HandlerFunc {
			return func(rw http.ResponseWriter, _ *http.Request) {
				time.Sleep(5 * sec) // for longer than a drain
				*effects++
				_, _ = io.WriteString(rw, "paid")
			}
		},
	} {
		inWorld(t, name, func(t *testing.T, w *world) {
			effects := 0
			h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{Wait: -1})(handler(&effects))
			leaving(t, h, `"a"`, sec/2)
			resp := post(h, `"a"`, "/", "")
			if got := read(t, resp); resp.StatusCode != http.StatusOK || got != "paid" || effects != 1 {
				t.Errorf("the repeat is answered %d %q, and it was done %d times", resp.StatusCode, got, effects)
			}
		})
	}
}

// disconnecting are works whose caller disconnects between the acquisition and the function.
type disconnecting struct {
	middleware.Works
	disconnect func()
}

func (d disconnecting) TryOnce(ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts ...middleware.WorkOption) ([]byte, bool, error) {
	return d.Works.TryOnce(ctx, key, func(ctx context.Context) ([]byte, error) {
		d.disconnect()
		return fn(ctx)
	}, opts...)
}

// If the client disconnects before the handler is called, the handler is not called, and
// nothing is recorded.
func TestOnceWhoseClientLeavesAsItBegins(t *testing.T) {
	inWorld(t, "", func(t *testing.T, w *world) {
		runs := 0
		handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ })
		ctx, leave := context.WithCancel(t.Context())
		var why *middleware.Problem
		cfg := middleware.OnceConfig{Refuse: func(_ http.ResponseWriter, _ *http.Request, p *middleware.Problem) { why = p }}
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody).WithContext(ctx)
		r.Header.Set("Idempotency-Key", `"a"`)
		middleware.Once(disconnecting{testwork.Of(w.Claims), leave}, fixed("s"), cfg)(handler).ServeHTTP(httptest.NewRecorder(), r)
		var notRun *middleware.NotRunError
		if runs != 0 || why == nil || why.Status != http.StatusServiceUnavailable || !errors.As(why, &notRun) || !errors.Is(why, context.Canceled) {
			t.Fatalf("%d runs, %v", runs, why)
		}
		if record, ok, err := testwork.Of(w.Claims).Record(t.Context(), why.Key); ok || err != nil {
			t.Errorf("%+v, %v", record, err)
		}
		if resp := post(middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(handler), `"a"`, "/", ""); resp.StatusCode != http.StatusOK || runs != 1 {
			t.Errorf("the repeat is answered %d after %d runs", resp.StatusCode, runs)
		}
	})
}

// Who stops since it was told to, and says nothing, has not answered 200.
func TestOnceThatStopsSilently(t *testing.T) {
	inWorld(t, "released by force", func(t *testing.T, w *world) {
		runs := 0
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{}, etcdclaims.MaxHold(5*sec))(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if runs++; runs == 1 {
				<-r.Context().Done()
				return
			}
			_, _ = io.WriteString(rw, "paid")
		}))
		if resp := post(h, `"a"`, "/", ""); resp.StatusCode < 400 {
			t.Errorf("answered %d %q", resp.StatusCode, read(t, resp))
		}
		time.Sleep(time.Minute)
		if resp := post(h, `"a"`, "/", ""); resp.StatusCode != http.StatusOK || read(t, resp) != "paid" || runs != 2 {
			t.Errorf("the repeat is answered %d after %d runs", resp.StatusCode, runs)
		}
	})
}

// The handler was called, and what became of it cannot be recorded: that is not "try
// again", and at most once is at most once.
func TestOnceThatCannotBeRecorded(t *testing.T) {
	for _, atMostOnce := range []bool{false, true} {
		inWorld(t, fmt.Sprintf("at most once %v", atMostOnce), func(t *testing.T, w *world) {
			var opts []work.Option
			if atMostOnce {
				opts = append(opts, work.AtMostOnce())
			}
			runs := 0
			h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{}, opts...)(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				if runs++; runs == 2 {
					w.Host.Inject(claimtest.Fault{On: claimtest.Ending, Err: rpctypes.ErrGRPCPermissionDenied, LoseRequest: true})
				}
				_, _ = io.WriteString(rw, "paid")
			}))
			post(h, `"warm"`, "/", "")
			if resp := post(h, `"a"`, "/", ""); resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(read(t, resp), "OUTCOME_UNKNOWN") {
				t.Errorf("answered %d", resp.StatusCode)
			}
			for range 3 {
				time.Sleep(30 * sec)
				post(h, `"a"`, "/", "")
			}
			if want := map[bool]int{true: 2, false: 3}[atMostOnce]; runs != want {
				t.Errorf("the handler was called %d times, want %d", runs, want)
			}
		})
	}
}

// A scope may read the form: what is compared is the body as it was sent.
func TestOnceWhoseScopeReadsTheForm(t *testing.T) {
	inWorld(t, "form", func(t *testing.T, w *world) {
		scope := func(r *http.Request) string { return "tenant/" + r.FormValue("tenant") }
		h := middleware.Once(testwork.Of(w.Claims), scope, middleware.OnceConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(rw, "paid ", r.FormValue("amount"))
		}))
		for _, tt := range []struct {
			body, want string
			status     int
		}{
			{"tenant=7&amount=1", "paid 1", http.StatusOK},
			{"tenant=7&amount=1", "paid 1", http.StatusOK},
			{"tenant=7&amount=1000", "", http.StatusUnprocessableEntity},
			{"tenant=8&amount=1000", "paid 1000", http.StatusOK},
		} {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tt.body))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Idempotency-Key", `"a"`)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			if rec.Code != tt.status || tt.want != "" && rec.Body.String() != tt.want {
				t.Errorf("%s: %d %q", tt.body, rec.Code, rec.Body)
			}
		}
	})
}

// What cannot be kept as it is is not kept; the length of what HEAD does not send is.
func TestOnceReplaysHeaders(t *testing.T) {
	inWorld(t, "headers", func(t *testing.T, w *world) {
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Length", "12345")
			if r.URL.Path == "/odd" {
				rw.Header().Set("Content-Disposition", "attachment; filename=\"caf\xe9\"")
			}
		}))
		head := func(path string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodHead, path, nil)
			r.Header.Set("Idempotency-Key", `"`+path+`"`)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			return rec
		}
		for range 2 {
			if rec := head("/plain"); rec.Code != http.StatusOK || rec.Header().Get("Content-Length") != "12345" {
				t.Errorf("%d %v", rec.Code, rec.Header())
			}
		}
		head("/odd")
		if rec := head("/odd"); rec.Code != http.StatusConflict || !strings.Contains(rec.Body.String(), "RESPONSE_NOT_KEPT") {
			t.Errorf("%d %v", rec.Code, rec.Header())
		}
	})
}

// departed is a response writer whose client has left. As with net/http, a write is
// buffered and succeeds, and a flush fails.
type departed struct{ *httptest.ResponseRecorder }

func (departed) FlushError() error { return io.ErrClosedPipe }

// A handler that stops when a flush fails has not written its whole response. One that
// cannot see the failure goes on.
func TestOnceWhoseFlushFails(t *testing.T) {
	t.Parallel()
	for name, flush := range map[string]func(http.ResponseWriter) error{
		"seen":   func(rw http.ResponseWriter) error { return http.NewResponseController(rw).Flush() },
		"unseen": func(rw http.ResponseWriter) error { rw.(http.Flusher).Flush(); return nil },
	} {
		inWorld(t, name, func(t *testing.T, w *world) {
			h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				for range 3 {
					if _, err := io.WriteString(rw, "row\n"); err != nil {
						return
					}
					if err := flush(rw); err != nil {
						return
					}
				}
			}))
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
			r.Header.Set("Idempotency-Key", `"a"`)
			h.ServeHTTP(departed{httptest.NewRecorder()}, r)
			again := post(h, `"a"`, "/", "x")
			if name == "seen" {
				problem(t, again, 409, "RESPONSE_NOT_KEPT")
			} else if got := read(t, again); got != "row\nrow\nrow\n" {
				t.Errorf("the repeat got %q", got)
			}
		})
	}
}
