//go:build unix

package sched_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// BenchmarkScale measures what a scheduler with many jobs costs its process while
// a few of them are due each second. One step is 20 seconds of each size.
//
//	go test ./sched -run '^$' -bench Scale -benchtime 1x
func BenchmarkScale(b *testing.B) {
	server := testetcd.StartProcess(b)
	for _, perSecond := range []int{20, 100} {
		for _, jobs := range []int{1000, 10_000} {
			b.Run(fmt.Sprintf("jobs=%d/ticks=%d", jobs, perSecond), func(b *testing.B) {
				for range b.N {
					scale(b, server, jobs, perSecond)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func scale(b *testing.B, server *testetcd.Process, jobs, perSecond int) {
	b.Helper()
	etcd, requests := counted(b, server)
	prefix := testetcd.Prefix(b)
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = claims.Close(context.Background()) }()
	s, err := sched.New(claims, sched.Config{Group: "default"})
	if err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	var late []time.Duration
	period := time.Second * time.Duration(jobs/perSecond)
	for i := range jobs {
		phase := (period / time.Duration(jobs) * time.Duration(i)).Truncate(time.Millisecond)
		err := s.Add(sched.Job{
			Name: fmt.Sprint("job", i), Schedule: calendar.Must(calendar.Every(period, phase)),
			Handler: func(_ context.Context, tick sched.Tick) error {
				mu.Lock()
				defer mu.Unlock()
				late = append(late, time.Since(tick.Nominal))
				return nil
			},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for registered := 0; registered < 2*jobs; time.Sleep(20 * time.Millisecond) { // a spec and a mark of each
		resp, err := etcd.Get(b.Context(), prefix+"sched/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			b.Fatal(err)
		}
		registered = int(resp.Count)
	}
	time.Sleep(3 * time.Second)
	mu.Lock()
	late = nil
	mu.Unlock()
	requests.Store(0)
	from, used := time.Now(), cpuTime()
	time.Sleep(20 * time.Second)
	passed := time.Since(from)
	mu.Lock()
	slices.Sort(late)
	n := len(late)
	b.ReportMetric(100*(cpuTime()-used).Seconds()/passed.Seconds(), "cpu%")
	b.ReportMetric(float64(requests.Load())/float64(max(n, 1)), "requests/tick")
	b.ReportMetric(float64(n)/passed.Seconds(), "ticks/s")
	if n > 0 {
		b.ReportMetric(late[n/2].Seconds()*1e3, "p50-ms")
		b.ReportMetric(late[n*99/100].Seconds()*1e3, "p99-ms")
	}
	mu.Unlock()
	cancel()
	if err := <-done; err != nil {
		b.Log(err)
	}
}

// cpuTime is what this process has used. Etcd is another.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
