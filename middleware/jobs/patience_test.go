package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/jobs"
)

// What is in the way of a job: another that has its key, or etcd that does not answer.
var inTheWay = map[string]func(t *testing.T, w *world){
	"held":   func(t *testing.T, w *world) { t.Helper(); hold(t, w, "k") },
	"outage": func(_ *testing.T, w *world) { w.Host.Cut() },
}

// notRunAfter fails unless the job is not run, after so long, and told as such. An
// outage may be told of sooner.
func notRunAfter(ctx context.Context, t *testing.T, job func(ctx context.Context) error, want time.Duration) {
	t.Helper()
	began := time.Now()
	err := job(ctx)
	var notRun *middleware.NotRunError
	if !errors.As(err, &notRun) || notRun.Key != "k" || jobs.IsFailure(err) || errors.Is(err, context.Canceled) || ctx.Err() != nil {
		t.Errorf("got %v; the context: %v", err, ctx.Err())
	}
	if took := time.Since(began); took > want || took < want && !errors.Is(err, fencing.ErrUnknown) {
		t.Errorf("after %v, want %v: %v", took, want, err)
	}
}

// asynq takes a task for failed at its deadline: one that was not run is given back
// shortly before.
func TestAsynqGivesUpBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	never := func(context.Context) error { panic("it runs") }
	for name, happens := range inTheWay {
		for timeout, want := range map[time.Duration]time.Duration{sec: 750 * time.Millisecond, 3 * sec: 2250 * time.Millisecond, 5 * time.Minute: 5*time.Minute - sec} {
			inWorld(t, name+", "+timeout.String(), func(t *testing.T, w *world) {
				cfg := jobs.Config{Wait: -1}
				warm := queues["asynq"](w.Claims, cfg, "k", func(context.Context) error { return nil })
				if err := warm(t.Context()); err != nil {
					t.Fatal(err)
				}
				happens(t, w)
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				notRunAfter(ctx, t, queues["asynq"](w.Claims, cfg, "k", never), want)
				w.Host.Heal()
			})
		}
	}
	inWorld(t, "at once", func(t *testing.T, w *world) {
		hold(t, w, "k")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		notRunAfter(ctx, t, queues["asynq"](w.Claims, jobs.Config{Wait: 10 * sec}, "k", never), 10*sec)
	})
	// A task that has begun has its time to the end.
	inWorld(t, "begun", func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*sec)
		defer cancel()
		began := time.Now()
		err := queues["asynq"](w.Claims, jobs.Config{}, "k", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })(ctx)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 10*sec || !jobs.IsFailure(err) {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// River works a job a second time that has been running for long: what waits counts as
// running.
func TestRiverGivesUpBeforeItIsRescued(t *testing.T) {
	t.Parallel()
	never := func(context.Context) error { panic("it runs") }
	for name, happens := range inTheWay {
		for after, want := range map[time.Duration]time.Duration{0: 30 * time.Minute, 2 * time.Minute: time.Minute} {
			inWorld(t, name+", "+after.String(), func(t *testing.T, w *world) {
				cfg := jobs.Config{Wait: -1, RescueAfter: after}
				warm := queues["River"](w.Claims, cfg, "k", func(context.Context) error { return nil })
				if err := warm(t.Context()); err != nil {
					t.Fatal(err)
				}
				happens(t, w)
				notRunAfter(t.Context(), t, queues["River"](w.Claims, cfg, "k", never), want)
				snooze := errors.New("snooze")
				cfg.NotRun = func(err error) error {
					if errors.Is(err, fencing.ErrLost) {
						t.Errorf("told %v", err)
					}
					return snooze
				}
				if err := queues["River"](w.Claims, cfg, "k", never)(t.Context()); !errors.Is(err, snooze) {
					t.Errorf("got %v", err)
				}
				w.Host.Heal()
			})
		}
	}
	inWorld(t, "begun", func(t *testing.T, w *world) {
		err := queues["River"](w.Claims, jobs.Config{RescueAfter: 2 * time.Minute}, "k", func(ctx context.Context) error {
			time.Sleep(3 * time.Minute)
			return ctx.Err()
		})(t.Context())
		if err != nil {
			t.Error(err)
		}
	})
}
