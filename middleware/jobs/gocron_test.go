package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/jobs"
)

// unlocker is gocron.Lock.
type unlocker interface {
	Unlock(ctx context.Context) error
}

func lockerOf(c *etcdclaims.Client, minHold time.Duration) *jobs.Locker[unlocker] {
	return jobs.NewLocker[unlocker](c, etcdclaims.MinHold(minHold))
}

// runLocked does as gocron does with a job.
func runLocked(ctx context.Context, l *jobs.Locker[unlocker], job string, task func(ctx context.Context) error) (taskErr, err error) {
	lock, err := l.Lock(ctx, job)
	if err != nil {
		return nil, err
	}
	defer func() { err = lock.Unlock(ctx) }()
	return task(ctx), nil
}

func TestLocker(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		l := lockerOf(w.Claims, 20*sec)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		own := errors.New("own")
		err, uerr := runLocked(ctx, l, "job", l.Task("job", func(ctx context.Context) error {
			if token, _ := fencing.FromContext(ctx); token.Key != "job" || token.Fence == 0 || fencing.Check(ctx) != nil {
				t.Errorf("token %v", token)
			}
			cancel() // gocron is shut down: it unlocks with a context that has ended
			<-ctx.Done()
			return own
		}))
		if err != own || uerr != nil { //nolint:errorlint // as it is
			t.Errorf("got %v, %v", err, uerr)
		}
		// It stays held, though the job is over, but not for longer than it should.
		other := lockerOf(w.Other, 20*sec)
		var notRun *middleware.NotRunError
		if _, err := other.Lock(t.Context(), "job"); !errors.Is(err, fencing.ErrHeld) || !errors.As(err, &notRun) || notRun.Key != "job" {
			t.Errorf("rest: %v", err)
		}
		for {
			if lock, err := other.Lock(t.Context(), "job"); err == nil {
				_ = lock.Unlock(t.Context())
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took < 19*sec || took > 22*sec {
			t.Errorf("held for %v", took)
		}
	})
	inWorld(t, "unlocked twice", func(t *testing.T, w *world) {
		l := lockerOf(w.Claims, 0)
		lock, err := l.Lock(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := lock.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		w.Free(t, "job")
		if err := l.Task("job", func(context.Context) error { t.Error("it runs"); return nil })(t.Context()); !errors.Is(err, jobs.ErrNotLocked) {
			t.Errorf("after it: %v", err)
		}
	})
	inWorld(t, "one task for each lock", func(t *testing.T, w *world) {
		l := lockerOf(w.Claims, 0)
		_, err := runLocked(t.Context(), l, "job", func(ctx context.Context) error {
			if err := l.Task("job", func(context.Context) error { return nil })(ctx); err != nil {
				t.Error(err)
			}
			return l.Task("job", func(context.Context) error { t.Error("it runs"); return nil })(ctx)
		})
		if err != nil {
			t.Error(err)
		}
	})
	inWorld(t, "not had", func(t *testing.T, w *world) {
		w.Host.Cut()
		if _, err := lockerOf(w.Claims, 0).Lock(t.Context(), "job"); err == nil {
			t.Error("locked")
		}
	})
	for name, lose := range losses {
		inWorld(t, name, func(t *testing.T, w *world) {
			l := lockerOf(w.Claims, 0)
			err, uerr := runLocked(t.Context(), l, "job", l.Task("job", func(ctx context.Context) error {
				lose(t, w, "job")
				if ctx.Err() == nil || fencing.Check(ctx) == nil {
					t.Error("the task is not told")
				}
				return nil
			}))
			if !errors.Is(err, fencing.ErrLost) || !errors.Is(uerr, fencing.ErrLost) || errors.Is(err, context.Canceled) {
				t.Errorf("got %v, %v", err, uerr)
			}
		})
	}
	for name, leave := range leaving {
		inWorld(t, name, func(t *testing.T, w *world) {
			l := lockerOf(w.Claims, 0)
			left(func() {
				_, _ = runLocked(context.Background(), l, "job", l.Task("job", func(context.Context) error { leave(); return nil }))
			})
			w.Free(t, "job")
		})
	}
	inWorld(t, "lost before the task", func(t *testing.T, w *world) {
		l := lockerOf(w.Claims, 0)
		err, _ := runLocked(t.Context(), l, "job", func(ctx context.Context) error {
			losses["key deleted"](t, w, "job")
			return l.Task("job", func(context.Context) error { t.Error("it runs"); return nil })(ctx)
		})
		if !errors.Is(err, fencing.ErrLost) {
			t.Errorf("got %v", err)
		}
	})
	// Shut down between the lock and its task: the claim drains, so its check still succeeds.
	inWorld(t, "ended before the task", func(t *testing.T, w *world) {
		l := lockerOf(w.Claims, 0)
		ctx, cancel := context.WithCancel(t.Context())
		err, uerr := runLocked(ctx, l, "job", func(context.Context) error {
			cancel()
			return l.Task("job", func(context.Context) error { t.Error("it runs"); return nil })(t.Context())
		})
		var notRun *middleware.NotRunError
		if !errors.As(err, &notRun) || notRun.Key != "job" || !errors.Is(err, context.Canceled) || uerr != nil {
			t.Errorf("got %v, %v", err, uerr)
		}
	})
}

func TestElector(t *testing.T) {
	t.Parallel()
	lead := func(c *etcdclaims.Client) (*jobs.Elector, func() error) {
		e := jobs.NewElector(c, "leader", middleware.SingletonConfig{})
		ctx, cancel := context.WithCancelCause(context.Background())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		return e, func() error { cancel(errors.New("stop")); return <-ended }
	}
	inWorld(t, "hands over", func(t *testing.T, w *world) {
		a, stopA := lead(w.Claims)
		time.Sleep(sec)
		b, stopB := lead(w.Other)
		time.Sleep(sec)
		if err := a.IsLeader(t.Context()); err != nil {
			t.Error(err)
		}
		if err := b.IsLeader(t.Context()); !errors.Is(err, jobs.ErrNotLeader) {
			t.Errorf("got %v", err)
		}
		never := b.Task(func(context.Context) error { t.Error("it runs"); return nil })
		if err := never(t.Context()); !errors.Is(err, jobs.ErrNotLeader) {
			t.Errorf("got %v", err)
		}
		// The key is not given on before the task has returned.
		began := make(chan struct{})
		done := make(chan error)
		go func() {
			done <- a.Task(func(ctx context.Context) error {
				if token, _ := fencing.FromContext(ctx); token.Key != "leader" || fencing.Check(ctx) != nil {
					t.Errorf("token %v", token)
				}
				close(began)
				<-ctx.Done()
				time.Sleep(sec)
				if b.IsLeader(ctx) == nil || a.IsLeader(ctx) == nil {
					t.Error("another leads, or this one yet")
				}
				return nil
			})(t.Context())
		}()
		<-began
		go func() {
			if err := stopA(); err == nil || !strings.Contains(err.Error(), "stop") {
				t.Errorf("run: %v", err)
			}
			done <- nil
		}()
		if err := <-done; err != nil {
			t.Errorf("task: %v", err)
		}
		<-done
		time.Sleep(sec)
		if err := b.IsLeader(t.Context()); err != nil {
			t.Error(err)
		}
		_ = stopB()
		if err := b.IsLeader(t.Context()); err == nil {
			t.Error("it leads")
		}
	})
	inWorld(t, "a machine that wakes", func(t *testing.T, w *world) {
		e, stop := lead(w.Claims)
		time.Sleep(sec)
		w.Host.Suspend(time.Minute) // no timer has fired yet
		if err := e.IsLeader(t.Context()); !errors.Is(err, jobs.ErrNotLeader) {
			t.Errorf("got %v", err)
		}
		never := e.Task(func(context.Context) error { t.Error("it runs"); return nil })
		if err := never(t.Context()); !errors.Is(err, jobs.ErrNotLeader) {
			t.Errorf("got %v", err)
		}
		_ = stop()
	})
	for name, lose := range losses {
		inWorld(t, name, func(t *testing.T, w *world) {
			e, stop := lead(w.Claims)
			time.Sleep(sec)
			err := e.Task(func(ctx context.Context) error {
				lose(t, w, "leader")
				if ctx.Err() == nil || fencing.Check(ctx) == nil || e.IsLeader(ctx) == nil {
					t.Error("the task is not told")
				}
				return nil
			})(t.Context())
			if !errors.Is(err, fencing.ErrLost) {
				t.Errorf("got %v", err)
			}
			time.Sleep(time.Minute)
			if err := e.IsLeader(t.Context()); err != nil {
				t.Errorf("it does not lead again: %v", err)
			}
			_ = stop()
		})
	}
}

func TestGocronWithoutClaims(t *testing.T) {
	l := lockerOf(without, sec)
	err, uerr := runLocked(t.Context(), l, "job", l.Task("job", func(context.Context) error { return nil }))
	if err != nil || uerr != nil {
		t.Errorf("%v, %v", err, uerr)
	}
	e := jobs.NewElector(without, "leader", middleware.SingletonConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.IsLeader(ctx); err != nil {
		t.Error(err)
	}
	if err := e.Task(func(context.Context) error { return nil })(ctx); err != nil {
		t.Error(err)
	}
	if err := e.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "jobs: ") {
			t.Errorf("panic %q", text)
		}
	}()
	jobs.NewLocker[other](without, etcdclaims.MinHold(sec))
}

// Without a client no job runs: the error of New was ignored.
func TestGocronWithoutClient(t *testing.T) {
	for _, c := range []*etcdclaims.Client{nil, {}} {
		if _, err := lockerOf(c, sec).Lock(t.Context(), "job"); !errors.Is(err, etcdclaims.ErrNoClient) {
			t.Errorf("Lock: %v", err)
		}
		e := jobs.NewElector(c, "leader", middleware.SingletonConfig{})
		if err := e.Run(t.Context()); !errors.Is(err, etcdclaims.ErrNoClient) {
			t.Errorf("Run: %v", err)
		}
		if err := e.IsLeader(t.Context()); !errors.Is(err, jobs.ErrNotLeader) {
			t.Errorf("IsLeader: %v", err)
		}
		if _, err := jobs.NewTicks(c, testwork.Of(c), "job", jobs.Schedule(delay(sec)), jobs.TicksConfig{}); !errors.Is(err, etcdclaims.ErrNoClient) {
			t.Errorf("NewTicks: %v", err)
		}
	}
}

type other struct{}

func (other) Unlock(context.Context) error { return nil }
