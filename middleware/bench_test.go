package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/middleware"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Each benchmark measures a wrapped handler beside the bare one, or beside one that
// etcd's own Mutex wraps, in rounds that alternate; "ratio" is of medians.

// nowhere is a response writer that costs nothing.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}

var ok = []byte("ok")

func bare(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(ok) }

// request returns one for the key, with a token.
func request(key string) *http.Request {
	r := httptest.NewRequest(http.MethodPut, "/", nil)
	r.Header.Set(fencing.Header, fmt.Sprintf("7;key=%q", key))
	r.SetPathValue("id", key)
	return r
}

// compare lets n goroutines serve b.N requests in each way, a key for each, and
// reports time per request, or rates where those make more sense.
func compare(b *testing.B, n int, ours, peer http.Handler) {
	b.Helper()
	const rounds = 5
	per := max(b.N/rounds, n)
	measure := func(h http.Handler) float64 {
		var wg sync.WaitGroup
		var next atomic.Int64
		began := time.Now()
		for who := range n {
			wg.Go(func() {
				r, w := request(fmt.Sprint("key", who)), &nowhere{header: make(http.Header)}
				for next.Add(1) <= int64(per) {
					clear(w.header)
					h.ServeHTTP(w, r)
					if len(w.header) > 0 {
						b.Error("refused")
						return
					}
				}
			})
		}
		wg.Wait()
		return float64(time.Since(began).Nanoseconds()) / float64(per)
	}
	var us, them []float64
	for range rounds {
		us, them = append(us, measure(ours)), append(them, measure(peer))
	}
	slices.Sort(us)
	slices.Sort(them)
	b.ReportMetric(0, "ns/op") // of both together: it says nothing
	b.ReportMetric(us[rounds/2], "ours-ns/req")
	b.ReportMetric(them[rounds/2], "peer-ns/req")
	b.ReportMetric(us[rounds/2]/them[rounds/2], "ratio")
}

// BenchmarkGate is of a gate in memory, beside the bare handler.
func BenchmarkGate(b *testing.B) {
	b.Run("memory", func(b *testing.B) {
		compare(b, 1, middleware.Gate(new(fencing.Memory), middleware.PathKey("{id}"), middleware.Config{})(http.HandlerFunc(bare)), http.HandlerFunc(bare))
	})
}

// BenchmarkExclusive is beside the bare handler without etcd, and with etcd beside
// a handler that locks a Mutex of a shared session.
func BenchmarkExclusive(b *testing.B) {
	b.Run("nil", func(b *testing.B) {
		compare(b, 1, middleware.Exclusive(without, middleware.PathKey("{id}"), middleware.Config{})(http.HandlerFunc(bare)), http.HandlerFunc(bare))
	})
	etcd := testetcd.StartProcess(b).Client(b)
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/bench/"})
	if err != nil {
		b.Fatal(err)
	}
	defer claims.Close(b.Context())
	session, err := concurrency.NewSession(etcd)
	if err != nil {
		b.Fatal(err)
	}
	defer session.Close()
	ours := middleware.Exclusive(claims, middleware.PathKey("{id}"), middleware.Config{})(http.HandlerFunc(bare))
	mutex := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		m := concurrency.NewMutex(session, "/mutex/"+r.PathValue("id"))
		if err := m.Lock(r.Context()); err != nil {
			http.Error(rw, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer func() { _ = m.Unlock(r.Context()) }()
		bare(rw, r)
	})
	for _, n := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("goroutines=%d", n), func(b *testing.B) { compare(b, n, ours, mutex) })
	}
	b.Run("beside TryRun", func(b *testing.B) {
		// What the wrapper itself costs, on top of its claim.
		compare(b, 1, ours, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if err := tryRun(claims, r, rw); err != nil {
				http.Error(rw, err.Error(), http.StatusServiceUnavailable)
			}
		}))
	})
}

// BenchmarkExclusiveAlone is the wrapper without etcd: with claims that cost nothing.
func BenchmarkExclusiveAlone(b *testing.B) {
	b.ReportAllocs()
	compare(b, 1, middleware.Exclusive(free{}, middleware.PathKey("{id}"), middleware.Config{})(http.HandlerFunc(bare)), http.HandlerFunc(bare))
}

// BenchmarkTransport is of a stamped request, beside one that is not.
func BenchmarkTransport(b *testing.B) {
	base := &counting{}
	stamped := &middleware.Transport{Base: base}
	by := func(rt http.RoundTripper) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = rt.RoundTrip(r) })
	}
	ctx := fencing.NewContext(b.Context(), fencing.Token{Key: "key0", Fence: 7})
	compare(b, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(ctx)
		delete(r.Header, fencing.Header)
		by(stamped).ServeHTTP(w, r)
	}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { by(base).ServeHTTP(w, r.WithContext(ctx)) }))
}

func tryRun(claims *etcdclaims.Client, r *http.Request, rw http.ResponseWriter) error {
	return claims.TryRun(r.Context(), r.PathValue("id"), func(ctx context.Context) error {
		bare(rw, r.WithContext(ctx))
		return nil
	})
}

// counting sends nothing.
type counting struct{ n int }

func (c *counting) RoundTrip(*http.Request) (*http.Response, error) { c.n++; return nil, nil }
