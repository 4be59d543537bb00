package middleware_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
)

// without is a client without etcd.
var without = func() *etcdclaims.Client {
	c, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
	if err != nil {
		panic(err)
	}
	return c
}()

func own(s string) string { return s }

func double(_ context.Context, s string) (int, error) { return 2 * len(s), nil }

func TestFunc(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		broken := errors.New("broken")
		f := middleware.Func(w.Claims, own, func(ctx context.Context, in string) (int, error) {
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
		w.Free(t, "broken")
	})
	inWorld(t, "held", func(t *testing.T, w *world) {
		never := func(context.Context, string) (int, error) { panic("it runs") }
		if _, err := w.Other.TryAcquire(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		var notRun *middleware.NotRunError
		var held *etcdclaims.HeldError
		for _, cfg := range []middleware.FuncConfig{{}, {Wait: 3 * sec}, {Skip: true}, {Wait: 3 * sec, Skip: true}} {
			began := time.Now()
			out, err := middleware.Func(w.Claims, own, never, cfg)(t.Context(), "k")
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
		w.Host.Cut()
		for _, cfg := range []middleware.FuncConfig{{Skip: true}, {Wait: 3 * sec, Skip: true}, {Wait: -1, Skip: true}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := middleware.Func(w.Claims, own, never, cfg)(ctx, "l")
			cancel()
			if !errors.As(err, &notRun) {
				t.Errorf("%+v, cut off: %v", cfg, err)
			}
			if r, ok := middleware.RefusalOf(err); !ok || r.Reason != "UNAVAILABLE" || r.Status != 503 || r.Code != 14 {
				t.Errorf("%+v, cut off: refusal %+v of %v", cfg, r, err)
			}
		}
		if _, err := middleware.Func(w.Claims, own, never, middleware.FuncConfig{Skip: true})(t.Context(), ""); !errors.Is(err, middleware.ErrInvalidKey) {
			t.Errorf("no key: %v", err)
		}
	})
	inWorld(t, "waits", func(t *testing.T, w *world) {
		claim, err := w.Other.TryAcquire(t.Context(), "four")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(3*sec, func() { _ = claim.Release(context.Background()) })
		began := time.Now()
		for _, wait := range []time.Duration{10 * sec, -1} {
			out, err := middleware.Func(w.Claims, own, double, middleware.FuncConfig{Wait: wait})(t.Context(), "four")
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
		claim, err := w.Other.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(sec, func() { _ = claim.Release(context.Background()) })
		f := middleware.Func(w.Claims, own, func(ctx context.Context, _ string) (int, error) {
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
	for name, lose := range testclaims.Losses {
		inWorld(t, name, func(t *testing.T, w *world) {
			var opts []etcdclaims.AcquireOption
			if name == "max hold" {
				opts = append(opts, etcdclaims.MaxHold(20*sec))
			}
			f := middleware.Func(w.Claims, own, func(context.Context, string) (int, error) {
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
				_, _ = middleware.Func(w.Claims, own, func(context.Context, string) (int, error) { leave(); return 0, nil }, middleware.FuncConfig{})(context.Background(), "k")
			}()
			if p := <-left; name == "panic" && p != "own" {
				t.Errorf("panic %v", p)
			}
			w.Free(t, "k")
		})
	}
}

// coded is an error that cannot be printed if it is nil.
type coded struct{ code string }

func (c *coded) Error() string { return c.code }

func TestFuncOnce(t *testing.T) {
	t.Parallel()
	type receipt struct{ Number int }
	inWorld(t, "OK", func(t *testing.T, w *world) {
		n := 0
		pay := func(_ context.Context, in string) (receipt, error) {
			n++
			if in == "fails" {
				return receipt{}, errors.New("own")
			}
			return receipt{n}, nil
		}
		here := middleware.FuncOnce(testwork.Of(w.Claims), own, pay, middleware.FuncConfig{})
		there := middleware.FuncOnce(testwork.Of(w.Other), own, pay, middleware.FuncConfig{})
		skips := middleware.FuncOnce(testwork.Of(w.Other), own, pay, middleware.FuncConfig{Skip: true})
		if r, err := here(t.Context(), "a"); r.Number != 1 || err != nil {
			t.Errorf("got %+v, %v", r, err)
		}
		if r, err := there(t.Context(), "a"); r.Number != 1 || !errors.Is(err, middleware.ErrDone) {
			t.Errorf("got %+v, %v", r, err)
		}
		if r, err := skips(t.Context(), "a"); r.Number != 1 || err != nil {
			t.Errorf("got %+v, %v", r, err)
		}
		var notRun *middleware.NotRunError
		if _, err := here(t.Context(), "fails"); err == nil || err.Error() != "own" {
			t.Errorf("got %v", err)
		}
		_, err := skips(t.Context(), "fails")
		if !errors.As(err, &notRun) || !errors.Is(err, work.ErrBackoff) {
			t.Errorf("at once: %v", err)
		}
		if r, ok := middleware.RefusalOf(err); !ok || r.Reason != "UNAVAILABLE" {
			t.Errorf("refusal %+v", r)
		}
		claim, err := w.Other.TryAcquire(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := here(t.Context(), "b"); !errors.Is(err, fencing.ErrHeld) {
			t.Errorf("held: %v", err)
		}
		time.AfterFunc(sec, func() { _ = claim.Release(context.Background()) })
		if r, err := middleware.FuncOnce(testwork.Of(w.Claims), own, pay, middleware.FuncConfig{Wait: 5 * sec})(t.Context(), "b"); r.Number != 3 || err != nil {
			t.Errorf("after a wait: %+v, %v", r, err)
		}
	})
	inWorld(t, "not kept", func(t *testing.T, w *world) {
		for key, out := range map[string]any{"no JSON": func() {}, "long": string(make([]byte, 64<<10))} {
			f := middleware.FuncOnce(testwork.Of(w.Claims), own, func(context.Context, string) (any, error) { return out, nil }, middleware.FuncConfig{Skip: true})
			if got, err := f(t.Context(), key); got == nil || err != nil {
				t.Errorf("%s: %v, %v", key, got, err)
			}
			if got, err := f(t.Context(), key); got != nil || !errors.Is(err, middleware.ErrDone) {
				t.Errorf("%s, again: %v, %v", key, got, err)
			}
		}
	})
	inWorld(t, "not UTF-8", func(t *testing.T, w *world) {
		for key, c := range map[string]struct {
			out  string
			kept bool
		}{"Latin-1": {"caf\xe9", false}, "replaced before": {"caf\uFFFD", true}, "escaped": {`caf\ufffd`, true}} {
			f := middleware.FuncOnce(testwork.Of(w.Claims), own, func(context.Context, string) (string, error) { return c.out, nil }, middleware.FuncConfig{})
			if got, err := f(t.Context(), key); got != c.out || err != nil {
				t.Errorf("%s: %q, %v", key, got, err)
			}
			if got, err := f(t.Context(), key); (got == c.out) != c.kept || !c.kept && got != "" || !errors.Is(err, middleware.ErrDone) {
				t.Errorf("%s, again: %q, %v", key, got, err)
			}
		}
	})
	inWorld(t, "no text", func(t *testing.T, w *world) {
		var none *coded
		f := middleware.FuncOnce(testwork.Of(w.Claims), own, func(context.Context, string) (int, error) { return 0, none }, middleware.FuncConfig{})
		if _, err := f(t.Context(), "k"); err == nil {
			t.Error("no error")
		}
		w.Free(t, "k")
	})
	inWorld(t, "lost", func(t *testing.T, w *world) {
		f := middleware.FuncOnce(testwork.Of(w.Claims), own, func(context.Context, string) (int, error) { w.Revoke(t, "k"); return 1, nil }, middleware.FuncConfig{})
		if out, err := f(t.Context(), "k"); out != 1 || !errors.Is(err, fencing.ErrLost) {
			t.Errorf("got %d, %v", out, err)
		}
		g := middleware.FuncOnce(testwork.Of(w.Other), own, double, middleware.FuncConfig{})
		if out, err := g(t.Context(), "k"); out != 2 || err != nil {
			t.Errorf("the next: %d, %v", out, err)
		}
	})
}

// A wait that ends as the key comes costs work no attempt.
func TestFuncOnceLate(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		claim, err := w.Other.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(sec, func() { _ = claim.Release(context.Background()) })
		_, err = middleware.FuncOnce(testwork.Of(w.Claims), own, double, middleware.FuncConfig{Wait: sec})(t.Context(), "k")
		if err != nil && !errors.Is(err, fencing.ErrHeld) {
			t.Errorf("got %v", err)
		}
		time.Sleep(sec)
		if r, ok, rerr := testwork.Of(w.Other).Record(t.Context(), "k"); rerr != nil || ok && (r.State != work.StateDone || err != nil) {
			t.Errorf("record %+v, %v; call: %v", r, rerr, err)
		}
	})
}
