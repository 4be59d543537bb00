package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/jobs"
)

// What the libraries have, as far as it matters.
type (
	task    struct{ key string }
	handler interface {
		ProcessTask(ctx context.Context, t *task) error
	}
	row     struct{ key string }
	message struct {
		key string
		ctx context.Context
	}
	handlerFunc          func(msg *message) ([]*message, error)
	noPublishHandlerFunc func(msg *message) error
)

func (m *message) Context() context.Context       { return m.ctx }
func (m *message) SetContext(ctx context.Context) { m.ctx = ctx }

type taskFunc func(ctx context.Context, t *task) error

func (f taskFunc) ProcessTask(ctx context.Context, t *task) error { return f(ctx, t) }

// A queue runs a function as its job, through the middleware.
type queue func(c *etcdclaims.Client, cfg jobs.Config, key string, fn func(ctx context.Context) error, opts ...etcdclaims.AcquireOption) func(ctx context.Context) error

var queues = map[string]queue{
	"asynq": func(c *etcdclaims.Client, cfg jobs.Config, key string, fn func(ctx context.Context) error, opts ...etcdclaims.AcquireOption) func(ctx context.Context) error {
		h := jobs.Asynq[handler](c, func(t *task) string { return t.key }, cfg, opts...)(taskFunc(func(ctx context.Context, _ *task) error { return fn(ctx) }))
		return func(ctx context.Context) error { return h.ProcessTask(ctx, &task{key}) }
	},
	"River": func(c *etcdclaims.Client, cfg jobs.Config, key string, fn func(ctx context.Context) error, opts ...etcdclaims.AcquireOption) func(ctx context.Context) error {
		m := jobs.River(c, func(r *row) string { return r.key }, cfg, opts...)
		return func(ctx context.Context) error { return m.Work(ctx, &row{key}, fn) }
	},
	"watermill": func(c *etcdclaims.Client, cfg jobs.Config, key string, fn func(ctx context.Context) error, opts ...etcdclaims.AcquireOption) func(ctx context.Context) error {
		h := jobs.Watermill[handlerFunc](c, func(m *message) string { return m.key }, cfg, opts...)(func(m *message) ([]*message, error) {
			return []*message{m}, fn(m.ctx)
		})
		return func(ctx context.Context) error {
			m := &message{key, ctx}
			out, err := h(m)
			if len(out) > 0 && errors.Is(err, fencing.ErrLost) {
				return errors.New("messages of a handler whose claim was lost")
			}
			return err
		}
	},
	"watermill, nothing published": func(c *etcdclaims.Client, cfg jobs.Config, key string, fn func(ctx context.Context) error, opts ...etcdclaims.AcquireOption) func(ctx context.Context) error {
		h := jobs.WatermillNoPublish[noPublishHandlerFunc](c, func(m *message) string { return m.key }, cfg, opts...)(func(m *message) error { return fn(m.ctx) })
		return func(ctx context.Context) error { return h(&message{key, ctx}) }
	},
}

// inQueues runs a subtest for each queue.
func inQueues(t *testing.T, f func(t *testing.T, w *world, q queue)) {
	t.Helper()
	for name, q := range queues {
		inWorld(t, name, func(t *testing.T, w *world) { f(t, w, q) })
	}
}

func TestQueueRuns(t *testing.T) {
	t.Parallel()
	inQueues(t, func(t *testing.T, w *world, q queue) {
		own := errors.New("own")
		for _, want := range []error{nil, own} {
			err := q(w.Claims, jobs.Config{}, "k", func(ctx context.Context) error {
				token, _ := fencing.FromContext(ctx)
				if info, err := w.Other.Lookup(ctx, "k"); err != nil || !info.Held || info.Fence != token.Fence || token.Key != "k" {
					t.Errorf("%v, %+v, %v", token, info, err)
				}
				if err := fencing.Check(ctx); err != nil {
					t.Error(err)
				}
				return want
			})(t.Context())
			if err != want { //nolint:errorlint // as it is
				t.Errorf("got %v, want %v", err, want)
			}
			if jobs.IsFailure(err) != (want != nil) {
				t.Errorf("IsFailure(%v)", err)
			}
			w.Free(t, "k")
		}
	})
}

// A job that was not run is told as such, and never as a failure.
func TestQueueNotRun(t *testing.T) {
	t.Parallel()
	inQueues(t, func(t *testing.T, w *world, q queue) {
		snooze := errors.New("later")
		never := func(context.Context) error { panic("it runs") }
		claim := hold(t, w, "k")
		check := func(err error, is ...error) {
			t.Helper()
			var notRun *middleware.NotRunError
			if !errors.As(err, &notRun) || jobs.IsFailure(err) {
				t.Errorf("got %v, failure: %v", err, jobs.IsFailure(err))
			}
			for _, target := range is {
				if !errors.Is(err, target) {
					t.Errorf("%v is no %v", err, target)
				}
			}
		}
		later := jobs.Config{NotRun: func(err error) error {
			var notRun *middleware.NotRunError
			if !errors.As(err, &notRun) || notRun.Key != "k" {
				t.Errorf("told %v", err)
			}
			return snooze
		}}
		check(q(w.Claims, jobs.Config{}, "k", never)(t.Context()), fencing.ErrHeld)
		err := q(w.Claims, later, "k", never)(t.Context())
		check(err, fencing.ErrHeld, snooze)
		if !strings.HasPrefix(err.Error(), "later (middleware: not run") {
			t.Error(err)
		}
		if err := q(w.Claims, jobs.Config{NotRun: func(error) error { return nil }}, "k", never)(t.Context()); err != nil {
			t.Errorf("dropped: %v", err)
		}
		same := q(w.Claims, jobs.Config{NotRun: func(err error) error { return err }}, "k", never)(t.Context())
		if check(same); strings.Count(same.Error(), "not run") != 1 {
			t.Error(same)
		}
		began := time.Now()
		check(q(w.Claims, jobs.Config{Wait: 3 * sec}, "k", never)(t.Context()), fencing.ErrHeld)
		if took := time.Since(began); took < 3*sec || took > 4*sec {
			t.Errorf("waited for %v", took)
		}

		// The last attempt waits for as long as it may.
		time.AfterFunc(time.Minute, func() { _ = claim.Release(context.Background()) })
		ran := false
		cfg := later
		cfg.LastAttempt = func(context.Context) bool { return true }
		err = q(w.Claims, cfg, "k", func(context.Context) error { ran = true; return nil })(t.Context())
		if err != nil || !ran || time.Since(began) < time.Minute {
			t.Errorf("last attempt: %v, %v", ran, err)
		}

		w.Host.Cut()
		check(q(w.Claims, later, "k", never)(t.Context()), snooze)
		ended, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("stop")
		cancel(stop)
		check(q(w.Claims, jobs.Config{Wait: -1}, "k", never)(ended), stop, context.Canceled)
		w.Host.Heal()

		// A key that is none fails, for it will be none later, too.
		err = q(w.Claims, later, "", never)(t.Context())
		if !errors.Is(err, middleware.ErrInvalidKey) || errors.Is(err, snooze) || !jobs.IsFailure(err) {
			t.Errorf("no key: %v", err)
		}
	})
}

// What a job says to its queue is not heard if its claim was lost.
func TestQueueLost(t *testing.T) {
	t.Parallel()
	own := errors.New("own: skip retry")
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			inQueues(t, func(t *testing.T, w *world, q queue) {
				for key, returned := range map[string]error{"k": nil, "l": own} {
					err := q(w.Claims, jobs.Config{NotRun: func(error) error { t.Error("told as not run"); return nil }}, key, func(ctx context.Context) error {
						lose(t, w, key)
						if ctx.Err() == nil || fencing.Check(ctx) == nil {
							t.Error("the job is not told")
						}
						return returned
					})(t.Context())
					var lost *etcdclaims.LostError
					if !errors.Is(err, fencing.ErrLost) || !errors.As(err, &lost) || errors.Is(err, own) || !jobs.IsFailure(err) || errors.Is(err, context.Canceled) {
						t.Fatalf("got %v", err)
					}
					if returned != nil && !strings.HasSuffix(err.Error(), "; the job returned: own: skip retry") {
						t.Error(err)
					}
				}
			})
		})
	}
}

// A claim that is lost before the job is begun, or as it ends, is no success.
func TestQueueLostAtTheEdges(t *testing.T) {
	t.Parallel()
	inQueues(t, func(t *testing.T, w *world, q queue) {
		// Deleted as the job returns: found by the release itself.
		err := q(w.Claims, jobs.Config{}, "k", func(context.Context) error {
			w.Server.Delete(t, "/etcdclaims/own/k")
			return nil
		})(t.Context())
		if !errors.Is(err, fencing.ErrLost) {
			t.Errorf("lost at the end: %v", err)
		}
	})
}

// The queue's own cancellation stays what it is: on top, and known as such.
func TestQueueCancels(t *testing.T) {
	t.Parallel()
	inQueues(t, func(t *testing.T, w *world, q queue) {
		stop := errors.New("cancelled remotely")
		ctx, cancel := context.WithCancelCause(t.Context())
		err := q(w.Claims, jobs.Config{}, "k", func(ctx context.Context) error {
			cancel(stop)
			<-ctx.Done()
			if cause := context.Cause(ctx); cause != stop { //nolint:errorlint // the very one
				t.Errorf("cause %v", cause)
			}
			return ctx.Err()
		})(ctx)
		if err != context.Canceled { //nolint:errorlint // as it is
			t.Errorf("got %v", err)
		}
		w.Free(t, "k")

		// A job that ignores it is a zombie: the key stays held, and passes it.
		ctx, cancel = context.WithCancelCause(t.Context())
		err = q(w.Claims, jobs.Config{}, "k", func(ctx context.Context) error {
			token, _ := fencing.FromContext(ctx)
			cancel(stop)
			time.Sleep(10 * sec)
			if info, err := w.Other.Lookup(context.Background(), "k"); err != nil || info.Fence <= token.Fence {
				t.Errorf("%+v, %v", info, err)
			}
			return nil
		})(ctx)
		if !errors.Is(err, fencing.ErrLost) || !errors.Is(err, context.Canceled) {
			t.Errorf("ignored: %v", err)
		}
	})
}

func TestQueueLeft(t *testing.T) {
	t.Parallel()
	for name, leave := range leaving {
		t.Run(name, func(t *testing.T) {
			inQueues(t, func(t *testing.T, w *world, q queue) {
				p := left(func() {
					_ = q(w.Claims, jobs.Config{}, "k", func(context.Context) error { leave(); return nil })(context.Background())
				})
				if name == "panic" && p != "own" {
					t.Errorf("panic %v", p)
				}
				w.Free(t, "k")
			})
		})
	}
}

// A job may itself try what is not run: that is its own affair.
func TestQueueNested(t *testing.T) {
	t.Parallel()
	inQueues(t, func(t *testing.T, w *world, q queue) {
		hold(t, w, "inner")
		inner := middleware.Func(w.Claims, func(string) string { return "inner" }, func(context.Context, string) (int, error) { return 0, nil }, middleware.FuncConfig{})
		err := q(w.Claims, jobs.Config{NotRun: func(error) error { return nil }}, "k", func(ctx context.Context) error {
			_, err := inner(ctx, "")
			return errors.Join(errors.New("own"), err)
		})(t.Context())
		if !errors.Is(err, fencing.ErrHeld) || !jobs.IsFailure(err) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWatermillContext(t *testing.T) {
	t.Parallel()
	for name, leave := range leaving {
		inWorld(t, name, func(t *testing.T, w *world) {
			m := &message{"k", t.Context()}
			handle := func(leave func()) func(m *message) error {
				return func(m *message) error {
					if _, ok := fencing.FromContext(m.ctx); !ok {
						t.Error("no token")
					}
					m.SetContext(context.Background()) // as a middleware within might
					leave()
					return nil
				}
			}
			wrap := jobs.WatermillNoPublish[noPublishHandlerFunc](w.Claims, func(m *message) string { return m.key }, jobs.Config{})
			if err := wrap(handle(func() {}))(m); err != nil || m.ctx != t.Context() {
				t.Errorf("%v, %v", err, m.ctx)
			}
			left(func() { _ = wrap(handle(leave))(m) })
			if m.ctx != t.Context() {
				t.Error("the message keeps the context of a claim")
			}
		})
	}
}

func TestQueueWithoutClaims(t *testing.T) {
	for name, q := range queues {
		own := errors.New("own")
		if err := q(without, jobs.Config{}, "", func(context.Context) error { return own })(t.Context()); err != own { //nolint:errorlint // as it is
			t.Errorf("%s: %v", name, err)
		}
		for _, c := range []*etcdclaims.Client{nil, {}} {
			err := q(c, jobs.Config{}, "k", func(context.Context) error { t.Error("it ran"); return nil })(t.Context())
			if !errors.Is(err, etcdclaims.ErrNoClient) || jobs.IsFailure(err) {
				t.Errorf("%s without a client: %v", name, err)
			}
		}
	}
	h := taskFunc(func(context.Context, *task) error { return nil })
	wrap := jobs.Asynq[handler](without, func(*task) string { return "" }, jobs.Config{})
	m := &message{"", t.Context()}
	plain := handlerFunc(func(*message) ([]*message, error) { return nil, nil })
	wm := jobs.Watermill[handlerFunc](without, func(*message) string { return "" }, jobs.Config{})(plain)
	if allocs := testing.AllocsPerRun(100, func() {
		_ = wrap(h).ProcessTask(t.Context(), nil)
		_, _ = wm(m)
	}); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestQueueWiring(t *testing.T) {
	panics := func(name string, f func()) {
		t.Helper()
		defer func() {
			if text, _ := recover().(string); !strings.HasPrefix(text, "jobs: ") {
				t.Errorf("%s: panic %q", name, text)
			}
		}()
		f()
	}
	panics("asynq, no key", func() { jobs.Asynq[handler, *task](without, nil, jobs.Config{}) })
	panics("asynq, no interface", func() { jobs.Asynq[taskFunc](without, func(*task) string { return "" }, jobs.Config{}) })
	panics("River, no key", func() { jobs.River[*row](without, nil, jobs.Config{}) })
	panics("watermill, no key", func() { jobs.Watermill[handlerFunc](without, nil, jobs.Config{}) })
	panics("watermill, no key", func() { jobs.WatermillNoPublish[noPublishHandlerFunc](without, nil, jobs.Config{}) })
}
