package lateness_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// BenchmarkScale measures what a scheduler with many jobs costs its process while
// a few of them are due each second. One step is 20 seconds of each size.
//
//	cd internal/lateness && go test -run '^$' -bench Scale -benchtime 1x
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
	late := &latenesses{}
	period := time.Second * time.Duration(jobs/perSecond)
	g := startGroup(b, etcd, time.Now)
	for i := range jobs {
		phase := (period / time.Duration(jobs) * time.Duration(i)).Truncate(time.Millisecond)
		g.add(b, sched.Job{
			Name: fmt.Sprint("job", i), Schedule: calendar.Must(calendar.Every(period, phase)),
			Handler: func(_ context.Context, tick sched.Tick) error { late.note(time.Since(tick.Nominal)); return nil },
		})
	}
	from := time.Now()
	g.run(b)
	for g.registered(b, etcd) < int64(jobs) {
		time.Sleep(20 * time.Millisecond)
	}
	b.ReportMetric(time.Since(from).Seconds(), "register-s")
	time.Sleep(3 * time.Second)
	late.reset()
	requests.Store(0)
	from, used := time.Now(), cpuTime()
	time.Sleep(20 * time.Second)
	passed := time.Since(from)
	p50, p99, n := late.percentiles()
	b.ReportMetric(100*(cpuTime()-used).Seconds()/passed.Seconds(), "cpu%")
	b.ReportMetric(float64(requests.Load())/float64(max(n, 1)), "requests/tick")
	b.ReportMetric(p50.Seconds()*1e3, "p50-ms")
	b.ReportMetric(p99.Seconds()*1e3, "p99-ms")
	b.ReportMetric(float64(n)/passed.Seconds(), "ticks/s")
	g.stop(b)
}

// BenchmarkBacklog measures how a job catches up with ticks that were missed, and
// how long another job of the group waits for its RunNow meanwhile. It gives up
// after two minutes.
//
//	cd internal/lateness && go test -run '^$' -bench Backlog -benchtime 1x
func BenchmarkBacklog(b *testing.B) {
	server := testetcd.StartProcess(b)
	for _, overlap := range []sched.Overlap{sched.BufferAll{Max: 10_000}, sched.Allow{}} {
		for _, ticks := range []int{1000, 8000, 10_000} {
			b.Run(fmt.Sprintf("%T/ticks=%d", overlap, ticks), func(b *testing.B) {
				for range b.N {
					backlog(b, server, ticks, overlap)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func backlog(b *testing.B, server *testetcd.Process, ticks int, overlap sched.Overlap) {
	b.Helper()
	const patience = 2 * time.Minute
	etcd, requests := counted(b, server)
	var ahead, ran atomic.Int64
	var asked, answered atomic.Int64 // when
	jobs := []sched.Job{
		{
			Name: "busy", Schedule: calendar.Must(calendar.Cron("* * * * * *")), CatchUp: sched.All{Max: ticks}, Overlap: overlap,
			Handler: func(context.Context, sched.Tick) error { ran.Add(1); return nil },
		},
		{
			Name: "idle", Schedule: calendar.Must(calendar.Every(24*time.Hour, 0)),
			Handler: func(context.Context, sched.Tick) error { answered.Store(time.Now().UnixNano()); return nil },
		},
	}
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	g := startGroup(b, etcd, now)
	g.add(b, jobs...)
	g.run(b)
	for g.registered(b, etcd) < 2 {
		time.Sleep(10 * time.Millisecond)
	}
	g.stop(b)
	ahead.Store(int64(time.Duration(ticks) * time.Second))
	ran.Store(0)
	next := &group{prefix: g.prefix, now: now}
	next.open(b, etcd)
	next.add(b, jobs...)
	requests.Store(0)
	from, used := time.Now(), cpuTime()
	next.run(b)
	time.Sleep(50 * time.Millisecond)
	asked.Store(time.Now().UnixNano())
	if _, err := next.sched.RunNow(b.Context(), "idle"); err != nil {
		b.Fatal(err)
	}
	for ran.Load() < int64(ticks) && time.Since(from) < patience {
		time.Sleep(5 * time.Millisecond)
	}
	took, n := time.Since(from), ran.Load()
	b.ReportMetric(float64(n), "ran")
	b.ReportMetric(took.Seconds(), "s")
	b.ReportMetric((cpuTime()-used).Seconds()*1e3/float64(max(n, 1)), "cpu-ms/tick")
	b.ReportMetric(float64(requests.Load())/float64(max(n, 1)), "requests/tick")
	waited := answered.Load() - asked.Load()
	if waited < 0 {
		waited = int64(took) // it waits yet
	}
	b.ReportMetric(time.Duration(waited).Seconds(), "runnow-s")
	next.stop(b)
}

// group is one process of a group of schedulers.
type group struct {
	prefix string
	now    func() time.Time
	claims *etcdclaims.Client
	sched  *sched.Scheduler
	cancel context.CancelFunc
	done   chan error
}

func startGroup(b *testing.B, etcd *clientv3.Client, now func() time.Time) *group {
	b.Helper()
	g := &group{prefix: testetcd.Prefix(b), now: now}
	g.open(b, etcd)
	return g
}

func (g *group) open(b *testing.B, etcd *clientv3.Client) {
	b.Helper()
	var err error
	if g.claims, err = etcdclaims.New(etcd, etcdclaims.Config{Prefix: g.prefix}); err != nil {
		b.Fatal(err)
	}
	if g.sched, err = sched.New(g.claims, sched.Config{Group: "default", Now: g.now}); err != nil {
		b.Fatal(err)
	}
}

func (g *group) add(b *testing.B, jobs ...sched.Job) {
	b.Helper()
	for _, j := range jobs {
		if err := g.sched.Add(j); err != nil {
			b.Fatal(err)
		}
	}
}

func (g *group) run(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	g.cancel, g.done = cancel, make(chan error, 1)
	go func() { g.done <- g.sched.Run(ctx) }()
	for !g.sched.Owner() {
		time.Sleep(time.Millisecond)
	}
}

// registered returns how many jobs the owner has registered.
func (g *group) registered(b *testing.B, etcd *clientv3.Client) int64 {
	b.Helper()
	resp, err := etcd.Get(b.Context(), g.prefix+"sched/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		b.Fatal(err)
	}
	return resp.Count / 2 // a spec and a mark
}

func (g *group) stop(b *testing.B) {
	b.Helper()
	g.cancel()
	if err := <-g.done; err != nil {
		b.Log(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = g.claims.Close(ctx)
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

// cpuTime is what this process has used. Etcd is another.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// latenesses are the times from nominal instants to the begin of handlers.
type latenesses struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *latenesses) note(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, d)
}

func (l *latenesses) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = nil
}

func (l *latenesses) percentiles() (p50, p99 time.Duration, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return 0, 0, 0
	}
	slices.Sort(l.all)
	return l.all[len(l.all)/2], l.all[len(l.all)*99/100], len(l.all)
}
