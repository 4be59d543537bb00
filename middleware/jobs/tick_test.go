package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/jobs"
	"github.com/etcdclaims/claims/sched/calendar"
)

var minutely = calendar.Must(calendar.Every(time.Minute, 0))

// delay is a schedule as robfig/cron's @every has it.
type delay time.Duration

func (d delay) Next(t time.Time) time.Time { return t.Add(time.Duration(d)).Truncate(sec) }

// local is a schedule without a zone of its own: noon, wherever it is asked.
type local struct{}

func (local) Next(t time.Time) time.Time {
	noon := time.Date(t.Year(), t.Month(), t.Day(), 12, 0, 0, 0, t.Location())
	if !noon.After(t) {
		noon = noon.AddDate(0, 0, 1)
	}
	return noon
}

// journal is what a process reported.
type journal struct {
	mu   sync.Mutex
	ran  []string
	told []error
}

func (j *journal) run(ctx context.Context) error {
	tick, _ := jobs.TickOf(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ran = append(j.ran, tick.Key())
	return nil
}

func (j *journal) report(_ jobs.Tick, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.told = append(j.told, err)
}

func ticksOf(t *testing.T, c *etcdclaims.Client, s jobs.Schedule, cfg jobs.TicksConfig, opts ...work.Option) *jobs.Ticks {
	t.Helper()
	ticks, err := jobs.NewTicks(c, testwork.Of(c), "job", s, cfg, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ticks
}

// start runs the task at each tick of the process's scheduler, late by skew, until
// the test ends.
func start(t *testing.T, ticks *jobs.Ticks, skew time.Duration, fn func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	task := ticks.Task(fn)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			now := time.Now().Add(-skew)
			timer := time.NewTimer(ticks.Next(now).Sub(now))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			tasks.Go(func() { _ = task(context.Background()) })
		}
	})
	return func() { cancel(); tasks.Wait() }
}

// A job of five milliseconds runs once per tick, however far apart the processes
// are.
func TestTicksRunOnce(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{0, 30 * time.Millisecond, 40 * sec, -10 * sec, 2 * time.Minute} {
		inWorld(t, skew.String(), func(t *testing.T, w *world) {
			var j journal
			fn := func(ctx context.Context) error { time.Sleep(5 * time.Millisecond); return j.run(ctx) }
			begin := time.Now()
			var stops []func()
			for i, c := range []*etcdclaims.Client{w.Claims, w.Other} {
				late := time.Duration(i) * skew
				ticks := ticksOf(t, c, minutely, jobs.TicksConfig{Now: func() time.Time { return time.Now().Add(-late) }})
				stops = append(stops, start(t, ticks, late, fn))
			}
			time.Sleep(5*time.Minute + 50*sec)
			for _, stop := range stops {
				stop()
			}
			seen := map[string]int{}
			for _, key := range j.ran {
				if seen[key]++; seen[key] > 1 {
					t.Errorf("%s ran again", key)
				}
			}
			for i := 1; i <= 5; i++ {
				if key := "job/" + begin.UTC().Truncate(time.Minute).Add(time.Duration(i)*time.Minute).Format(time.RFC3339); seen[key] != 1 {
					t.Errorf("%s ran %d times, of %v", key, seen[key], j.ran)
				}
			}
		})
	}
}

// Which tick a job is for, by the time at which it starts.
func TestTickIdentity(t *testing.T) {
	day := time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC)
	at := func(clock string) time.Time {
		d, err := time.Parse("15:04:05.000", clock)
		if err != nil {
			t.Fatal(err)
		}
		return day.Add(d.Sub(d.Truncate(24 * time.Hour)))
	}
	f := func(s jobs.Schedule, starts ...string) { // pairs of start and tick
		t.Helper()
		now := at("00:00:00.000")
		ticks := ticksOf(t, without, s, jobs.TicksConfig{Now: func() time.Time { return now }})
		for i := 0; i < len(starts); i += 2 {
			now = at(starts[i])
			err := ticks.Task(func(ctx context.Context) error {
				tick, ok := jobs.TickOf(ctx)
				if got := tick.Nominal.Format("15:04:05.000"); !ok || got != starts[i+1] || tick.Job != "job" || tick.Nominal.Location() != time.UTC {
					t.Errorf("%v: a start at %s is for %s, want %s", starts, starts[i], got, starts[i+1])
				}
				return nil
			})(context.Background())
			if err != nil {
				t.Error(err)
			}
		}
	}
	hourly := calendar.Must(calendar.Cron("0 * * * *"))
	f(hourly, "01:00:00.000", "01:00:00.000", "02:00:00.003", "02:00:00.000", "03:59:58.000", "03:00:00.000")
	// A timer that fires early, but only once the tick before was had.
	f(hourly, "01:00:00.000", "01:00:00.000", "01:59:59.500", "02:00:00.000", "02:00:00.000", "02:00:00.000")
	f(hourly, "01:00:00.000", "01:00:00.000", "01:59:58.000", "01:00:00.000")
	f(hourly, "00:59:59.500", "01:00:00.000", "00:59:59.600", "01:00:00.000")
	// A start that is late by more than a tick is for the newest.
	f(calendar.Must(calendar.Every(sec, 0)), "01:00:00.000", "01:00:00.000", "01:00:03.900", "01:00:03.000", "01:00:03.950", "01:00:04.000")
	f(calendar.Must(calendar.Cron("* * 3 * * *")), "23:00:00.000", "03:59:59.000")
	f(calendar.Must(calendar.Every(10*time.Millisecond, 0)), "00:00:00.013", "00:00:00.010", "00:00:00.024", "00:00:00.020")
}

// Ticks of a schedule without a zone are in that of the scheduler.
func TestTicksZone(t *testing.T) {
	east := time.FixedZone("east", 3*3600)
	now := time.Date(2026, 3, 8, 9, 0, 1, 0, time.UTC)
	ticks := ticksOf(t, without, local{}, jobs.TicksConfig{Now: func() time.Time { return now }})
	if next := ticks.Next(now.In(east)); !next.Equal(now.Add(24*time.Hour - sec)) {
		t.Errorf("next %v", next)
	}
	_ = ticks.Task(func(ctx context.Context) error {
		if tick, _ := jobs.TickOf(ctx); tick.Key() != "job/2026-03-08T09:00:00Z" {
			t.Errorf("tick %v", tick)
		}
		return nil
	})(t.Context())
}

func TestNewTicks(t *testing.T) {
	f := func(job string, s jobs.Schedule, want string) {
		t.Helper()
		if _, err := jobs.NewTicks(without, testwork.Of(without), job, s, jobs.TicksConfig{}); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "jobs: ") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	f("", minutely, "needs a name")
	f("a\n", minutely, "cannot be part of a key")
	f(strings.Repeat("x", 1019), minutely, "cannot be part of a key")
	f("job", nil, "no schedule")
	f("job", never{}, "never due")
	f("job", back{}, "goes back")
	f("job", delay(time.Hour), "calendar.Every")
	f("job", delay(2*sec), "calendar.Every")
	f("job", delay(90*time.Minute), "calendar.Every")
	if _, err := jobs.NewTicks(without, testwork.Of(without), "job", jobs.Schedule(delay(sec)), jobs.TicksConfig{}); err != nil {
		t.Errorf("each second: %v", err) // on which all agree
	}
}

type (
	never struct{}
	back  struct{}
)

func (never) Next(time.Time) time.Time  { return time.Time{} }
func (back) Next(t time.Time) time.Time { return t.Add(-sec) }

func TestTickBeforeTheFirst(t *testing.T) {
	first := time.Now().Add(time.Hour)
	ticks := ticksOf(t, without, once(first), jobs.TicksConfig{})
	if err := ticks.Task(func(context.Context) error { t.Error("it runs"); return nil })(t.Context()); !errors.Is(err, jobs.ErrNoTick) {
		t.Errorf("got %v", err)
	}
	if ticks.IsValid("", nil, first) == nil || ticks.IsValid("", nil, first.Add(-1)) != nil {
		t.Error("IsValid")
	}
}

type once time.Time

func (o once) Next(t time.Time) time.Time {
	if t.Before(time.Time(o)) {
		return time.Time(o)
	}
	return time.Time{}
}

// What a tick comes to, in the process that runs it and in one that comes later.
func TestTickOutcomes(t *testing.T) {
	t.Parallel()
	own := errors.New("own")
	for name, fn := range map[string]func() error{
		"nil": func() error { return nil }, "error": func() error { return own },
		"panic": func() error { leaving["panic"](); return nil }, "Goexit": func() error { leaving["Goexit"](); return nil },
	} {
		inWorld(t, name, func(t *testing.T, w *world) {
			var here, there journal
			key := "job/" + time.Now().UTC().Truncate(time.Minute).Format(time.RFC3339)
			task := ticksOf(t, w.Claims, minutely, jobs.TicksConfig{Report: here.report}).Task(func(ctx context.Context) error {
				if token, _ := fencing.FromContext(ctx); token.Key != key || token.Fence == 0 || fencing.Check(ctx) != nil {
					t.Errorf("token %v", token)
				}
				return fn()
			})
			var err error
			p := left(func() { err = task(t.Context()) })
			switch told := here.told[0]; name {
			case "nil", "error":
				if want := map[string]error{"nil": nil, "error": own}[name]; err != want || told != want { //nolint:errorlint // as it is
					t.Errorf("got %v, told %v", err, told)
				}
			default:
				if (p == "own") != (name == "panic") || told == nil || !strings.Contains(told.Error(), "did not return") {
					t.Errorf("panic %v, told %v", p, told)
				}
			}
			// However late: the record says that it was run.
			time.Sleep(50 * sec)
			again := ticksOf(t, w.Other, minutely, jobs.TicksConfig{Report: there.report}).Task(func(context.Context) error { t.Error("it runs again"); return nil })
			if err := again(t.Context()); err != nil || !errors.Is(there.told[0], middleware.ErrDone) {
				t.Errorf("again: %v, told %v", err, there.told)
			}
			for r, err := range testwork.Of(w.Other).Orphans(t.Context(), "") {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
}

func TestTickHeld(t *testing.T) {
	t.Parallel()
	inWorld(t, "another runs it", func(t *testing.T, w *world) {
		var j journal
		began := make(chan struct{})
		long := ticksOf(t, w.Other, minutely, jobs.TicksConfig{}).Task(func(context.Context) error { close(began); time.Sleep(30 * sec); return nil })
		ended := make(chan error)
		go func() { ended <- long(context.Background()) }()
		<-began
		task := ticksOf(t, w.Claims, minutely, jobs.TicksConfig{Report: j.report}).Task(func(context.Context) error { t.Error("it runs"); return nil })
		if err := task(t.Context()); err != nil || !errors.Is(j.told[0], fencing.ErrHeld) {
			t.Errorf("%v, told %v", err, j.told)
		}
		standBy := ticksOf(t, w.Claims, minutely, jobs.TicksConfig{Report: j.report, StandBy: true}).Task(func(context.Context) error { t.Error("it runs"); return nil })
		if err := standBy(t.Context()); err != nil || !errors.Is(j.told[1], middleware.ErrDone) {
			t.Errorf("%v, told %v", err, j.told)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	inWorld(t, "no answer", func(t *testing.T, w *world) {
		w.Host.Cut()
		task := ticksOf(t, w.Claims, minutely, jobs.TicksConfig{}).Task(func(context.Context) error { t.Error("it runs"); return nil })
		var notRun *middleware.NotRunError
		if err := task(t.Context()); !errors.As(err, &notRun) {
			t.Errorf("got %v", err)
		}
	})
}

// The process that runs a tick dies.
func TestTickOrphan(t *testing.T) {
	t.Parallel()
	die := func(t *testing.T, w *world, opts ...work.Option) {
		began := make(chan struct{})
		gone := ticksOf(t, w.Claims, minutely, jobs.TicksConfig{}, opts...).Task(func(ctx context.Context) error { close(began); <-ctx.Done(); return nil })
		ended := make(chan error, 1)
		go func() { ended <- gone(context.Background()) }()
		t.Cleanup(func() {
			w.Host.Heal()
			if err := <-ended; !errors.Is(err, fencing.ErrLost) {
				t.Errorf("the dead: %v", err)
			}
		})
		<-began
		w.Host.Cut()
	}
	inWorld(t, "another stands by", func(t *testing.T, w *world) {
		die(t, w)
		var j journal
		began := time.Now()
		if err := ticksOf(t, w.Other, minutely, jobs.TicksConfig{StandBy: true}).Task(j.run)(t.Context()); err != nil || len(j.ran) != 1 || time.Since(began) > 17*sec {
			t.Errorf("%v, ran %v after %v", err, j.ran, time.Since(began))
		}
	})
	inWorld(t, "another is late", func(t *testing.T, w *world) {
		die(t, w)
		time.Sleep(40 * sec)
		var j journal
		if err := ticksOf(t, w.Other, minutely, jobs.TicksConfig{}).Task(j.run)(t.Context()); err != nil || len(j.ran) != 1 {
			t.Errorf("%v, ran %v", err, j.ran)
		}
	})
	inWorld(t, "at most once", func(t *testing.T, w *world) {
		die(t, w, work.AtMostOnce())
		time.Sleep(40 * sec)
		var j journal
		err := ticksOf(t, w.Other, minutely, jobs.TicksConfig{}, work.AtMostOnce()).Task(j.run)(t.Context())
		if !errors.Is(err, work.ErrDead) || len(j.ran) != 0 {
			t.Errorf("%v, ran %v", err, j.ran)
		}
	})
}

func TestTickLost(t *testing.T) {
	t.Parallel()
	own := errors.New("own")
	for name, lose := range losses {
		inWorld(t, name, func(t *testing.T, w *world) {
			for _, cfg := range []jobs.TicksConfig{{}, {Alone: true}} {
				err := ticksOf(t, w.Claims, minutely, cfg).Task(func(ctx context.Context) error {
					token, _ := fencing.FromContext(ctx)
					lose(t, w, token.Key)
					if ctx.Err() == nil || fencing.Check(ctx) == nil {
						t.Error("the job is not told")
					}
					return own
				})(t.Context())
				var lost *etcdclaims.LostError
				if !errors.Is(err, fencing.ErrLost) || !errors.As(err, &lost) || errors.Is(err, own) {
					t.Errorf("%+v: %v", cfg, err)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// No tick runs beside another, and each has a greater fence under one key.
func TestTicksAlone(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		var mu sync.Mutex
		var tokens []fencing.Token
		var told []string
		running := 0
		fn := func(ctx context.Context) error {
			mu.Lock()
			token, _ := fencing.FromContext(ctx)
			tokens = append(tokens, token)
			if running++; running > 1 {
				t.Error("two at a time")
			}
			mu.Unlock()
			time.Sleep(70 * sec) // two ticks
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		}
		var stops []func()
		for i, c := range []*etcdclaims.Client{w.Claims, w.Other} {
			report := func(tick jobs.Tick, err error) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, fmt.Sprint(i, tick.Nominal.Format(" 15:04 "), err != nil))
			}
			stops = append(stops, start(t, ticksOf(t, c, minutely, jobs.TicksConfig{Alone: true, Report: report}), 30*time.Millisecond*time.Duration(i), fn))
		}
		time.Sleep(6*time.Minute + sec)
		for _, stop := range stops {
			stop()
		}
		if len(tokens) != 3 {
			t.Errorf("ran %v, told %v", tokens, told)
		}
		for i, token := range tokens {
			if token.Key != "job" || i > 0 && token.Fence <= tokens[i-1].Fence {
				t.Errorf("tokens %v", tokens)
			}
		}
	})
	inWorld(t, "a skipped tick is done", func(t *testing.T, w *world) {
		claim := hold(t, w, "job")
		var j journal
		task := ticksOf(t, w.Claims, minutely, jobs.TicksConfig{Alone: true, Report: j.report}).Task(j.run)
		if err := task(t.Context()); err != nil || !errors.Is(j.told[0], fencing.ErrHeld) {
			t.Errorf("%v, told %v", err, j.told)
		}
		if err := claim.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := task(t.Context()); err != nil || !errors.Is(j.told[1], middleware.ErrDone) || len(j.ran) > 0 {
			t.Errorf("%v, told %v, ran %v", err, j.told, j.ran)
		}
	})
}

// deaf is a client that has no answer where a key is not that of a tick.
type deaf struct{ *etcdclaims.Client }

var errDeaf = errors.New("no answer")

func (deaf) TryRun(context.Context, string, func(context.Context) error, ...etcdclaims.AcquireOption) error {
	return errDeaf
}

// A tick that could not be run, for want of an answer, is left to others.
func TestTickGivenBack(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		ticks, err := jobs.NewTicks(deaf{w.Claims}, testwork.Of(w.Claims), "job", minutely, jobs.TicksConfig{Alone: true})
		if err != nil {
			t.Fatal(err)
		}
		var notRun *middleware.NotRunError
		err = ticks.Task(func(context.Context) error { t.Error("it runs"); return nil })(t.Context())
		if !errors.Is(err, errDeaf) || !errors.As(err, &notRun) || errors.Is(err, fencing.ErrLost) {
			t.Errorf("got %v", err)
		}
		var j journal
		if err := ticksOf(t, w.Other, minutely, jobs.TicksConfig{Alone: true}).Task(j.run)(t.Context()); err != nil || len(j.ran) != 1 {
			t.Errorf("another: %v, ran %v", err, j.ran)
		}
	})
}

func TestCronJob(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		var j journal
		ticks := ticksOf(t, w.Claims, minutely, jobs.TicksConfig{Context: func() context.Context { return ctx }, Report: j.report})
		ticks.Job(func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return j.run(ctx)
		}).Run()
		time.Sleep(time.Minute)
		ran := 0
		wrapped := jobs.CronWrapper[interface{ Run() }](ticks)(runFunc(func() { ran++ }))
		wrapped.Run()
		if len(j.ran) != 1 || ran != 0 || j.told[0] != nil || !errors.Is(j.told[1], context.Canceled) {
			t.Errorf("ran %v and %d, told %v", j.ran, ran, j.told)
		}
	})
	for name, leave := range leaving {
		inWorld(t, "wrapped, "+name, func(t *testing.T, w *world) {
			var j journal
			wrap := jobs.CronWrapper[interface{ Run() }](ticksOf(t, w.Claims, minutely, jobs.TicksConfig{Report: j.report}))
			if p := left(wrap(runFunc(leave)).Run); (p == "own") != (name == "panic") {
				t.Errorf("panic %v", p)
			}
			wrap(runFunc(func() { t.Error("it runs again") })).Run()
			if len(j.told) != 2 || !errors.Is(j.told[1], middleware.ErrDone) {
				t.Errorf("told %v", j.told)
			}
		})
	}
}

type runFunc func()

func (f runFunc) Run() { f() }

func TestCronWiring(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "runFunc") {
			t.Errorf("panic %q", text)
		}
	}()
	ticks := ticksOf(t, without, minutely, jobs.TicksConfig{})
	ran := false
	jobs.CronWrapper[interface{ Run() }](ticks)(runFunc(func() { ran = true })).Run()
	if !ran {
		t.Error("without claims it does not run")
	}
	jobs.CronWrapper[runFunc](ticks)
}
