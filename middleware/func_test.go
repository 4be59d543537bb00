package middleware_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
)

var nilClient *etcdclaims.Client

func own(s string) string { return s }

func double(_ context.Context, s string) (int, error) { return 2 * len(s), nil }

func TestFunc(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		broken := errors.New("broken")
		f := middleware.Func(w.claims, own, func(ctx context.Context, in string) (int, error) {
			if token, _ := fencing.FromContext(ctx); token.Key != in || token.Fence == 0 {
				t.Errorf("token %v", token)
			}
			if in == "broken" {
				return 7, broken
			}
			return double(ctx, in)
		}, middleware.FuncConfig{}, etcdclaims.TTL(time.Minute))
		if out, err := f(t.Context(), "four"); out != 8 || err != nil {
			t.Errorf("got %d, %v", out, err)
		}
		if out, err := f(t.Context(), "broken"); out != 7 || err != broken { //nolint:errorlint // as it is
			t.Errorf("got %d, %v", out, err)
		}
		w.free(t, "broken")
	})
	inWorld(t, "held", func(t *testing.T, w *world) {
		never := func(context.Context, string) (int, error) { panic("it runs") }
		if _, err := w.other.TryAcquire(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		var notRun *middleware.NotRunError
		var held *etcdclaims.HeldError
		for _, cfg := range []middleware.FuncConfig{{}, {Wait: 3 * sec}, {Skip: true}, {Wait: 3 * sec, Skip: true}} {
			began := time.Now()
			out, err := middleware.Func(w.claims, own, never, cfg)(t.Context(), "k")
			if took := time.Since(began); took < cfg.Wait || took > cfg.Wait+sec || out != 0 {
				t.Errorf("%+v: %d after %v", cfg, out, took)
			}
			if cfg.Skip {
				if err != nil {
					t.Errorf("skipped: %v", err)
				}
				continue
			}
			if !errors.As(err, &notRun) || notRun.Key != "k" || !errors.As(err, &held) || !errors.Is(err, fencing.ErrHeld) {
				t.Errorf("%+v: %v", cfg, err)
			}
			if r, ok := middleware.RefusalOf(err); !ok || r.Reason != "HELD" {
				t.Errorf("%+v: refusal %+v", cfg, r)
			}
		}
		// Only what another does is skipped.
		w.host.Cut()
		for _, cfg := range []middleware.FuncConfig{{Skip: true}, {Wait: 3 * sec, Skip: true}, {Wait: -1, Skip: true}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := middleware.Func(w.claims, own, never, cfg)(ctx, "l")
			cancel()
			if !errors.As(err, &notRun) {
				t.Errorf("%+v, cut off: %v", cfg, err)
			}
			if r, ok := middleware.RefusalOf(err); !ok || r.Reason != "UNAVAILABLE" || r.Status != 503 || r.Code != 14 {
				t.Errorf("%+v, cut off: refusal %+v of %v", cfg, r, err)
			}
		}
		if _, err := middleware.Func(w.claims, own, never, middleware.FuncConfig{Skip: true})(t.Context(), ""); !errors.Is(err, middleware.ErrInvalidKey) {
			t.Errorf("no key: %v", err)
		}
	})
	inWorld(t, "waits", func(t *testing.T, w *world) {
		claim, err := w.other.TryAcquire(t.Context(), "four")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(3*sec, func() { _ = claim.Release(context.Background()) })
		began := time.Now()
		for _, wait := range []time.Duration{10 * sec, -1} {
			out, err := middleware.Func(w.claims, own, double, middleware.FuncConfig{Wait: wait})(t.Context(), "four")
			if out != 8 || err != nil || time.Since(began) > 4*sec {
				t.Errorf("got %d, %v after %v", out, err, time.Since(began))
			}
		}
	})
}

// A wait that ends takes nothing away from a function that was begun.
func TestFuncOutlastsItsWait(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		claim, err := w.other.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(sec, func() { _ = claim.Release(context.Background()) })
		f := middleware.Func(w.claims, own, func(ctx context.Context, _ string) (int, error) {
			time.Sleep(time.Minute)
			return 1, ctx.Err()
		}, middleware.FuncConfig{Wait: 3 * sec})
		if out, err := f(t.Context(), "k"); out != 1 || err != nil {
			t.Errorf("got %d, %v", out, err)
		}
	})
}

// The outcome of a function whose claim was lost is no success.
func TestFuncLost(t *testing.T) {
	t.Parallel()
	for name, lose := range losses {
		inWorld(t, name, func(t *testing.T, w *world) {
			var opts []etcdclaims.AcquireOption
			if name == "max hold" {
				opts = append(opts, etcdclaims.MaxHold(20*sec))
			}
			f := middleware.Func(w.claims, own, func(context.Context, string) (int, error) {
				lose(t, w)
				time.Sleep(2 * sec) // a machine that woke finds out within a second
				return 1, nil
			}, middleware.FuncConfig{Skip: true}, opts...)
			out, err := f(t.Context(), "k")
			var notRun *middleware.NotRunError
			if out != 1 || !errors.Is(err, fencing.ErrLost) || errors.As(err, &notRun) {
				t.Errorf("got %d, %v, want ErrLost", out, err)
			}
			if r, ok := middleware.RefusalOf(err); !ok || r.Reason != "CLAIM_LOST" {
				t.Errorf("refusal %+v", r)
			}
		})
	}
}

func TestFuncPanics(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(){"panic": func() { panic("own") }, "Goexit": runtime.Goexit} {
		inWorld(t, name, func(t *testing.T, w *world) {
			left := make(chan any)
			go func() {
				defer func() { left <- recover() }()
				_, _ = middleware.Func(w.claims, own, func(context.Context, string) (int, error) { leave(); return 0, nil }, middleware.FuncConfig{})(context.Background(), "k")
			}()
			if p := <-left; name == "panic" && p != "own" {
				t.Errorf("panic %v", p)
			}
			w.free(t, "k")
		})
	}
}
