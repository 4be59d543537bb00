package sched_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// BenchmarkTicks lets a thousand jobs be due at one instant, again and again, in
// real time beside an etcd with fsync that is another process. What takes longest
// counts: from that instant until all runs are recorded.
func BenchmarkTicks(b *testing.B) {
	const jobs = 1000
	server := testetcd.StartProcess(b)
	etcd, sent := counted(b, server)
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = claims.Close(context.Background()) }()
	var ended atomic.Int64
	var last atomic.Int64
	var wall atomic.Int64 // the scheduler's clock stands still until it is set
	wall.Store(time.Now().Truncate(time.Hour).Add(time.Minute).UnixNano())
	all := make(chan struct{}, 1)
	s, err := sched.New(claims, sched.Config{
		Group: "default",
		Now:   func() time.Time { return time.Unix(0, wall.Load()) },
		Hooks: sched.Hooks{Finished: func(e sched.Entry) {
			if e.Outcome != sched.OutcomeOK {
				b.Error(e)
			}
			if ended.Add(1)%jobs == 0 {
				all <- struct{}{}
			}
		}},
	})
	if err != nil {
		b.Fatal(err)
	}
	for i := range jobs {
		job := sched.Job{
			Name: fmt.Sprint("job", i), Schedule: calendar.Must(calendar.Every(time.Hour, 0)), CatchUp: sched.Latest{},
			Handler: func(context.Context, sched.Tick) error { last.Store(time.Now().UnixNano()); return nil },
		}
		if err := s.Add(job); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for !s.IsOwner() {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	b.ResetTimer()
	var began, recorded time.Duration
	var requests int64
	for range b.N {
		sent.Store(0)
		from := time.Now()
		wall.Add(int64(time.Hour))
		if err := s.Add(sched.Job{Name: fmt.Sprint("wake", from.UnixNano()), Schedule: calendar.Must(calendar.Every(100*24*time.Hour, 0)), Handler: nothing}); err != nil {
			b.Fatal(err) // it wakes the owner
		}
		<-all
		recorded += time.Since(from)
		began += time.Unix(0, last.Load()).Sub(from)
		requests += sent.Load()
	}
	b.StopTimer()
	n := float64(b.N * jobs)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(n/began.Seconds(), "begun/s")
	b.ReportMetric(n/recorded.Seconds(), "recorded/s")
	b.ReportMetric(float64(requests)/n, "requests/tick")
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// counted returns a client, and the number of requests that it has sent.
func counted(b *testing.B, server *testetcd.Process) (*clientv3.Client, *atomic.Int64) {
	b.Helper()
	var n atomic.Int64
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: server.Endpoints(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				n.Add(1)
				return invoke(ctx, method, req, reply, conn, opts...)
			})},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = etcd.Close() })
	return etcd, &n
}
