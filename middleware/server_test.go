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
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// site is a process with an HTTP server, in real time.
type site struct {
	claims *etcdclaims.Client
	prefix string
	url    string
	client *http.Client
}

// onBoth runs the test over HTTP/1.1 and over HTTP/2, on a real etcd.
func onBoth(t *testing.T, f func(t *testing.T, start func(h func(s *site) http.Handler) *site)) {
	t.Helper()
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP %d", version), func(t *testing.T) {
			t.Parallel()
			prefix := testetcd.Prefix(t)
			f(t, func(h func(s *site) http.Handler) *site {
				s := &site{prefix: prefix, claims: realClient(t, prefix)}
				server := httptest.NewUnstartedServer(h(s))
				server.Config.ErrorLog = nil
				server.EnableHTTP2 = version == 2
				server.StartTLS()
				t.Cleanup(server.Close)
				s.url, s.client = server.URL, server.Client()
				s.client.Timeout = 20 * time.Second
				return s
			})
		})
	}
}

// realClient returns a client of the etcd that the tests of the package share.
func realClient(tb testing.TB, prefix string) *etcdclaims.Client {
	tb.Helper()
	c, err := etcdclaims.New(testetcd.Shared(tb).Client(tb), etcdclaims.Config{Prefix: prefix, Owner: "site"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			tb.Error(err)
		}
	})
	return c
}

func (s *site) exclusive(h http.HandlerFunc) http.Handler {
	return middleware.Exclusive(s.claims, fixed("k"), middleware.Config{Wait: 10 * sec})(h)
}

// lose takes the key away and waits until the process knows.
func (s *site) lose(t *testing.T, ctx context.Context) {
	t.Helper()
	if err := admin.ForceRelease(context.Background(), s.claims, "k", "test"); err != nil {
		t.Error(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * sec):
		t.Error("nobody was told")
	}
}

// post sends a request, which has no header by which net/http may repeat it.
func (s *site) post(t *testing.T) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(r)
	if err == nil {
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
	return resp, err
}

func (s *site) free(t *testing.T) {
	t.Helper()
	for range 500 {
		info, err := s.claims.Lookup(t.Context(), "k")
		if err == nil && !info.Held {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the key is not free")
}

func TestServerLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(rw http.ResponseWriter)
		cut    bool
	}{
		"nothing sent": {func(http.ResponseWriter) {}, false},
		"early hints":  {func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusEarlyHints) }, false},
		"header":       {func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusCreated) }, true},
		"a little":     {func(rw http.ResponseWriter) { _, _ = io.WriteString(rw, "a little") }, true},
		"flushed":      {func(rw http.ResponseWriter) { _, _ = io.WriteString(rw, "a little"); rw.(http.Flusher).Flush() }, true},
		"much":         {func(rw http.ResponseWriter) { _, _ = rw.Write(make([]byte, 1<<20)) }, true},
		"content length": {func(rw http.ResponseWriter) {
			rw.Header().Set("Content-Length", "2000000")
			_, _ = rw.Write(make([]byte, 1<<20))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, start func(func(*site) http.Handler) *site) {
				s := start(func(s *site) http.Handler {
					return s.exclusive(func(rw http.ResponseWriter, r *http.Request) {
						c.before(rw)
						s.lose(t, r.Context())
						rw.Header().Set("X-Own", "1")
						_, _ = io.WriteString(rw, "all is well")
					})
				})
				resp, err := s.post(t)
				if !c.cut {
					if err != nil {
						t.Fatal(err)
					}
					problem(t, resp, 409, "CLAIM_LOST")
					if resp.Header.Get("X-Own") != "" {
						t.Errorf("header %v", resp.Header)
					}
					return
				}
				if err == nil {
					var b []byte
					if b, err = io.ReadAll(resp.Body); err == nil {
						t.Errorf("a whole response: %d, %.100q", resp.StatusCode, b)
					}
				}
			})
		})
	}
}

// A handler sees a response writer that can do what the server's own can, and all
// of it works.
func TestServerWriter(t *testing.T) {
	t.Parallel()
	abilities := func(rw http.ResponseWriter) string {
		_, flusher := rw.(http.Flusher)
		_, hijacker := rw.(http.Hijacker)
		_, pusher := rw.(http.Pusher)
		_, text := rw.(io.StringWriter)
		c := http.NewResponseController(rw)
		return fmt.Sprint(flusher, hijacker, pusher, text, c.SetReadDeadline(time.Now().Add(time.Minute)), c.SetWriteDeadline(time.Now().Add(time.Minute)), c.EnableFullDuplex() == nil)
	}
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	onBoth(t, func(t *testing.T, start func(func(*site) http.Handler) *site) {
		bare, wrapped := "", ""
		s := start(func(s *site) http.Handler {
			mux := http.NewServeMux()
			mux.HandleFunc("/bare", func(rw http.ResponseWriter, _ *http.Request) { bare = abilities(rw) })
			mux.Handle("/wrapped", s.exclusive(func(rw http.ResponseWriter, _ *http.Request) { wrapped = abilities(rw) }))
			mux.Handle("/once", middleware.Once(testwork.Of(s.claims), fixed("s"), middleware.OnceConfig{Optional: true})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _ = abilities(rw) })))
			mux.Handle("/file", s.exclusive(func(rw http.ResponseWriter, r *http.Request) { http.ServeFile(rw, r, name) }))
			mux.Handle("/reader", s.exclusive(func(rw http.ResponseWriter, _ *http.Request) {
				if n, err := io.Copy(rw, strings.NewReader("read from")); n != 9 || err != nil {
					t.Errorf("copied %d, %v", n, err)
				}
			}))
			mux.Handle("/push", s.exclusive(func(rw http.ResponseWriter, r *http.Request) {
				if p, ok := rw.(http.Pusher); ok {
					if err := p.Push("/bare", nil); !errors.Is(err, http.ErrNotSupported) { // by this client
						t.Errorf("Push: %v", err)
					}
				} else if r.ProtoMajor == 2 {
					t.Error("no Pusher")
				}
			}))
			mux.Handle("/trailer", s.exclusive(func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Trailer", "X-Sum")
				_, _ = io.WriteString(rw, "body")
				rw.Header().Set("X-Sum", "7")
			}))
			mux.Handle("/hints", s.exclusive(func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Link", "</x>")
				rw.WriteHeader(http.StatusEarlyHints)
				rw.WriteHeader(http.StatusAccepted)
			}))
			mux.Handle("/stream", s.exclusive(func(rw http.ResponseWriter, r *http.Request) {
				// What comes is sent back at once, which takes full duplex.
				if err := http.NewResponseController(rw).EnableFullDuplex(); err != nil && r.ProtoMajor == 1 {
					t.Error(err)
				}
				in := bufio.NewReader(r.Body)
				for {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					_, _ = io.WriteString(rw, line)
					if err := http.NewResponseController(rw).Flush(); err != nil {
						t.Error(err)
					}
				}
			}))
			return mux
		})
		get := func(path string) (*http.Response, string) {
			t.Helper()
			resp, err := s.client.Get(s.url + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			return resp, read(t, resp)
		}
		get("/bare")
		get("/wrapped")
		if bare != wrapped || bare == "" {
			t.Errorf("bare %s, wrapped %s", bare, wrapped)
		}
		get("/push")
		if resp, body := get("/file"); resp.StatusCode != 200 || len(body) != 3<<20 {
			t.Errorf("file: %d, %d bytes", resp.StatusCode, len(body))
		}
		if _, body := get("/reader"); body != "read from" {
			t.Errorf("got %q", body)
		}
		if resp, body := get("/trailer"); body != "body" || resp.Trailer.Get("X-Sum") != "7" {
			t.Errorf("got %q, trailer %v", body, resp.Trailer)
		}
		if resp, _ := get("/hints"); resp.StatusCode != http.StatusAccepted {
			t.Errorf("after hints: %d", resp.StatusCode)
		}
		in, out := io.Pipe()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/stream", in)
		go func() { _, _ = io.WriteString(out, "one\n") }()
		resp, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewReader(resp.Body)
		for _, want := range []string{"one\n", "two\n", "three\n"} {
			if got, err := lines.ReadString('\n'); got != want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
			if want == "one\n" {
				go func() { _, _ = io.WriteString(out, "two\nthree\n"); _ = out.Close() }()
			}
		}
		if _, err := lines.ReadString('\n'); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	})
}

// A connection that the handler took is its own.
func TestServerHijack(t *testing.T) {
	t.Parallel()
	s := &site{claims: realClient(t, testetcd.Prefix(t))}
	done := make(chan error, 1)
	server := httptest.NewServer(s.exclusive(func(rw http.ResponseWriter, r *http.Request) {
		conn, buf, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		s.lose(t, r.Context())
		_, _ = buf.WriteString("mine\n")
		done <- buf.Flush()
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\n\r\n")
	if b, err := io.ReadAll(conn); string(b) != "mine\n" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// When the client leaves, the handler is told, and the key is free when it is done.
func TestServerClientLeaves(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, start func(func(*site) http.Handler) *site) {
		running, told := make(chan struct{}), make(chan struct{})
		s := start(func(s *site) http.Handler {
			return s.exclusive(func(_ http.ResponseWriter, r *http.Request) {
				close(running)
				<-r.Context().Done()
				close(told)
			})
		})
		ctx, leave := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
		go func() { <-running; leave() }()
		if _, err := s.client.Do(r); !errors.Is(err, context.Canceled) { //nolint:bodyclose // there is none
			t.Errorf("got %v", err)
		}
		<-told
		s.free(t)
	})
}

// Two servers, and clients that want one key: one at a time, each in its turn, and
// who has its answer is not in the way of its own next request.
func TestServerTakesTurns(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, start func(func(*site) http.Handler) *site) {
		var running, most, served atomic.Int64
		var last atomic.Int64
		handler := func(s *site) http.Handler {
			return s.exclusive(func(rw http.ResponseWriter, r *http.Request) {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				token, _ := fencing.FromContext(r.Context())
				if before := last.Swap(token.Fence); before >= token.Fence {
					t.Errorf("fence %d after %d", token.Fence, before)
				}
				served.Add(1)
				_, _ = io.Copy(rw, r.Body)
			})
		}
		sites := []*site{start(handler), start(handler)}
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				for range 5 {
					resp, err := sites[i%2].post(t)
					if err != nil {
						t.Error(err)
						return
					}
					if b, err := io.ReadAll(resp.Body); string(b) != "body" || err != nil {
						t.Errorf("got %d %q, %v", resp.StatusCode, b, err)
					}
				}
			})
		}
		wg.Wait()
		if most.Load() != 1 || served.Load() != 50 {
			t.Errorf("%d at a time, %d served", most.Load(), served.Load())
		}
	})
}

// Who repeats a request over the network gets what the first one got.
func TestServerOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, start func(func(*site) http.Handler) *site) {
		runs := 0
		s := start(func(s *site) http.Handler {
			return middleware.Once(testwork.Of(s.claims), fixed("orders"), middleware.OnceConfig{})(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				runs++
				rw.Header().Set("Location", fmt.Sprint("/", runs))
				rw.WriteHeader(http.StatusCreated)
				_, _ = io.Copy(rw, r.Body)
			}))
		})
		for i := range 3 {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader("tea"))
			r.Header.Set("Idempotency-Key", `"a"`)
			resp, err := s.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != 201 || string(b) != "tea" || err != nil || resp.Header.Get("Location") != "/1" || (resp.Header.Get("Idempotent-Replayed") != "") != (i > 0) || resp.ContentLength != 3 {
				t.Errorf("%d: %d %q %v, %v", i, resp.StatusCode, b, resp.Header, err)
			}
		}
		stored, err := testetcd.Shared(t).Client(t).Get(t.Context(), s.prefix+"work/orders/", clientv3.WithPrefix())
		if err != nil || stored.Count != 1 || stored.Kvs[0].Lease == 0 {
			t.Errorf("stored: %v, %v", stored, err)
		}
	})
}
