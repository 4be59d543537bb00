package jobs_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/jobs"
)

// After an outage the newest tick runs, not one for each minute of it.
func TestTicksAfterAnOutage(t *testing.T) {
	t.Parallel()
	for _, cfg := range []jobs.TicksConfig{{}, {StandBy: true}, {StandBy: true, Alone: true}} {
		name := "plain"
		if cfg.StandBy {
			name = "standing by"
		}
		if cfg.Alone {
			name += ", alone"
		}
		inWorld(t, name, func(t *testing.T, w *world) {
			var mu sync.Mutex
			var ran []string
			var told []error
			running, most := 0, 0
			fn := func(ctx context.Context) error {
				tick, _ := jobs.TickOf(ctx)
				mu.Lock()
				ran = append(ran, tick.Key())
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(5 * sec)
				mu.Lock()
				running--
				mu.Unlock()
				return nil
			}
			cfg.Report = func(_ jobs.Tick, err error) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, err)
			}
			stop := start(t, ticksOf(t, w.Claims, minutely, cfg), 0, fn)
			time.Sleep(3*time.Minute + 30*sec)
			mu.Lock()
			before := len(ran)
			mu.Unlock()
			w.Host.Cut()
			time.Sleep(20 * time.Minute)
			mu.Lock()
			if len(ran) != before {
				t.Errorf("ran %v in the outage", ran[before:])
			}
			var notRun *middleware.NotRunError
			// The newest may wait for its answer yet.
			if n := len(told) - before; n < 18 || n > 20 || !errors.As(told[len(told)-1], &notRun) {
				t.Errorf("%d of 20 ticks were reported as not run, the last: %v", n, told[len(told)-1])
			}
			mu.Unlock()
			w.Host.Heal()
			time.Sleep(20 * sec)
			mu.Lock()
			if after := len(ran) - before; most > 1 || after > 1 || cfg.StandBy && after != 1 {
				t.Errorf("%d ticks ran after the outage, %d at a time: %v", after, most, ran)
			}
			healed := len(ran)
			mu.Unlock()
			time.Sleep(2 * time.Minute)
			stop()
			if len(ran) != healed+2 {
				t.Errorf("ran %v", ran)
			}
		})
	}
}

// A tick that another process runs is stood by for through later ticks, and through an
// outage of one's own.
func TestStandByForLong(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(w *world){
		"later ticks":         func(*world) { time.Sleep(3 * time.Minute) },
		"an outage":           func(w *world) { time.Sleep(sec); w.Host.Cut(); time.Sleep(3 * time.Minute); w.Host.Heal() },
		"begins in an outage": nil,
	} {
		inWorld(t, name, func(t *testing.T, w *world) {
			began := make(chan string, 1)
			gone := ticksOf(t, w.Other, minutely, jobs.TicksConfig{}).Task(func(ctx context.Context) error {
				tick, _ := jobs.TickOf(ctx)
				began <- tick.Key()
				time.Sleep(3*time.Minute + 30*sec)
				w.Near.Kill()
				<-ctx.Done()
				return nil
			})
			ended := make(chan error, 1)
			go func() { ended <- gone(context.Background()) }()
			key := <-began
			var j journal
			ticks := ticksOf(t, w.Claims, minutely, jobs.TicksConfig{StandBy: true})
			stood := make(chan error, 1)
			if happens == nil {
				w.Host.Cut()
			}
			go func() { stood <- ticks.Task(j.run)(context.Background()) }()
			if happens == nil {
				time.Sleep(20 * sec)
				w.Host.Heal()
				time.Sleep(20 * sec)
				happens = func(*world) { time.Sleep(2*time.Minute + 20*sec) }
			}
			stop := start(t, ticks, 0, j.run)
			happens(w)
			time.Sleep(time.Minute)
			if err := <-stood; err != nil {
				t.Errorf("standing by: %v", err)
			}
			stop()
			if !slices.Contains(j.ran, key) {
				t.Errorf("%s was lost; ran %v", key, j.ran)
			}
			if err := <-ended; !errors.Is(err, fencing.ErrLost) {
				t.Errorf("the dead: %v", err)
			}
		})
	}
}

// A tick that another process has run is no error, also if this process was cut off until
// the next tick was due.
func TestStandByForATickThatHasRun(t *testing.T) {
	t.Parallel()
	inWorld(t, "", func(t *testing.T, w *world) {
		now := time.Now() // to shortly after a tick
		time.Sleep(now.Truncate(time.Minute).Add(time.Minute + 100*time.Millisecond).Sub(now))
		var here, there journal
		cutOff := ticksOf(t, w.Claims, minutely, jobs.TicksConfig{StandBy: true}).Task(here.run)
		other := ticksOf(t, w.Other, minutely, jobs.TicksConfig{}).Task(there.run)
		time.Sleep(time.Minute)
		w.Host.Cut()
		if err := other(t.Context()); err != nil || len(there.ran) != 1 {
			t.Fatal(err, there.ran)
		}
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- cutOff(context.Background()) }()
		time.Sleep(time.Minute)
		go func() { second <- cutOff(context.Background()) }() // the first no longer waits for an answer
		time.Sleep(sec / 2)
		w.Host.Heal()
		if err := <-first; err != nil {
			t.Errorf("the tick that has run: %v", err)
		}
		if err := <-second; err != nil || len(here.ran) != 1 || here.ran[0] == there.ran[0] {
			t.Errorf("the next: %v; ran %v here and %v there", err, here.ran, there.ran)
		}
	})
}

// The job's claim has the options of the tick's work, so that one does not outlive the
// other: a tick that is taken over is not taken for one that runs yet.
func TestStandByAlone(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{5 * sec, 15 * sec, 40 * sec} {
		inWorld(t, ttl.String(), func(t *testing.T, w *world) {
			began := make(chan struct{})
			cfg := jobs.TicksConfig{Alone: true, StandBy: true}
			gone := ticksOf(t, w.Claims, minutely, cfg, etcdclaims.TTL(ttl)).Task(func(ctx context.Context) error { close(began); <-ctx.Done(); return nil })
			ended := make(chan error, 1)
			go func() { ended <- gone(context.Background()) }()
			<-began
			w.Host.Cut()
			var j journal
			at := time.Now()
			if err := ticksOf(t, w.Other, minutely, cfg, etcdclaims.TTL(ttl)).Task(j.run)(t.Context()); err != nil || len(j.ran) != 1 {
				t.Errorf("%v, ran %v", err, j.ran)
			}
			if took := time.Since(at); took > ttl+2*sec {
				t.Errorf("taken over after %v", took)
			}
			w.Host.Heal()
			if err := <-ended; !errors.Is(err, fencing.ErrLost) {
				t.Errorf("the dead: %v", err)
			}
		})
	}
	inWorld(t, "an outage is ridden out", func(t *testing.T, w *world) {
		ticks := ticksOf(t, w.Claims, minutely, jobs.TicksConfig{Alone: true}, etcdclaims.TTL(time.Minute))
		if err := ticks.Task(func(ctx context.Context) error {
			w.Host.Cut()
			time.Sleep(25 * sec)
			w.Host.Heal()
			time.Sleep(2 * sec)
			return ctx.Err()
		})(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A tick whose claim was lost is not recorded as run, whichever of its claims that was.
func TestTickLostRunsAgain(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{false, true} {
		for _, atMostOnce := range []bool{false, true} {
			name := map[bool]string{false: "plain", true: "alone"}[alone] + map[bool]string{true: ", at most once"}[atMostOnce]
			inWorld(t, name, func(t *testing.T, w *world) {
				var opts []work.Option
				if atMostOnce {
					opts = append(opts, work.AtMostOnce())
				}
				cfg := jobs.TicksConfig{Alone: alone}
				err := ticksOf(t, w.Claims, minutely, cfg, opts...).Task(func(ctx context.Context) error {
					token, _ := fencing.FromContext(ctx)
					losses["forced"](t, w, token.Key)
					return nil
				})(t.Context())
				if !errors.Is(err, fencing.ErrLost) {
					t.Fatal(err)
				}
				var j journal
				err = ticksOf(t, w.Other, minutely, cfg, opts...).Task(j.run)(t.Context())
				if atMostOnce && (!errors.Is(err, work.ErrDead) || len(j.ran) > 0) || !atMostOnce && (err != nil || len(j.ran) != 1) {
					t.Errorf("another: %v, ran %v", err, j.ran)
				}
			})
		}
	}
}

// A schedule without a zone has other ticks in the scheduler's zone than in the
// process's: what was had counts by the former.
func TestTicksFirstEarly(t *testing.T) {
	inWorld(t, "another zone", func(t *testing.T, w *world) {
		tokyo := time.FixedZone("JST", 9*3600)
		for _, zones := range [][2]*time.Location{{tokyo, time.UTC}, {time.UTC, tokyo}, {tokyo, tokyo}} {
			process, scheduler := zones[0], zones[1]
			for hour := range 24 {
				now := time.Date(2026, 3, 1, hour, 30, 0, 0, time.UTC)
				var j journal
				ticks, err := jobs.NewTicks(w.Claims, testwork.Of(w.Claims), "job", local{}, jobs.TicksConfig{Now: func() time.Time { return now.In(process) }, Report: j.report})
				if err != nil {
					t.Fatal(err)
				}
				now = now.Add(26 * time.Hour) // when the scheduler is started
				next := ticks.Next(now.In(scheduler))
				now = next.Add(-300 * time.Millisecond) // its timer
				if err := ticks.Task(func(ctx context.Context) error {
					if tick, _ := jobs.TickOf(ctx); !tick.Nominal.Equal(next) {
						t.Errorf("%v, %v at %v: runs as %v, due at %v", process, scheduler, hour, tick.Nominal, next)
					}
					return nil
				})(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
