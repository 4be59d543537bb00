package middleware_test

import (
	"bufio"
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
	return middleware.Exclusive(free{}, fixed("k"), middleware.ExclusiveConfig{})(h)
}

// What the wrapper can do is what the wrapped can do.
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
	for want, inner := range all {
		for _, inner := range []http.ResponseWriter{inner, shell{inner}, shell{shell{inner}}} {
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
				if err := http.NewResponseController(rw).Flush(); errors.Is(err, http.ErrNotSupported) == canFlush {
					t.Errorf("%s: Flush: %v", want, err)
				}
				if canFlush && n != before+2 {
					t.Errorf("%s: flushed %d times, want 2", want, n-before)
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
		inner := shell{struct {
			plain
			flushes
			hijacks
			pushes
		}{plain{rec}, flushes{&n}, hijacks{}, pushes{}}}
		h := middleware.Exclusive(losing{}, fixed("k"), middleware.ExclusiveConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
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
