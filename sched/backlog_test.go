package sched_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const benchJobs = 1000

// BenchmarkBacklog measures how fast five missed seconds of 1,000 jobs, each due
// each second, are admitted, and how fast they are run to their recorded end, by
// one process beside an etcd that is another. The peer does what a lock around the
// job does: 64 goroutines lock and unlock an etcd Mutex for each tick, which has no
// record, no history and nothing to catch up with. One step is 5,000 ticks of each.
func BenchmarkBacklog(b *testing.B) {
	const seconds = 5
	server := testetcd.StartProcess(b)
	var admitted, ran, locked time.Duration
	for range b.N {
		a, r := schedTicks(b, server, seconds)
		admitted, ran = admitted+a, ran+r
		locked += mutexTicks(b, server, seconds*benchJobs)
	}
	n := float64(b.N * seconds * benchJobs)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(n/admitted.Seconds(), "admitted/s")
	b.ReportMetric(n/ran.Seconds(), "ran/s")
	b.ReportMetric(n/locked.Seconds(), "mutex/s")
	b.ReportMetric(locked.Seconds()/ran.Seconds(), "ran:mutex")
}

// schedTicks lets a process find that it has missed so many seconds, and returns
// the time until all of their ticks were admitted, with one run at a time, and the
// time until all were run, with no limit.
func schedTicks(b *testing.B, server *testetcd.Process, seconds int) (admitted, ran time.Duration) {
	b.Helper()
	total := int64(seconds * benchJobs)
	measure := func(limit int, count func(prefix string) int64) time.Duration {
		prefix := testetcd.Prefix(b)
		now := time.Now().Truncate(time.Second)
		registered := new(atomic.Int64)
		stop := schedule(b, server, prefix, sched.Config{Group: "default", Now: func() time.Time { return now }}, func(sched.Tick) { registered.Add(1) })
		until(b, func() bool { return registered.Load() == benchJobs }) // each RunOnStart
		stop()
		var ended atomic.Int64
		var began time.Time
		stop = schedule(b, server, prefix, sched.Config{
			Group: "default",
			Limit: limit, Now: func() time.Time { return now.Add(time.Duration(seconds) * time.Second) },
			Hooks: sched.Hooks{Elected: func(int64) { began = time.Now() }, Finished: func(sched.Entry) { ended.Add(1) }},
		}, func(sched.Tick) {})
		until(b, func() bool { return ended.Load()+count(prefix) >= total })
		took := time.Since(began)
		stop()
		return took
	}
	etcd := server.Client(b)
	admitted = measure(1, func(prefix string) int64 {
		resp, err := etcd.Get(b.Context(), sched.Waiting(prefix, "default"), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			b.Fatal(err)
		}
		return resp.Count + 1 // which runs
	})
	ran = measure(0, func(string) int64 { return 0 })
	return admitted, ran
}

// schedule runs the jobs until stop is called.
func schedule(b *testing.B, server *testetcd.Process, prefix string, cfg sched.Config, handle func(sched.Tick)) (stop func()) {
	b.Helper()
	claims, err := etcdclaims.New(server.Client(b), etcdclaims.Config{Prefix: prefix})
	if err != nil {
		b.Fatal(err)
	}
	s, err := sched.New(claims, cfg)
	if err != nil {
		b.Fatal(err)
	}
	for i := range benchJobs {
		err := s.Add(sched.Job{
			Name: fmt.Sprint("job", i), Schedule: calendar.Must(calendar.Every(time.Second, 0)), CatchUp: sched.All{}, Overlap: sched.Allow{}, RunOnStart: true,
			Handler: func(_ context.Context, t sched.Tick) error { handle(t); return nil },
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-stopped; err != nil {
			b.Error(err)
		}
		if err := claims.Close(context.WithoutCancel(ctx)); err != nil {
			b.Error(err)
		}
	}
}

func until(b *testing.B, met func() bool) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); !met(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatal("not within a minute")
		}
	}
}

// mutexTicks locks and unlocks for so many ticks.
func mutexTicks(b *testing.B, server *testetcd.Process, ticks int) time.Duration {
	b.Helper()
	session, err := concurrency.NewSession(server.Client(b))
	if err != nil {
		b.Fatal(err)
	}
	defer session.Close()
	prefix := testetcd.Prefix(b)
	var next atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range 64 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(ticks); i = next.Add(1) {
				m := concurrency.NewMutex(session, fmt.Sprint(prefix, i))
				if err := m.TryLock(b.Context()); err != nil {
					b.Error(err)
				}
				if err := m.Unlock(b.Context()); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}
