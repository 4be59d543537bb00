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
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
)

// losable are claims that are lost once the flag says so.
type losable struct {
	free
	lost *atomic.Bool
}

func (l losable) TryRun(ctx context.Context, _ string, fn func(context.Context) error, _ ...middleware.AcquireOption) error {
	check := func() error {
		if l.lost.Load() {
			return fencing.ErrLost
		}
		return nil
	}
	err := fn(fencing.WithCheck(ctx, check))
	return errors.Join(err, check())
}

// exclusively serves a handler under a claim that can be lost.
func exclusively(t *testing.T, handler func(lost *atomic.Bool) http.HandlerFunc) (*httptest.Server, *atomic.Bool) {
	t.Helper()
	lost := new(atomic.Bool)
	s := httptest.NewServer(middleware.Exclusive(losable{lost: lost}, fixed("k"), middleware.Config{})(handler(lost)))
	t.Cleanup(s.Close)
	return s, lost
}

// A file that the system copies is looked at between its parts, too.
func TestFileAfterLoss(t *testing.T) {
	const size = 64 << 20
	name := t.TempDir() + "/file"
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	s, lost := exclusively(t, func(*atomic.Bool) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) { http.ServeFile(rw, r, name) }
	})
	for _, lose := range []bool{false, true} {
		resp, err := http.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.CopyN(io.Discard, resp.Body, 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		lost.Store(lose) // what is on its way already is less than the file
		more, err := io.Copy(io.Discard, resp.Body)
		if whole := n+more == size && err == nil; whole == lose {
			t.Errorf("lost %v: %d of %d bytes, %v", lose, n+more, size, err)
		}
		_ = resp.Body.Close()
	}
}

// HTTP/1.0 has no other end of a response than that of its connection.
func TestCutOffHTTP10(t *testing.T) {
	s, _ := exclusively(t, func(lost *atomic.Bool) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, "first half\n")
			_ = http.NewResponseController(rw).Flush()
			lost.Store(true)
			_, _ = io.WriteString(rw, "second half\n")
		}
	})
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return // not even that came
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("it looks whole: %d %q", resp.StatusCode, b)
	}
}

// unflushable is a response writer that cannot be flushed.
type unflushable struct{ http.ResponseWriter }

func TestFlushThatIsNotSupportedSendsNothing(t *testing.T) {
	lost := new(atomic.Bool)
	h := middleware.Exclusive(losable{lost: lost}, fixed("k"), middleware.Config{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(rw).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Error(err)
		}
		lost.Store(true)
	}))
	rec := httptest.NewRecorder()
	h.ServeHTTP(unflushable{rec}, httptest.NewRequest(http.MethodGet, "/", nil))
	if rec.Code != http.StatusConflict {
		t.Errorf("answered %d, want the problem", rec.Code)
	}
}

// taken are claims that another holds.
type taken struct{ free }

func (taken) TryRun(context.Context, string, func(context.Context) error, ...middleware.AcquireOption) error {
	return fencing.ErrHeld
}

// What a function says of another claim is its own error.
func TestErrorsOfOtherClaims(t *testing.T) {
	id := func(s string) string { return s }
	inner := middleware.Func(taken{}, id, func(context.Context, string) (int, error) { return 1, nil }, middleware.FuncConfig{})
	outer := middleware.Func(free{}, id, inner, middleware.FuncConfig{Skip: true})
	if _, err := outer(t.Context(), "x"); !errors.Is(err, fencing.ErrHeld) {
		t.Errorf("a run that failed is said to be skipped: %v", err)
	}

	own, runs := errors.New("own"), 0
	err := middleware.Singleton(t.Context(), free{}, "k", func(context.Context) error {
		runs++
		return fmt.Errorf("%w: %w", own, fencing.ErrLost)
	}, middleware.SingletonConfig{Backoff: func(int) time.Duration { return time.Millisecond }})
	if runs != 1 || !errors.Is(err, own) {
		t.Errorf("%v after %d runs", err, runs)
	}
}

// An attempt counts that failed since it waited in vain for another key.
func TestAttemptThatWaitedWithin(t *testing.T) {
	inWorld(t, "held within", func(t *testing.T, w *world) {
		if _, err := w.Other.TryAcquire(t.Context(), "inner"); err != nil {
			t.Fatal(err)
		}
		id := func(s string) string { return s }
		inner := middleware.Func(w.Claims, id, func(context.Context, string) (int, error) { return 1, nil }, middleware.FuncConfig{Wait: time.Millisecond})
		runs := 0
		outer := middleware.FuncOnce(testwork.Of(w.Claims), id, func(ctx context.Context, _ string) (int, error) {
			runs++
			return inner(ctx, "inner")
		}, middleware.FuncConfig{})
		for range 30 {
			_, _ = outer(t.Context(), "outer")
		}
		if runs != 1 {
			t.Errorf("%d attempts without backing off", runs)
		}
	})
}

// forgetful is a transport that does not say which request a response is to.
type forgetful struct{ seen []string }

func (f *forgetful) RoundTrip(r *http.Request) (*http.Response, error) {
	f.seen = append(f.seen, r.URL.Host+" "+r.Header.Get(fencing.Header))
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
	if r.URL.Host == "a.example" {
		resp.StatusCode, resp.Header = http.StatusFound, http.Header{"Location": {"http://b.example/"}}
	}
	return resp, nil
}

func TestRedirectFromNobodyKnowsWhere(t *testing.T) {
	base := &forgetful{}
	client := &http.Client{Transport: &middleware.Transport{Base: base}}
	r, err := http.NewRequestWithContext(fencing.NewContext(t.Context(), fencing.Token{Key: "k", Fence: 7}), http.MethodGet, "http://a.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got, want := strings.Join(base.seen, ", "), `a.example 7;key="k", b.example `; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCloseIdleConnectionsOfTheDefaultClient(t *testing.T) {
	was := http.DefaultClient.Transport
	defer func() { http.DefaultClient.Transport = was }()
	http.DefaultClient.Transport = &middleware.Transport{}
	http.DefaultClient.CloseIdleConnections()
}

// A response that was not flushed is still held back until it is recorded.
func TestOnceFlushThatIsNotSupportedSendsNothing(t *testing.T) {
	inWorld(t, "once", func(t *testing.T, w *world) {
		rec := httptest.NewRecorder()
		h := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, "paid")
			if err := http.NewResponseController(rw).Flush(); !errors.Is(err, http.ErrNotSupported) {
				t.Error(err)
			}
			if rec.Body.Len() > 0 {
				t.Errorf("%q was sent before the request is recorded", rec.Body)
			}
		}))
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", `"a"`)
		h.ServeHTTP(unflushable{rec}, r)
		if rec.Body.String() != "paid" {
			t.Errorf("the response is %q", rec.Body)
		}
	})
}

// copying is a response writer that copies files itself, as that of net/http does.
type copying struct{ *httptest.ResponseRecorder }

func (c copying) ReadFrom(src io.Reader) (int64, error) { return io.Copy(c.ResponseRecorder, src) }

// A pipe is a file for package os, but what comes out of it can take any time.
func TestPipeAfterLoss(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	lost := new(atomic.Bool)
	h := middleware.Exclusive(losable{lost: lost}, fixed("k"), middleware.Config{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		go func() {
			_, _ = io.WriteString(to, strings.Repeat("a", 512<<10)) // more than the pipe holds
			lost.Store(true)
			_, _ = io.WriteString(to, strings.Repeat("b", 512<<10))
			_ = to.Close()
		}()
		_, _ = io.CopyN(rw, from, 1<<20)
		_, _ = io.Copy(io.Discard, from)
	}))
	rec := httptest.NewRecorder()
	func() {
		defer func() { _ = recover() }() // the response is cut off
		h.ServeHTTP(copying{rec}, httptest.NewRequest(http.MethodGet, "/", nil))
	}()
	if n := strings.Count(rec.Body.String(), "b"); n > 128<<10 { // a buffer or two
		t.Errorf("%d bytes were sent after the claim was lost", n)
	}
}
