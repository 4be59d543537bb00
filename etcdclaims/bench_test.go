//go:build unix

package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
)

// The peer of every benchmark is go.etcd.io/etcd/client/v3/concurrency, in the
// same run, in rounds that alternate; "ratio" is ours over the peer's, medians
// over the rounds. The server is a process of its own, with fsync.

const rounds = 5

// BenchmarkCycle measures uncontended acquire and release, each goroutine on a
// key of its own, against a Mutex of one shared session.
func BenchmarkCycle(b *testing.B) {
	cycles(b, testetcd.StartProcess(b).Client(b), oneKey, []int{1, 16, 64, 256})
}

// BenchmarkCycleLazy is BenchmarkCycle with LazyRelease, of one key and of keys in turn.
func BenchmarkCycleLazy(b *testing.B) {
	etcd := testetcd.StartProcess(b).Client(b)
	b.Run("same", func(b *testing.B) { cycles(b, etcd, oneKey, []int{1, 16, 256}, etcdclaims.LazyRelease()) })
	b.Run("next", func(b *testing.B) { cycles(b, etcd, nextKey, []int{1, 16, 256}, etcdclaims.LazyRelease()) })
}

func oneKey(who, _ int) string { return fmt.Sprintf("key/%d", who) }

func nextKey(who, i int) string { return fmt.Sprintf("key/%d/%d", who, i%16) }

// BenchmarkCycleFar is BenchmarkCycle with an etcd that is 10 ms away.
func BenchmarkCycleFar(b *testing.B) {
	const rtt = 10 * time.Millisecond
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: testetcd.StartProcess(b).Endpoints(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				time.Sleep(rtt)
				return invoke(ctx, method, req, reply, conn, opts...)
			})},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = etcd.Close() })
	cycles(b, etcd, oneKey, []int{64, 1024})
}

// cycles is a benchmark for each number of goroutines.
func cycles(b *testing.B, etcd *clientv3.Client, key func(who, i int) string, numbers []int, opts ...etcdclaims.AcquireOption) {
	b.Helper()
	for _, n := range numbers {
		b.Run(fmt.Sprintf("goroutines=%d", n), func(b *testing.B) {
			c := newClient(b, etcd, etcdclaims.Config{Prefix: shortPrefix()})
			session := newSession(b, etcd)
			pfx := shortPrefix()
			ours := func(ctx context.Context, who, i int) error {
				cl, err := c.TryAcquire(ctx, key(who, i), opts...)
				if err != nil {
					return err
				}
				return cl.Release(ctx)
			}
			peer := func(ctx context.Context, who, i int) error {
				m := concurrency.NewMutex(session, fmt.Sprintf("%s%d", pfx, who))
				if err := m.Lock(ctx); err != nil {
					return err
				}
				return m.Unlock(ctx)
			}
			compare(b, n, ours, peer)
		})
	}
}

// compare shares b.N steps among n goroutines, in rounds of ours and the peer's,
// and reports both rates and their ratio.
func compare(b *testing.B, n int, ours, peer func(ctx context.Context, who, i int) error) {
	b.Helper()
	ctx := b.Context()
	per := max(b.N/rounds, n)
	var us, them, usP99, themP99 []float64
	for range rounds {
		rate, p99 := measure(ctx, b, n, per, ours)
		us, usP99 = append(us, rate), append(usP99, p99)
		rate, p99 = measure(ctx, b, n, per, peer)
		them, themP99 = append(them, rate), append(themP99, p99)
	}
	report(b, us, them)
	b.ReportMetric(median(usP99), "p99-ms")
	b.ReportMetric(median(themP99), "peer-p99-ms")
}

// measure returns steps per second, and the 99th percentile of one in ms.
func measure(ctx context.Context, b *testing.B, n, steps int, step func(ctx context.Context, who, i int) error) (rate, p99 float64) {
	b.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	took := make([][]time.Duration, n)
	start := time.Now()
	for who := range n {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= steps; i = int(next.Add(1)) {
				began := time.Now()
				if err := step(ctx, who, i); err != nil {
					b.Error(err)
					return
				}
				took[who] = append(took[who], time.Since(began))
			}
		})
	}
	wg.Wait()
	rate = float64(steps) / time.Since(start).Seconds()
	all := slices.Concat(took...)
	slices.Sort(all)
	return rate, float64(all[len(all)*99/100]) / float64(time.Millisecond)
}

// BenchmarkHotKey measures how long 4,000 callers of one client take to be told that
// a key is held, all of them wanting the same key against each wanting its own.
func BenchmarkHotKey(b *testing.B) {
	const callers = 4000
	etcd := testetcd.StartProcess(b).Client(b)
	cfg := etcdclaims.Config{Prefix: shortPrefix()}
	c, other := newClient(b, etcd, cfg), newClient(b, etcd, cfg)
	_, errs := other.TryAcquireEach(b.Context(), append(numbered("key/%d", callers), "hot"))
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	round := func(key func(i int) string) float64 {
		_, last := atOnce(callers, func(i int) error {
			_, err := c.TryAcquire(b.Context(), key(i))
			if !errors.Is(err, etcdclaims.ErrHeld) {
				b.Error(err)
			}
			return err
		})
		return last.Seconds()
	}
	var hot, distinct []float64
	for range max(b.N, rounds) {
		hot = append(hot, round(func(int) string { return "hot" }))
		distinct = append(distinct, round(func(i int) string { return fmt.Sprintf("key/%d", i) }))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(1e3*median(hot), "hot-ms")
	b.ReportMetric(1e3*median(distinct), "distinct-ms")
	b.ReportMetric(median(hot)/median(distinct), "ratio")
}

// shortPrefix is about as long as those of real use.
func shortPrefix() string { return "/" + uuid.NewString()[:8] + "/" }

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

func report(b *testing.B, us, them []float64) {
	b.Helper()
	ratios := make([]float64, len(us))
	for i := range us {
		ratios[i] = us[i] / them[i]
	}
	b.ReportMetric(0, "ns/op") // of both together: it says nothing
	b.ReportMetric(median(us), "ours/s")
	b.ReportMetric(median(them), "peer/s")
	b.ReportMetric(median(ratios), "ratio")
}

func newSession(b *testing.B, etcd *clientv3.Client, opts ...concurrency.SessionOption) *concurrency.Session {
	b.Helper()
	s, err := concurrency.NewSession(etcd, opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// BenchmarkHandOver measures how often one key changes hands among waiters, each
// a client of its own with its own session, or all of one client, against Mutexes
// with a session each.
func BenchmarkHandOver(b *testing.B) {
	server := testetcd.StartProcess(b)
	for _, within := range []string{"each", "one"} {
		for _, n := range []int{2, 16, 64, 256} {
			b.Run(fmt.Sprintf("client=%s/waiters=%d", within, n), func(b *testing.B) {
				handOver(b, server, n, within == "one")
			})
		}
	}
}

func handOver(b *testing.B, server *testetcd.Process, n int, within bool) {
	b.Helper()
	prefix, pfx := shortPrefix(), shortPrefix()
	clients := make([]*etcdclaims.Client, n)
	mutexes := make([]*concurrency.Mutex, n)
	for i := range n {
		etcd := server.Client(b)
		mutexes[i] = concurrency.NewMutex(newSession(b, etcd), pfx)
		if clients[i] = clients[0]; i == 0 || !within {
			clients[i] = newClient(b, etcd, etcdclaims.Config{Prefix: prefix})
		}
	}
	ours := func(ctx context.Context, who, _ int) error {
		cl, err := clients[who].Acquire(ctx, "key")
		if err != nil {
			return err
		}
		return cl.Release(ctx)
	}
	peer := func(ctx context.Context, who, _ int) error {
		if err := mutexes[who].Lock(ctx); err != nil {
			return err
		}
		return mutexes[who].Unlock(ctx)
	}
	before := requests(clients)
	compare(b, n, ours, peer)
	b.ReportMetric(float64(requests(clients)-before)/float64(rounds*max(b.N/rounds, n)), "requests/hand-over")
}

func requests(clients []*etcdclaims.Client) (n int64) {
	for _, c := range slices.Compact(slices.Clone(clients)) {
		n += c.Stats().Requests
	}
	return n
}

// BenchmarkHold measures what holding 10,000 claims for a minute costs, against
// a Session each, as is needed for locks that end one by one.
func BenchmarkHold(b *testing.B) {
	const claims = 10_000
	hold := time.Minute
	if testing.Short() {
		hold = 15 * time.Second
	}
	server := testetcd.StartProcess(b)
	cost := func(b *testing.B, set func(*clientv3.Client)) holding {
		b.Helper()
		wire := new(wireCount)
		etcd := wire.client(b, server.Endpoints())
		set(etcd)
		before := wire.now()
		time.Sleep(hold) // the measure is of a time
		return wire.now().less(before)
	}
	for range b.N {
		var ours, peer holding
		b.Run("claims", func(b *testing.B) {
			ours = cost(b, func(etcd *clientv3.Client) {
				c := newClient(b, etcd, etcdclaims.Config{Prefix: shortPrefix()})
				keys := make([]string, claims)
				for i := range keys {
					keys[i] = uuid.NewString()
				}
				_, errs := c.TryAcquireEach(b.Context(), keys)
				for _, err := range errs {
					if err != nil {
						b.Fatal(err)
					}
				}
			})
			ours.report(b, hold)
		})
		b.Run("peer", func(b *testing.B) {
			peer = cost(b, func(etcd *clientv3.Client) {
				pfx := shortPrefix()
				var wg sync.WaitGroup
				for w := range 64 {
					wg.Go(func() {
						for i := w; i < claims; i += 64 {
							s, err := concurrency.NewSession(etcd, concurrency.WithTTL(15))
							if err == nil {
								err = concurrency.NewMutex(s, pfx+uuid.NewString()).Lock(b.Context())
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
			peer.report(b, hold)
		})
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(ours.requests/peer.requests, "ratio-requests")
		b.ReportMetric(ours.bytes/peer.bytes, "ratio-bytes")
		b.ReportMetric(ours.cpu.Seconds()/peer.cpu.Seconds(), "ratio-cpu")
	}
}
