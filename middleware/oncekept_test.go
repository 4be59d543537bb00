package middleware_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
)

// A Retry-After says of a failure when to ask again, and with any other status when to
// look for what was begun.
func TestOnceRetryAfter(t *testing.T) {
	t.Parallel()
	for status, runs := range map[int]int{200: 1, 202: 1, 301: 1, 303: 1, 400: 2, 403: 2, 409: 2, 423: 2} {
		inWorld(t, fmt.Sprint(status), func(t *testing.T, w *world) {
			o := &orders{}
			h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Retry-After", "5")
				o.ServeHTTP(rw, r)
			}))
			for i := range 2 {
				resp := post(h, `"a"`, fmt.Sprint("/?status=", status), "x")
				if resp.StatusCode != status || resp.Header.Get("Retry-After") != "5" || read(t, resp) != fmt.Sprintf("order %d of x", min(i+1, runs)) {
					t.Errorf("%d: %d %v", i, resp.StatusCode, resp.Header)
				}
			}
			if o.made != runs {
				t.Errorf("carried out %d times, want %d", o.made, runs)
			}
		})
	}
}

// A request that a program makes for a handler may have no body at all.
func TestOnceWithoutABody(t *testing.T) {
	inWorld(t, "nil", func(t *testing.T, w *world) {
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(&orders{})
		for range 2 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", `"a"`)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			if rec.Code != http.StatusCreated || rec.Body.String() != "order 1 of " {
				t.Errorf("%d %q", rec.Code, rec.Body)
			}
		}
	})
}

func TestOnceKeys(t *testing.T) {
	t.Parallel()
	const uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	inWorld(t, "same key", func(t *testing.T, w *world) {
		o := &orders{}
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{Unquoted: true})(o)
		for _, key := range []string{`"` + uuid + `"`, uuid, " " + uuid + "\t", uuid + ";p", `"` + uuid + `";p=1; q="x"`} {
			if resp := post(h, key, "/", "x"); read(t, resp) != "order 1 of x" {
				t.Errorf("%q: %d", key, resp.StatusCode)
			}
		}
		for _, key := range []string{`a\b`, `"a\\b"`} {
			if resp := post(h, key, "/", "x"); read(t, resp) != "order 2 of x" {
				t.Errorf("%q: %d", key, resp.StatusCode)
			}
		}
		for _, bad := range []string{"a, b", "a b", `a"b"`, "ä", ";p", "a;P", "a;p=", `"a`, strings.Repeat("x", 256)} {
			problem(t, post(h, bad, "/", "x"), 400, "IDEMPOTENCY_KEY_MALFORMED")
		}
	})
	inWorld(t, "in quotes only", func(t *testing.T, w *world) {
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(&orders{})
		problem(t, post(h, uuid, "/", "x"), 400, "IDEMPOTENCY_KEY_MALFORMED")
		for range 2 {
			if resp := post(h, `"a";p=?1;q=:YQ==:`, "/", "x"); read(t, resp) != "order 1 of x" {
				t.Errorf("%d", resp.StatusCode)
			}
		}
	})
}

// A replay has what the handler did to the header, on top of what those around it do
// for the repeated request.
func TestOnceKeepsTheHandlersOwnHeaders(t *testing.T) {
	inWorld(t, "headers", func(t *testing.T, w *world) {
		inner := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			h := rw.Header()
			http.SetCookie(rw, &http.Cookie{Name: "order", Value: "1"})
			h.Del("Cache-Control")
			h.Add("Vary", "Accept")
			h.Set("X-Replaced", "by the handler")
			h.Set("X-New", "1")
			h["Date"] = nil
		}))
		n := 0
		h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			n++
			h := rw.Header()
			http.SetCookie(rw, &http.Cookie{Name: "session", Value: fmt.Sprint(n)})
			h.Set("Cache-Control", "no-store")
			h.Set("Vary", fmt.Sprint("Origin", n))
			h.Set("X-Replaced", "by nobody")
			h.Set("X-Outer", fmt.Sprint(n))
			inner.ServeHTTP(rw, r)
		})
		for i := 1; i <= 3; i++ {
			got := post(h, `"a"`, "/", "x").Header
			want := map[string]string{
				"Set-Cookie": fmt.Sprintf("session=%d|order=1", i), "Cache-Control": "", "Vary": fmt.Sprintf("Origin%d|Accept", i),
				"X-Replaced": "by the handler", "X-New": "1", "X-Outer": fmt.Sprint(i),
			}
			for name, values := range want {
				if strings.Join(got[name], "|") != values {
					t.Errorf("%d: %s is %q, want %q", i, name, got[name], values)
				}
			}
			if (got.Get("Idempotent-Replayed") != "") != (i > 1) {
				t.Errorf("%d: %v", i, got)
			}
		}
	})
}

// zipped compresses as many wrappers do.
type zipped struct {
	http.ResponseWriter
	to *gzip.Writer
}

func (z zipped) Write(b []byte) (int, error) { return z.to.Write(b) }

// What is around Once may change the length of what is sent.
func TestOnceWithinGzip(t *testing.T) {
	inWorld(t, "gzip", func(t *testing.T, w *world) {
		text := strings.Repeat("text ", 1000)
		once := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, text)
		}))
		h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			z := gzip.NewWriter(rw)
			defer z.Close()
			once.ServeHTTP(zipped{rw, z}, r)
		})
		for range 2 {
			resp := post(h, `"a"`, "/", "x")
			if length := resp.Header.Get("Content-Length"); length != "" {
				t.Errorf("Content-Length %s", length)
			}
			z, err := gzip.NewReader(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(z); err != nil || string(got) != text {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
	})
}

// net/http removes the temporary files of the request that it knows. It is not the one
// that a wrapped handler has.
func TestTemporaryFilesAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // so there is no other test beside
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	f, err := m.CreateFormFile("f", "f")
	if err == nil {
		_, err = f.Write(make([]byte, 64<<10))
	}
	if err != nil || m.Close() != nil {
		t.Fatal(err)
	}
	parse := func(r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
	}
	stored := func() int {
		files, err := os.ReadDir(os.Getenv("TMPDIR"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	end := func() {}
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		parse(r)
		if stored() == 0 {
			t.Error("nothing is stored: this shows nothing")
		}
		end()
	})
	admit := fencing.GateFunc(func(context.Context, fencing.Token) error { return nil })
	scope := func(r *http.Request) string { parse(r); return "s" }
	wrapped := map[string]http.Handler{
		"Exclusive":   middleware.Exclusive(free{}, fixed("k"), middleware.Config{})(handler),
		"Once":        middleware.Once(amnesiac{}, fixed("s"), middleware.OnceConfig{})(handler),
		"Once, scope": middleware.Once(amnesiac{}, scope, middleware.OnceConfig{})(handler),
		"Gate":        middleware.Gate(admit, fixed("k"), middleware.Config{})(handler),
	}
	for name, h := range wrapped {
		for how, leave := range map[string]func(){"returns": func() {}, "panics": func() { panic("own") }} {
			end = leave
			r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(form.Bytes()))
			r.Header.Set("Content-Type", m.FormDataContentType())
			r.Header.Set("Idempotency-Key", `"a"`)
			r.Header.Set(fencing.Header, `7;key="k"`)
			func() {
				defer func() { _ = recover() }()
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			if r.MultipartForm == nil && stored() > 0 {
				t.Errorf("%s, the handler %s: %d files are left", name, how, stored())
			}
		}
	}
	// A form that was there before is not the wrapper's.
	end = func() {}
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(form.Bytes()))
	r.Header.Set("Content-Type", m.FormDataContentType())
	parse(r)
	wrapped["Exclusive"].ServeHTTP(httptest.NewRecorder(), r)
	if stored() == 0 {
		t.Error("the files of the outer request were removed")
	}
	_ = r.MultipartForm.RemoveAll()
}
