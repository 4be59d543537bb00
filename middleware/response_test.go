package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
)

// Response writers that can do this and that.
type (
	plain   struct{ http.ResponseWriter }
	shell   struct{ http.ResponseWriter } // as other middleware has
	flushes struct{ flushed *int }
	hijacks struct{}
	pushes  struct{}
)

func (s shell) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (f flushes) Flush() { *f.flushed++ }

func (hijacks) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

func (pushes) Push(string, *http.PushOptions) error { return nil }

// alone is a handler's wrapper without etcd.
func alone(h http.HandlerFunc) http.Handler {
	return middleware.Exclusive(free{}, fixed("k"), middleware.Config{})(h)
}

// What the wrapper can do is what the wrapped can do itself. One that only shows what
// it wraps, by Unwrap, is not passed by: it may have to write first what it compresses.
func TestResponseAbilities(t *testing.T) {
	t.Parallel()
	n := 0
	f, h, p := flushes{&n}, hijacks{}, pushes{}
	w := plain{httptest.NewRecorder()}
	all := map[string]http.ResponseWriter{
		"false false false": w,
		"true false false": struct {
			plain
			flushes
		}{w, f},
		"false true false": struct {
			plain
			hijacks
		}{w, h},
		"false false true": struct {
			plain
			pushes
		}{w, p},
		"true true false": struct {
			plain
			flushes
			hijacks
		}{w, f, h},
		"true false true": struct {
			plain
			flushes
			pushes
		}{w, f, p},
		"false true true": struct {
			plain
			hijacks
			pushes
		}{w, h, p},
		"true true true": struct {
			plain
			flushes
			hijacks
			pushes
		}{w, f, h, p},
	}
	for within, inner := range all {
		for _, inner := range []http.ResponseWriter{inner, shell{inner}, shell{shell{inner}}} {
			want := within
			if _, is := inner.(shell); is {
				want = "false false false"
			}
			alone(func(rw http.ResponseWriter, _ *http.Request) {
				flusher, canFlush := rw.(http.Flusher)
				hijacker, canHijack := rw.(http.Hijacker)
				pusher, canPush := rw.(http.Pusher)
				if got := fmt.Sprint(canFlush, canHijack, canPush); got != want {
					t.Errorf("%T: got %s, want %s", inner, got, want)
				}
				before := n
				if canFlush {
					flusher.Flush()
				}
				if canFlush && n != before+1 {
					t.Errorf("%s: flushed %d times, want 1", want, n-before)
				}
				// This one looks beyond, with the wrapper as without.
				for name, able := range map[string]func(c *http.ResponseController) error{
					"Flush":  (*http.ResponseController).Flush,
					"Hijack": func(c *http.ResponseController) error { _, _, err := c.Hijack(); return err },
				} {
					if got, bare := able(http.NewResponseController(rw)), able(http.NewResponseController(inner)); errors.Is(got, http.ErrNotSupported) != errors.Is(bare, http.ErrNotSupported) {
						t.Errorf("%T, %s: %s: %v, and without the wrapper %v", inner, within, name, got, bare)
					}
				}
				if canPush {
					if err := pusher.Push("/", nil); err != nil {
						t.Error(err)
					}
				}
				if canHijack {
					if _, _, err := hijacker.Hijack(); err != nil {
						t.Error(err)
					}
				}
			}).ServeHTTP(inner, httptest.NewRequest(http.MethodGet, "/", nil))
		}
	}
}

// Nothing gets past the look at the clock, by whatever way it is sent.
func TestResponseIsGuarded(t *testing.T) {
	t.Parallel()
	n := 0
	for name, send := range map[string]func(rw http.ResponseWriter) error{
		"write":  func(rw http.ResponseWriter) error { _, err := rw.Write([]byte("x")); return err },
		"string": func(rw http.ResponseWriter) error { _, err := io.WriteString(rw, "x"); return err },
		"copy":   func(rw http.ResponseWriter) error { _, err := io.Copy(rw, strings.NewReader("x")); return err },
		"readfrom": func(rw http.ResponseWriter) error {
			_, err := rw.(io.ReaderFrom).ReadFrom(strings.NewReader("x"))
			return err
		},
		"controller": func(rw http.ResponseWriter) error { return http.NewResponseController(rw).Flush() },
		"hijack":     func(rw http.ResponseWriter) error { _, _, err := http.NewResponseController(rw).Hijack(); return err },
		"hijacker":   func(rw http.ResponseWriter) error { _, _, err := rw.(http.Hijacker).Hijack(); return err },
		"pusher":     func(rw http.ResponseWriter) error { return rw.(http.Pusher).Push("/", nil) },
		"flusher":    func(rw http.ResponseWriter) error { rw.(http.Flusher).Flush(); return fencing.ErrLost },
		"header":     func(rw http.ResponseWriter) error { rw.WriteHeader(200); return fencing.ErrLost },
		"hints":      func(rw http.ResponseWriter) error { rw.WriteHeader(103); return fencing.ErrLost },
	} {
		rec := httptest.NewRecorder()
		inner := struct {
			plain
			flushes
			hijacks
			pushes
		}{plain{rec}, flushes{&n}, hijacks{}, pushes{}}
		h := middleware.Exclusive(losing{}, fixed("k"), middleware.Config{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			if err := send(rw); !errors.Is(err, fencing.ErrLost) {
				t.Errorf("%s: %v, want ErrLost", name, err)
			}
		}))
		h.ServeHTTP(inner, httptest.NewRequest(http.MethodGet, "/", nil))
		problem(t, rec.Result(), 409, "CLAIM_LOST")
	}
	if n > 0 {
		t.Errorf("flushed %d times", n)
	}
}

// A connection is the handler's own affair by whatever way it was hijacked: nothing is
// written to it then, though the claim was lost.
func TestResponseHijackedBeyond(t *testing.T) {
	t.Parallel()
	lost := false
	for _, inner := range []http.ResponseWriter{struct {
		plain
		hijacks
	}{plain{httptest.NewRecorder()}, hijacks{}}, shell{struct {
		plain
		hijacks
	}{plain{httptest.NewRecorder()}, hijacks{}}}} {
		h := middleware.Exclusive(losingAt{&lost}, fixed("k"), middleware.Config{Refuse: func(_ http.ResponseWriter, _ *http.Request, p *middleware.Problem) {
			t.Errorf("%T: answered with %v", inner, p)
		}})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			if _, _, err := http.NewResponseController(rw).Hijack(); err != nil {
				t.Error(err)
			}
			lost = true
		}))
		h.ServeHTTP(inner, httptest.NewRequest(http.MethodGet, "/", nil))
		lost = false
	}
}

// losingAt are claims that are lost when it says so.
type losingAt struct{ lost *bool }

func (c losingAt) Run(ctx context.Context, key string, fn func(context.Context) error, opts ...middleware.AcquireOption) error {
	return c.TryRun(ctx, key, fn, opts...)
}

func (c losingAt) TryRun(ctx context.Context, _ string, fn func(context.Context) error, _ ...middleware.AcquireOption) error {
	check := func() error {
		if *c.lost {
			return fencing.ErrLost
		}
		return nil
	}
	return errors.Join(fn(fencing.WithCheck(ctx, check)), check())
}

// late writes its header when it is first written to, as those do that compress. It
// cannot be flushed, but shows what it wraps.
type late struct {
	http.ResponseWriter
	begun bool
}

func (l *late) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *late) Write(b []byte) (int, error) {
	if !l.begun {
		l.begun = true
		l.Header().Set("X-Coded", "upper")
	}
	_, err := l.ResponseWriter.Write([]byte(strings.ToUpper(string(b))))
	return len(b), err
}

func TestResponseIsNotFlushedPastAWrapper(t *testing.T) {
	t.Parallel()
	handler := func(rw http.ResponseWriter, _ *http.Request) {
		if f, ok := rw.(http.Flusher); ok {
			f.Flush()
		}
		_, _ = io.WriteString(rw, "text")
	}
	once := middleware.Once(amnesiac{}, fixed("s"), middleware.OnceConfig{})
	for name, h := range map[string]http.Handler{
		"bare":      http.HandlerFunc(handler),
		"Exclusive": alone(handler),
		"Once":      once(http.HandlerFunc(handler)),

		"Once in Exclusive":      alone(once(http.HandlerFunc(handler)).ServeHTTP),
		"Exclusive in Once":      once(alone(handler)),
		"Exclusive in Exclusive": alone(alone(handler).ServeHTTP),
	} {
		rec := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", `"a"`)
		h.ServeHTTP(&late{ResponseWriter: rec}, r)
		if got := rec.Result(); got.Header.Get("X-Coded") != "upper" || rec.Body.String() != "TEXT" {
			t.Errorf("%s: %v %q", name, got.Header, rec.Body)
		}
	}
}

// amnesiac are works that remember nothing.
type amnesiac struct{}

func (amnesiac) Once(ctx context.Context, _ string, fn func(context.Context) ([]byte, error), _ ...middleware.WorkOption) ([]byte, bool, error) {
	result, err := fn(ctx)
	return result, true, err
}

func (f amnesiac) TryOnce(ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts ...middleware.WorkOption) ([]byte, bool, error) {
	return f.Once(ctx, key, fn, opts...)
}
