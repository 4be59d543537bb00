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
)

// BenchmarkTicks lets a thousand jobs be due at one instant, again and again, in
// real time on an etcd with fsync in the same process. What takes longest counts:
// from that instant until all runs are recorded.
func BenchmarkTicks(b *testing.B) {
	const jobs = 1000
	server := testetcd.Start(b)
	claims, err := etcdclaims.New(server.Client(b), etcdclaims.Config{})
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
		Now: func() time.Time { return time.Unix(0, wall.Load()) },
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
			Name: fmt.Sprint("job", i), Schedule: sched.Must(sched.Every(time.Hour, 0)), CatchUp: sched.Latest{},
			Handler: func(context.Context, sched.Tick) error { last.Store(time.Now().UnixNano()); return nil },
		}
		if err := s.Add(job); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for !s.Owner() {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	b.ResetTimer()
	var began, recorded time.Duration
	for range b.N {
		from := time.Now()
		wall.Add(int64(time.Hour))
		if err := s.Add(sched.Job{Name: fmt.Sprint("wake", from.UnixNano()), Schedule: sched.Must(sched.Every(100*24*time.Hour, 0)), Handler: nothing}); err != nil {
			b.Fatal(err) // it wakes the owner
		}
		<-all
		recorded += time.Since(from)
		began += time.Unix(0, last.Load()).Sub(from)
	}
	b.StopTimer()
	n := float64(b.N * jobs)
	b.ReportMetric(n/began.Seconds(), "begun/s")
	b.ReportMetric(n/recorded.Seconds(), "recorded/s")
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
