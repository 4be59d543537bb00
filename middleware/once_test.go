package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// post sends a request that names itself, if key is not empty.
func post(h http.Handler, key, target, body string) *http.Response {
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	rec := httptest.NewRecorder()
	rec.Header().Set("X-Request-Id", fmt.Sprint(time.Now().UnixNano()))
	h.ServeHTTP(rec, r)
	return rec.Result()
}

func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// orders counts what it is asked for.
type orders struct{ made int }

func (o *orders) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	o.made++
	body, _ := io.ReadAll(r.Body)
	rw.Header().Set("Location", fmt.Sprintf("/orders/%d", o.made))
	rw.Header().Add("Set-Cookie", "a=1")
	rw.Header().Add("Set-Cookie", "b=2")
	if r.URL.Query().Has("status") {
		var status int
		_, _ = fmt.Sscan(r.URL.Query().Get("status"), &status)
		rw.WriteHeader(status)
	} else {
		rw.WriteHeader(http.StatusCreated)
	}
	rw.Header().Set("X-Late", "1") // which net/http does not send
	_, _ = fmt.Fprintf(rw, "order %d of %s", o.made, body)
}

func TestOnceReplays(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		o := &orders{}
		here := middleware.Once(testwork.Of(w.Claims), fixed("orders/ann"), middleware.OnceConfig{})(o)
		there := middleware.Once(testwork.Of(w.Other), fixed("orders/ann"), middleware.OnceConfig{})(o)
		first := post(here, `"a"`, "/orders", "tea")
		for _, h := range []http.Handler{here, there} {
			time.Sleep(sec)
			again := post(h, ` "a" `, "/orders", "tea")
			if again.StatusCode != http.StatusCreated || read(t, again) != "order 1 of tea" || again.Header.Get("Location") != "/orders/1" ||
				len(again.Header["Set-Cookie"]) != 2 || again.Header.Get("X-Late") != "" || again.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("again: %d %v", again.StatusCode, again.Header)
			}
			if again.Header.Get("X-Request-Id") == first.Header.Get("X-Request-Id") {
				t.Error("what was set outside of the handler is replayed")
			}
		}
		if first.StatusCode != http.StatusCreated || read(t, first) != "order 1 of tea" || first.Header.Get("Location") != "/orders/1" ||
			first.Header.Get("Idempotent-Replayed") != "" || first.Header.Get("X-Late") != "" {
			t.Errorf("first: %d %v", first.StatusCode, first.Header)
		}
		// Another's request of the same name is another.
		bob := middleware.Once(testwork.Of(w.Claims), fixed("orders/bob"), middleware.OnceConfig{})(o)
		if resp := post(bob, `"a"`, "/orders", "tea"); read(t, resp) != "order 2 of tea" {
			t.Errorf("bob's: %v", resp.Header)
		}
		for target, body := range map[string]string{"/orders": "coffee", "/orders?x=1": "tea", "/others": "tea"} {
			problem(t, post(here, `"a"`, target, body), 422, "IDEMPOTENCY_KEY_REUSED")
		}
		if o.made != 2 {
			t.Errorf("%d orders", o.made)
		}
	})
}

func TestOnceRefuses(t *testing.T) {
	t.Parallel()
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("the handler runs") })
	inWorld(t, "header", func(t *testing.T, w *world) {
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{MaxBody: 10})(never)
		problem(t, post(h, "", "/", ""), 400, "IDEMPOTENCY_KEY_MISSING")
		for _, bad := range []string{`a`, `"`, `""`, `"a`, `"a"b"`, `"a\b"`, `"a\"`, `"ä"`, `"a";B`, `"a", "b"`, `'a'`, `%"a"`, `"` + strings.Repeat("x", 256) + `"`} {
			problem(t, post(h, bad, "/", ""), 400, "IDEMPOTENCY_KEY_MALFORMED")
		}
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header["Idempotency-Key"] = []string{`"a"`, `"a"`}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		problem(t, rec.Result(), 400, "IDEMPOTENCY_KEY_MALFORMED")
		problem(t, post(h, `"a"`, "/", "more than ten"), 413, "BODY_TOO_LARGE")
		for _, scope := range []string{"", "a\n", strings.Repeat("x", 1000)} {
			problem(t, post(middleware.Once(testwork.Of(w.Claims), fixed(scope), middleware.OnceConfig{})(never), `"a"`, "/", ""), 400, "INVALID_KEY")
		}
		w.Host.Cut()
		problem(t, post(h, `"a"`, "/", ""), 503, "UNAVAILABLE")
	})
	inWorld(t, "optional", func(t *testing.T, w *world) {
		o := &orders{}
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{Optional: true})(o)
		for i := range 2 {
			if resp := post(h, "", "/", "x"); read(t, resp) != fmt.Sprintf("order %d of x", i+1) {
				t.Errorf("got %d", resp.StatusCode)
			}
		}
	})
	inWorld(t, "at once", func(t *testing.T, w *world) {
		slow := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			time.Sleep(5 * sec)
			_, _ = io.WriteString(rw, "done")
		})
		done := make(chan *http.Response)
		go func() {
			done <- post(middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(slow), `"a"`, "/", "")
		}()
		time.Sleep(sec)
		p := problem(t, post(middleware.Once(testwork.Of(w.Other), fixed("s"), middleware.OnceConfig{})(slow), `"a"`, "/", ""), 409, "HELD")
		if p.IdempotencyKey != "a" || !strings.HasPrefix(p.Key, "s/") || p.Owner != "here" || p.RetryAfter != sec {
			t.Errorf("got %+v", p)
		}
		began := time.Now()
		resp := post(middleware.Once(testwork.Of(w.Other), fixed("s"), middleware.OnceConfig{Wait: 10 * sec})(slow), `"a"`, "/", "")
		if read(t, resp) != "done" || resp.Header.Get("Idempotent-Replayed") == "" || time.Since(began) > 5*sec {
			t.Errorf("waited for %v: %v", time.Since(began), resp.Header)
		}
		if resp := <-done; resp.StatusCode != 200 || resp.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("the first: %d", resp.StatusCode)
		}
	})
}

// What failed may be repeated at once, and leaves nothing behind in etcd.
func TestOnceFails(t *testing.T) {
	t.Parallel()
	for _, status := range []int{500, 503, 408, 425, 429} {
		inWorld(t, fmt.Sprint(status), func(t *testing.T, w *world) {
			o := &orders{}
			h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(o)
			for i := range 12 { // more often than work is tried by itself
				resp := post(h, `"a"`, fmt.Sprint("/?status=", status), "x")
				if resp.StatusCode != status || read(t, resp) != fmt.Sprintf("order %d of x", i+1) || resp.Header.Get("Idempotent-Replayed") != "" {
					t.Errorf("try %d: %d", i, resp.StatusCode)
				}
			}
			kvs, err := w.Server.Admin().Get(t.Context(), etcdclaims.DefaultPrefix+"work/", clientv3.WithPrefix())
			if err != nil || kvs.Count != 0 {
				t.Errorf("left over: %v, %v", kvs, err)
			}
		})
	}
	for _, status := range []int{200, 302, 400, 404, 422} {
		inWorld(t, fmt.Sprint(status), func(t *testing.T, w *world) {
			o := &orders{}
			h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(o)
			for range 2 {
				if resp := post(h, `"a"`, fmt.Sprint("/?status=", status), "x"); resp.StatusCode != status || read(t, resp) != "order 1 of x" {
					t.Errorf("%d", resp.StatusCode)
				}
			}
		})
	}
	inWorld(t, "204", func(t *testing.T, w *world) {
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(http.StatusNoContent)
			if _, err := rw.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("writing: %v", err)
			}
		}))
		for range 2 {
			if resp := post(h, `"a"`, "/", ""); resp.StatusCode != 204 || resp.Header.Get("Content-Length") != "" {
				t.Errorf("%d %v", resp.StatusCode, resp.Header)
			}
		}
	})
	inWorld(t, "panic", func(t *testing.T, w *world) {
		runs := 0
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if runs++; runs == 1 {
				panic("own")
			}
		}))
		if !panics(func() { post(h, `"a"`, "/", "") }) {
			t.Error("no panic")
		}
		p := problem(t, post(h, `"a"`, "/", ""), 503, "UNAVAILABLE")
		if p.RetryAfter < sec {
			t.Errorf("Retry-After %v", p.RetryAfter)
		}
		if !strings.Contains(p.Detail, "An earlier attempt failed") || strings.Contains(p.Detail, "Nothing was done") {
			t.Errorf("the panicked attempt may have had effects: %q", p.Detail)
		}
		time.Sleep(2 * sec)
		if resp := post(h, `"a"`, "/", ""); resp.StatusCode != 200 || runs != 2 {
			t.Errorf("%d after %d runs", resp.StatusCode, runs)
		}
	})
}

// What is too long to keep, or sent as it comes, is carried out once.
func TestOnceLong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write func(rw http.ResponseWriter)
		size  int
		kept  bool
	}{
		"limit": {func(rw http.ResponseWriter) { _, _ = rw.Write(make([]byte, 60<<10)) }, 60 << 10, true},
		"over":  {func(rw http.ResponseWriter) { _, _ = rw.Write(make([]byte, 60<<10+1)) }, 60<<10 + 1, false},
		"pieces": {func(rw http.ResponseWriter) {
			for range 100 {
				_, _ = rw.Write(make([]byte, 1000))
			}
		}, 100_000, false},
		"header": {func(rw http.ResponseWriter) {
			rw.Header().Set("X", strings.Repeat("x", 5<<10))
			_, _ = rw.Write(make([]byte, 60<<10))
		}, 60 << 10, false},
		"flush": {func(rw http.ResponseWriter) {
			_, _ = rw.Write([]byte("a"))
			rw.(http.Flusher).Flush()
			_, _ = rw.Write([]byte("b"))
		}, 2, true},
	} {
		inWorld(t, name, func(t *testing.T, w *world) {
			runs := 0
			h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				runs++
				c.write(rw)
			}))
			if resp := post(h, `"a"`, "/", ""); resp.StatusCode != 200 || len(read(t, resp)) != c.size {
				t.Errorf("first: %d", resp.StatusCode)
			}
			resp := post(h, `"a"`, "/", "")
			if c.kept {
				if n := len(read(t, resp)); resp.StatusCode != 200 || n != c.size {
					t.Errorf("again: %d, %d bytes", resp.StatusCode, n)
				}
			} else {
				problem(t, resp, 409, "RESPONSE_NOT_KEPT")
				problem(t, post(h, `"a"`, "/", "another"), 422, "IDEMPOTENCY_KEY_REUSED")
			}
			if runs != 1 {
				t.Errorf("%d runs", runs)
			}
		})
	}
}

// Without a record there is no success, and the repeat is carried out anew.
func TestOnceLost(t *testing.T) {
	t.Parallel()
	inWorld(t, "revoked", func(t *testing.T, w *world) {
		runs, key := 0, ""
		handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			token, _ := fencing.FromContext(r.Context())
			if runs++; runs == 1 {
				key = token.Key
				w.Revoke(t, token.Key)
			}
			_, _ = io.WriteString(rw, "done")
		})
		p := problem(t, post(middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(handler), `"a"`, "/", ""), 409, "CLAIM_LOST")
		if p.Fence == 0 || p.IdempotencyKey != "a" || p.Key != key || !errors.Is(p, fencing.ErrLost) {
			t.Errorf("got %+v", p)
		}
		resp := post(middleware.Once(testwork.Of(w.Other), fixed("s"), middleware.OnceConfig{})(handler), `"a"`, "/", "")
		if read(t, resp) != "done" || runs != 2 {
			t.Errorf("again: %d, %d runs", resp.StatusCode, runs)
		}
	})
	inWorld(t, "streamed", func(t *testing.T, w *world) {
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.(http.Flusher).Flush()
			token, _ := fencing.FromContext(r.Context())
			w.Revoke(t, token.Key)
		}))
		defer func() {
			if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
				t.Errorf("panic %v", p)
			}
		}()
		post(h, `"a"`, "/", "")
		t.Error("no panic")
	})
	inWorld(t, "unknown", func(t *testing.T, w *world) {
		runs := 0
		handler := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			if runs++; runs == 2 {
				w.Host.CutReplies()
			}
			_, _ = io.WriteString(rw, "done")
		})
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(handler)
		post(h, `"before"`, "/", "") // from here on there is a lease for what is done
		if p := problem(t, post(h, `"a"`, "/", ""), 504, "OUTCOME_UNKNOWN"); !errors.Is(p, fencing.ErrUnknown) {
			t.Errorf("got %+v", p)
		}
		w.Host.Heal()
		resp := post(middleware.Once(testwork.Of(w.Other), fixed("s"), middleware.OnceConfig{})(handler), `"a"`, "/", "")
		if read(t, resp) != "done" || resp.Header.Get("Idempotent-Replayed") == "" || runs != 2 {
			t.Errorf("again: %d, %d runs", resp.StatusCode, runs)
		}
	})
}

// A process that dies after the effect and before the record: whoever repeats the
// request carries it out again, once the lease has lapsed, or never.
func TestOnceDies(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]work.Option{"again": nil, "at most once": {work.AtMostOnce()}} {
		inWorld(t, name, func(t *testing.T, w *world) {
			runs := 0
			dead := make(chan struct{})
			handler := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				if runs++; runs == 1 {
					w.Host.Kill()
					close(dead)
					time.Sleep(2 * time.Minute)
				}
				_, _ = io.WriteString(rw, "done")
			})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				problem(t, post(middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{}, opts...)(handler), `"a"`, "/", ""), 409, "CLAIM_LOST")
			}()
			<-dead
			began := time.Now()
			there := middleware.Once(testwork.Of(w.Other), fixed("s"), middleware.OnceConfig{Wait: -1}, opts...)(handler)
			resp := post(there, `"a"`, "/", "")
			if took := time.Since(began); took > 17*sec {
				t.Errorf("answered after %v", took)
			}
			if opts != nil {
				problem(t, resp, 409, "DEAD")
			} else if read(t, resp) != "done" || runs != 2 {
				t.Errorf("again: %d, %d runs", resp.StatusCode, runs)
			}
			<-ended
			synctest.Wait()
		})
	}
}

func TestOnceHijack(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			if _, _, err := http.NewResponseController(rw).Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("Hijack: %v", err)
			}
		}))
		post(h, `"a"`, "/", "")
	})
}
