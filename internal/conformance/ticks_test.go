package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/jobs"
	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/robfig/cron/v3"
)

const (
	replicas = 3
	skew     = 30 * time.Millisecond // between one replica's clock and the next's
	short    = 5 * time.Millisecond  // a job
	ticks    = 10
)

func nothing(context.Context) error { return nil }

// newClaims returns the client of one replica.
func newClaims(t *testing.T, prefix string) *etcdclaims.Client {
	t.Helper()
	return claimtest.NewClient(t, etcd{}, etcdclaims.Config{Prefix: prefix})
}

// etcd is the one that all tests share.
type etcd struct{}

func (etcd) Etcd(tb testing.TB) *client {
	tb.Helper()
	return testetcd.Shared(tb).Client(tb)
}

// process is an etcd of a test's own.
type process struct{ *testetcd.Process }

func (p process) Etcd(tb testing.TB) *client {
	tb.Helper()
	return p.Client(tb)
}

// A scheduler runs a job at the instants of the schedule, by a clock that is late
// by so much, until it is stopped.
type scheduler func(t *testing.T, late time.Duration, s jobs.Schedule, job func()) (stop func())

// late is a schedule by a clock that is late.
type late struct {
	jobs.Schedule
	by time.Duration
}

func (l late) Next(t time.Time) time.Time { return l.Schedule.Next(t.Add(-l.by)).Add(l.by) }

func robfig(_ *testing.T, by time.Duration, s jobs.Schedule, job func()) (stop func()) {
	c := cron.New()
	c.Schedule(late{s, by}, cron.FuncJob(job))
	c.Start()
	return func() { <-c.Stop().Done() }
}

// lateClock is a clock that is late, for gocron.
type lateClock struct {
	clockwork.Clock
	by time.Duration
}

func (c lateClock) Now() time.Time                  { return c.Clock.Now().Add(-c.by) }
func (c lateClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c lateClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// anyCron is a schedule in place of gocron's own.
type anyCron struct{ jobs.Schedule }

func (anyCron) IsValid(string, *time.Location, time.Time) error { return nil }

func newGocron(t *testing.T, by time.Duration, opts ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(append(opts, gocron.WithClock(lateClock{clockwork.NewRealClock(), by}), gocron.WithLocation(time.UTC))...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stopGocron(t *testing.T, s gocron.Scheduler) {
	t.Helper()
	if err := s.Shutdown(); err != nil {
		t.Error(err)
	}
}

func gocronCron(t *testing.T, by time.Duration, s jobs.Schedule, job func()) (stop func()) {
	t.Helper()
	g := newGocron(t, by)
	c, ok := s.(gocron.Cron)
	if !ok {
		c = anyCron{s}
	}
	if _, err := g.NewJob(gocron.CronJob("see the schedule", false), gocron.NewTask(job), gocron.WithCronImplementation(c), gocron.WithName("job")); err != nil {
		t.Fatal(err)
	}
	g.Start()
	return func() { stopGocron(t, g) }
}

// gocron takes two instants within a second for one wall-clock time that is shown
// twice, and leaves the second out.
var schedulers = map[string]struct {
	scheduler
	period time.Duration
}{"robfig": {robfig, 250 * time.Millisecond}, "gocron": {gocronCron, time.Second}}

// tally counts the runs of each tick. It knows which ticks any replica came to, and
// which of them were skipped because an earlier one was still running.
type tally struct {
	mu      sync.Mutex
	runs    map[string]int
	came    map[string]bool
	skipped map[string]bool
	all     int
}

func newTally() *tally {
	return &tally{runs: map[string]int{}, came: map[string]bool{}, skipped: map[string]bool{}}
}

func (y *tally) run(tick string) {
	time.Sleep(short)
	y.mu.Lock()
	defer y.mu.Unlock()
	y.runs[tick]++
	y.all++
}

func (y *tally) count() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.all
}

// await waits until there are enough runs. After a failure the test goes on, so that it
// stops its schedulers.
func (y *tally) await(t *testing.T, what string, enough func(runs int) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !enough(y.count()); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("never: %s", what)
			return
		}
	}
}

// awaitDoubles waits until there are more runs than there were ticks since the start. A
// machine that stalls runs fewer, so no number of ticks is enough for certain.
func (y *tally) awaitDoubles(t *testing.T, start time.Time, period time.Duration) {
	t.Helper()
	y.await(t, "more runs than ticks. Does a lock do? Then say so in the documentation", func(runs int) bool {
		return runs > int(time.Since(start)/period)+2 // one at either end
	})
}

// A lock around the job, even one that never fails, lets each replica run each
// tick: the job is over before the next one asks. This is what Ticks are for.
func TestLockDoubles(t *testing.T) {
	t.Parallel()
	for name, s := range schedulers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			every := calendar.Must(calendar.Every(s.period, 0))
			var lock sync.Mutex
			y, start := newTally(), time.Now()
			var stops []func()
			for i := range replicas {
				stops = append(stops, s.scheduler(t, time.Duration(i)*skew, every, func() {
					if lock.TryLock() {
						defer lock.Unlock()
						y.run("")
					}
				}))
			}
			y.awaitDoubles(t, start, s.period)
			for _, stop := range stops {
				stop()
			}
			t.Logf("%d runs under a perfect lock in %v, a tick every %v", y.all, time.Since(start), s.period)
		})
	}
}

// Each tick that any replica comes to is run by one.
func TestTicksRunOnce(t *testing.T) {
	t.Parallel()
	for name, s := range schedulers {
		for _, alone := range []bool{false, true} {
			name, period := name, s.period
			if alone {
				name += ", alone"
				period = time.Second // a tick is skipped if the one before is still running
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				prefix, every := testetcd.Prefix(t), calendar.Must(calendar.Every(period, 0))
				y := newTally()
				var stops []func()
				for i := range replicas {
					by := time.Duration(i) * skew
					claims := newClaims(t, prefix)
					c, err := jobs.NewTicks(claims, testwork.Of(claims), "job", every, jobs.TicksConfig{
						Alone: alone,
						Now:   func() time.Time { return time.Now().Add(-by) },
						Report: func(tick jobs.Tick, err error) {
							if err != nil && !errors.Is(err, middleware.ErrDone) && !errors.Is(err, fencing.ErrHeld) {
								t.Errorf("replica %d, %s: %v", i, tick.Key(), err)
							}
							y.mu.Lock()
							defer y.mu.Unlock()
							y.came[tick.Key()] = true
							// The claim of the job, not of the tick, was held.
							if held, ok := errors.AsType[*middleware.NotRunError](err); ok && held.Key == "job" {
								y.skipped[tick.Key()] = true
							}
						},
					})
					if err != nil {
						t.Fatal(err)
					}
					stops = append(stops, s.scheduler(t, by, c, c.Job(func(ctx context.Context) error {
						tick, _ := jobs.TickOf(ctx)
						y.run(tick.Key())
						return nil
					}).Run))
				}
				y.await(t, fmt.Sprint(ticks, " runs"), func(runs int) bool { return runs >= ticks })
				for _, stop := range stops {
					stop()
				}
				t.Logf("%d ticks: %d runs, %d skipped", len(y.came), y.all, len(y.skipped))
				if len(y.skipped) > len(y.came)/2 {
					t.Error("most ticks were skipped: a run ends long before the next tick")
				}
				for tick := range y.came {
					if n := y.runs[tick]; n > 1 || n == 0 && !y.skipped[tick] {
						t.Errorf("%s ran %d times", tick, n)
					}
				}
			})
		}
	}
}

// With a Locker as gocron has it, MinHold is what keeps replicas apart: without it
// the lock of a short job is free again before the next of them asks.
func TestLocker(t *testing.T) {
	t.Parallel()
	f := func(name string, minHold, period, apart time.Duration, judge func(t *testing.T, y *tally, start time.Time)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := testetcd.Prefix(t)
			y := newTally()
			var lockers []*jobs.Locker[gocron.Lock]
			for range replicas {
				lockers = append(lockers, jobs.NewLocker[gocron.Lock](newClaims(t, prefix), etcdclaims.MinHold(minHold)))
			}
			start := time.Now().Add(5 * time.Second) // gocron refuses a start that has passed
			for i, locker := range lockers {
				s := newGocron(t, 0, gocron.WithDistributedLocker(locker))
				defer stopGocron(t, s)
				_, err := s.NewJob(gocron.DurationJob(period), gocron.NewTask(locker.Task("job", func(ctx context.Context) error {
					y.run("")
					return fencing.Check(ctx)
				})), gocron.WithName("job"), gocron.WithStartAt(gocron.WithStartDateTime(start.Add(time.Duration(i)*apart))),
					gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(_ uuid, _ string, err error) { t.Error(err) })))
				if err != nil {
					t.Fatal(err)
				}
				s.Start()
			}
			time.Sleep(time.Until(start))
			judge(t, y, start)
		})
	}
	// So far apart that the lock of one is free before the next asks, on a slow machine too.
	const period = 2 * time.Second
	f("without MinHold", 0, period, 300*time.Millisecond, func(t *testing.T, y *tally, start time.Time) {
		y.awaitDoubles(t, start, period)
		t.Logf("%d runs in %v, a tick every %v", y.count(), time.Since(start), period)
	})
	// A replica may come some seconds late, and so may the end of MinHold.
	const long = 10 * time.Second
	f("with MinHold", 4*time.Second, long, skew, func(t *testing.T, y *tally, start time.Time) {
		const n = 2
		time.Sleep(time.Until(start.Add(n*long - long/2)))
		if runs := y.count(); runs != n {
			t.Errorf("%d runs of %d ticks", runs, n)
		}
	})
}

// A job that gets the name that gocron makes up would share its lock with all
// others; and gocron does not ask the locker where there is an elector.
func TestLockerMistakes(t *testing.T) {
	t.Parallel()
	c := newClaims(t, testetcd.Prefix(t))
	locker := jobs.NewLocker[gocron.Lock](c, etcdclaims.MinHold(0))
	task := gocron.NewTask(locker.Task("job", func(context.Context) error { t.Error("it runs"); return nil }))
	now := gocron.OneTimeJob(gocron.OneTimeJobStartImmediately())
	refused := make(chan error, 2)
	listen := gocron.WithEventListeners(
		gocron.AfterLockError(func(_ uuid, _ string, err error) { refused <- err }),
		gocron.AfterJobRunsWithError(func(_ uuid, _ string, err error) { refused <- err }),
	)
	s := newGocron(t, 0, gocron.WithDistributedLocker(locker))
	defer stopGocron(t, s)
	s.Start()
	if _, err := s.NewJob(now, task, listen); err != nil {
		t.Fatal(err)
	}
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "is not locked") {
		t.Errorf("got %v", err)
	}

	e := newGocron(t, 0, gocron.WithDistributedLocker(locker), gocron.WithDistributedElector(jobs.NewElector(someClient, "leader", middleware.SingletonConfig{})))
	defer stopGocron(t, e)
	e.Start()
	if _, err := e.NewJob(now, task, listen, gocron.WithName("job")); err != nil {
		t.Fatal(err)
	}
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "is not locked") {
		t.Errorf("got %v", err)
	}
}

// gocron's context of a job ends when the scheduler is shut down, and so does the
// one with which it unlocks: the key is given up all the same.
func TestLockerShutdown(t *testing.T) {
	t.Parallel()
	c := newClaims(t, testetcd.Prefix(t))
	locker := jobs.NewLocker[gocron.Lock](c, etcdclaims.MinHold(0))
	s := newGocron(t, 0, gocron.WithDistributedLocker(locker))
	began := make(chan struct{})
	_, err := s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(locker.Task("job", func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		return nil
	})), gocron.WithName("job"))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	<-began
	stopGocron(t, s)
	if info, err := c.Lookup(t.Context(), "job"); err != nil || info.Held {
		t.Errorf("%+v, %v", info, err)
	}
}

// One of several schedulers runs the jobs, and the next when that is gone.
func TestElector(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	y := newTally()
	leaders := make(chan int, 100)
	var stops [replicas]func()
	for i := range replicas {
		ctx, cancel := context.WithCancel(context.Background())
		elector := jobs.NewElector(newClaims(t, prefix), "leader", middleware.SingletonConfig{Started: func(fencing.Token) { leaders <- i }})
		ended := make(chan error, 1)
		go func() { ended <- elector.Run(ctx) }()
		stop := gocronElected(t, elector, time.Duration(i)*skew, func() { y.run("") })
		stops[i] = func() { stop(); cancel(); <-ended }
	}
	for range replicas {
		leader := <-leaders
		y.mu.Lock()
		y.all = 0
		y.mu.Unlock()
		began := time.Now()
		time.Sleep(4 * electedPeriod) // long enough to tell the runs of two from those of one
		y.await(t, "three runs of one leader", func(runs int) bool { return runs >= 3 })
		runs, took := y.count(), time.Since(began)
		if runs > int(took/electedPeriod)+2 {
			t.Errorf("%d runs in %v, of one each %v", runs, took, electedPeriod)
		}
		stops[leader]()
	}
}

const electedPeriod = 250 * time.Millisecond

func gocronElected(t *testing.T, elector *jobs.Elector, by time.Duration, job func()) (stop func()) {
	t.Helper()
	s := newGocron(t, by, gocron.WithDistributedElector(elector))
	task := elector.Task(func(context.Context) error { job(); return nil })
	if _, err := s.NewJob(gocron.DurationJob(electedPeriod), gocron.NewTask(task), gocron.WithName("job")); err != nil {
		t.Fatal(err)
	}
	s.Start()
	return func() { stopGocron(t, s) }
}
