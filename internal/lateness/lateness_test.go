// Package lateness_test measures how late ticks begin, how often, and how long
// nobody runs them after their owner was killed: in package sched, and beside it,
// in the same minutes, in schedulers that Go programs use.
//
//	cd internal/lateness && go test -run '^$' -bench . -benchtime 1x
package lateness_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/robfig/cron/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

// begun records when a job was begun.
type begun struct {
	mu sync.Mutex
	at []time.Time
}

func (l *begun) note(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = append(l.at, at)
}

// A rival is a scheduler, or some of them, that runs a job at each full second
// until stop is called. The job is told by how much the clock is off.
type rival struct {
	name  string
	start func(b *testing.B, server *testetcd.Process, job job) (stop func())
	late  []time.Duration
	ticks int
	runs  int
}

type job func(skew time.Duration)

const (
	jobTakes = 5 * time.Millisecond
	round    = 5 * time.Second
)

// skews are by how much the clocks of the replicas are off, where there are
// replicas.
var skews = []time.Duration{0, 30 * time.Millisecond, 60 * time.Millisecond}

// BenchmarkLateness lets the rivals run for five seconds each, in turns, three
// times for each step. A tick is late by the time from the full second to the first
// run of the job, by the clock of whoever runs it; further runs are doubles.
func BenchmarkLateness(b *testing.B) {
	server := testetcd.StartProcess(b)
	rivals := []*rival{
		{name: "robfig", start: robfig}, // one process
		{name: "sched-1", start: scheduler(false, skews[:1])},
		{name: "sched-3", start: scheduler(false, skews)},
		{name: "spread-3", start: scheduler(true, make([]time.Duration, 3))},
		{name: "gocron-3", start: gocronLocked},
	}
	for range 3 * b.N {
		for _, r := range rivals {
			l := &begun{}
			stop := r.start(b, server, func(skew time.Duration) { l.note(time.Now().Add(skew)); time.Sleep(jobTakes) })
			time.Sleep(time.Second) // sessions, elections
			from := time.Now().Truncate(time.Second).Add(1500 * time.Millisecond)
			time.Sleep(time.Until(from.Add(round)))
			stop()
			r.count(l.at, from)
		}
	}
	b.ReportMetric(0, "ns/op")
	median := make(map[string]time.Duration)
	for _, r := range rivals {
		slices.Sort(r.late)
		b.Logf("%-9s %4d ticks of %d, %d doubles; late by p50 %v, p99 %v", r.name, len(r.late), r.ticks, r.runs-len(r.late),
			r.late[len(r.late)/2].Round(10*time.Microsecond), r.late[len(r.late)*99/100].Round(10*time.Microsecond))
		median[r.name] = r.late[len(r.late)/2]
		b.ReportMetric(median[r.name].Seconds()*1e3, r.name+"-p50-ms")
		b.ReportMetric(float64(r.runs)/float64(len(r.late)), r.name+"-runs/tick")
	}
	b.ReportMetric(median["sched-3"].Seconds()/median["gocron-3"].Seconds(), "sched-3:gocron-3")
}

// count takes in one round: what began nearest to each second.
func (r *rival) count(at []time.Time, from time.Time) {
	first := make(map[time.Time]time.Duration)
	for _, t := range at {
		nominal := t.Round(time.Second)
		if nominal.Before(from) || !nominal.Before(from.Add(round)) {
			continue
		}
		r.runs++
		if late, ok := first[nominal]; !ok || t.Sub(nominal) < late {
			first[nominal] = t.Sub(nominal)
		}
	}
	for _, late := range first {
		r.late = append(r.late, late)
	}
	r.ticks += int(round / time.Second)
}

// robfig is robfig/cron alone, without etcd.
func robfig(b *testing.B, _ *testetcd.Process, job job) (stop func()) {
	b.Helper()
	c := cron.New(cron.WithSeconds())
	if _, err := c.AddFunc("* * * * * *", func() { job(0) }); err != nil {
		b.Fatal(err)
	}
	c.Start()
	return func() { <-c.Stop().Done() }
}

// scheduler is package sched in as many replicas.
func scheduler(spread bool, skews []time.Duration) func(*testing.B, *testetcd.Process, job) func() {
	return func(b *testing.B, server *testetcd.Process, job job) (stop func()) {
		b.Helper()
		prefix := testetcd.Prefix(b)
		ctx, cancel := context.WithCancel(b.Context())
		var running sync.WaitGroup
		for _, skew := range skews {
			claims, err := etcdclaims.New(server.Client(b), etcdclaims.Config{Prefix: prefix})
			if err != nil {
				b.Fatal(err)
			}
			s, err := sched.New(claims, sched.Config{Group: "default", Spread: spread, Now: func() time.Time { return time.Now().Add(skew) }})
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Add(sched.Job{
				Name: "job", Schedule: calendar.Must(calendar.Cron("* * * * * *")),
				Handler: func(context.Context, sched.Tick) error { job(skew); return nil },
			}); err != nil {
				b.Fatal(err)
			}
			running.Go(func() {
				if err := errors.Join(s.Run(ctx), claims.Close(context.WithoutCancel(ctx))); err != nil {
					b.Error(err)
				}
			})
		}
		return func() { cancel(); running.Wait() }
	}
}

// gocronLocked is gocron in three replicas with a lock that is as good as a lock
// can be: etcd's Mutex.
func gocronLocked(b *testing.B, server *testetcd.Process, job job) (stop func()) {
	b.Helper()
	prefix := testetcd.Prefix(b)
	var stops []func()
	for _, skew := range skews {
		session, err := concurrency.NewSession(server.Client(b))
		if err != nil {
			b.Fatal(err)
		}
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker{session, prefix}), gocron.WithClock(skewed{clockwork.NewRealClock(), skew}))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() { job(skew) }), gocron.WithName("job")); err != nil {
			b.Fatal(err)
		}
		s.Start()
		stops = append(stops, func() {
			if err := errors.Join(s.Shutdown(), session.Close()); err != nil {
				b.Error(err)
			}
		})
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// skewed is a clock that is off.
type skewed struct {
	clockwork.Clock
	by time.Duration
}

func (c skewed) Now() time.Time { return c.Clock.Now().Add(c.by) }

// locker has a Mutex for each job.
type locker struct {
	session *concurrency.Session
	prefix  string
}

func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	m := concurrency.NewMutex(l.session, l.prefix+key)
	return lock{m}, m.TryLock(ctx)
}

type lock struct{ *concurrency.Mutex }

func (l lock) Unlock(ctx context.Context) error { return l.Mutex.Unlock(ctx) }
