//go:build unix

package etcdclaims_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// holding is what was used in a time.
type holding struct {
	requests, bytes float64
	cpu             time.Duration
}

func (h holding) less(o holding) holding {
	return holding{h.requests - o.requests, h.bytes - o.bytes, h.cpu - o.cpu}
}

func (h holding) report(b *testing.B, d time.Duration) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(h.requests/d.Seconds(), "requests/s")
	b.ReportMetric(h.bytes/d.Seconds()/1024, "KiB/s")
	b.ReportMetric(h.cpu.Seconds()/d.Seconds()*100, "cpu-%")
}

// wireCount counts what a client sends and receives: a message sent is a
// request, on a stream too.
type wireCount struct{ sent, bytes atomic.Int64 }

func (w *wireCount) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (w *wireCount) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (w *wireCount) HandleConn(context.Context, stats.ConnStats) {}

func (w *wireCount) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.OutPayload:
		w.sent.Add(1)
		w.bytes.Add(int64(s.WireLength))
	case *stats.InPayload:
		w.bytes.Add(int64(s.WireLength))
	}
}

func (w *wireCount) client(b *testing.B, endpoints []string) *clientv3.Client {
	b.Helper()
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithStatsHandler(w)},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = etcd.Close() })
	return etcd
}

func (w *wireCount) now() holding {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return holding{
		requests: float64(w.sent.Load()), bytes: float64(w.bytes.Load()),
		cpu: time.Duration(u.Utime.Nano() + u.Stime.Nano()),
	}
}

// BenchmarkDeath measures the time from SIGKILL of a holder to the next owner,
// for a TTL of 5 s, against a Mutex with a session of that TTL. One step is one
// death.
func BenchmarkDeath(b *testing.B) {
	server := testetcd.StartProcess(b)
	etcd := server.Client(b)
	death := func(kind string) time.Duration {
		prefix := testetcd.Prefix(b)
		child, _, out := childProcess(b, append(childEnv(server, prefix), "ETCDCLAIMS_HOLD="+kind)...)
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			b.Fatal(err)
		}
		got := make(chan time.Time, 1)
		if kind == "claim" {
			c := newClient(b, etcd, etcdclaims.Config{Prefix: prefix, TTL: 5 * time.Second})
			go func() {
				if _, err := c.Acquire(b.Context(), "key"); err != nil {
					b.Error(err)
				}
				got <- time.Now()
			}()
		} else {
			m := concurrency.NewMutex(newSession(b, etcd, concurrency.WithTTL(5)), prefix)
			go func() {
				if err := m.Lock(b.Context()); err != nil {
					b.Error(err)
				}
				got <- time.Now()
			}()
		}
		// The phase of the renewals at which death comes is part of what is
		// measured: let them run for a while of no particular length.
		time.Sleep(time.Duration(1000+time.Now().UnixNano()%2500) * time.Millisecond)
		killed := time.Now()
		child.Kill()
		return (<-got).Sub(killed)
	}
	var ours, peer time.Duration
	for range b.N {
		ours += death("claim")
		peer += death("mutex")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ours.Seconds()/float64(b.N), "ours-s")
	b.ReportMetric(peer.Seconds()/float64(b.N), "peer-s")
	b.ReportMetric(ours.Seconds()/peer.Seconds(), "ratio")
}

// holdForBenchmark is the process that BenchmarkDeath kills.
func holdForBenchmark(kind string) error {
	etcd, prefix, err := childEtcd()
	if err != nil {
		return err
	}
	ctx := context.Background()
	if kind == "claim" {
		c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, TTL: 5 * time.Second})
		if err != nil {
			return err
		}
		if _, err := c.TryAcquire(ctx, "key"); err != nil {
			return err
		}
	} else {
		s, err := concurrency.NewSession(etcd, concurrency.WithTTL(5))
		if err != nil {
			return err
		}
		if err := concurrency.NewMutex(s, prefix).Lock(ctx); err != nil {
			return err
		}
	}
	fmt.Println("held")
	select {}
}

func init() {
	if kind := os.Getenv("ETCDCLAIMS_HOLD"); kind != "" {
		fmt.Fprintln(os.Stderr, holdForBenchmark(kind))
		os.Exit(1)
	}
}
