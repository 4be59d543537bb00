package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A call whose context had ended says that it was not attempted. It sends nothing, and does
// not blame etcd.
func TestEndedContextIsNotAttempted(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c := w.peer()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for name, call := range map[string]func() error{
			"TryAcquire": func() error { _, err := c.TryAcquire(ctx, "a"); return err },
			"Acquire":    func() error { _, err := c.Acquire(ctx, "a"); return err },
			"Run": func() error {
				return c.Run(ctx, "a", func(context.Context) error { t.Error("called"); return nil })
			},
			"TryBegin": func() error { _, err := works(c).TryBegin(ctx, "a"); return err },
			"Runner.Run": func() error {
				return works(c).Run(ctx, "a", func(context.Context, *work.Work) error { t.Error("called"); return nil })
			},
			"Lookup": func() error { _, err := c.Lookup(ctx, "a"); return err },
		} {
			before := c.Stats().Requests
			err := call()
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `"a": not attempted: context canceled`) {
				t.Errorf("%s: %v", name, err)
			}
			if n := c.Stats().Requests - before; n != 0 {
				t.Errorf("%s: %d requests", name, n)
			}
		}
		// Nor does one that leaves while etcd does not answer.
		_, host := w.client(etcdclaims.Config{})
		d := claimtest.NewClient(t, host, etcdclaims.Config{})
		host.Cut()
		ctx, cancel = context.WithCancel(context.Background())
		time.AfterFunc(sec, cancel)
		_, err := d.Acquire(ctx, "a")
		if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "etcd") {
			t.Errorf("Acquire: %v", err)
		}
		host.Heal()
	})
}

// A release under a context that has ended frees the key, and returns nothing else. While etcd
// does not answer it ends soon, and does not know.
func TestReleaseUnderAnEndedContext(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c, host := w.client(etcdclaims.Config{})
		other := w.peer()
		for name, release := range map[string]func(key string) error{
			"Claim":   func(key string) error { return tryClaim(t, c, key).Release(ctx) },
			"MinHold": func(key string) error { return tryClaim(t, c, key, etcdclaims.MinHold(sec)).Release(ctx) },
			"Shared":  func(key string) error { return tryClaim(t, c, key, etcdclaims.Shared()).Release(ctx) },
			"Work": func(key string) error {
				wk, err := works(c).TryBegin(context.Background(), key)
				noErr(t, err)
				return wk.Release(ctx)
			},
			"ReleaseAll": func(key string) error {
				tryClaim(t, c, key)
				n, err := c.ReleaseAll(ctx)
				if n == 0 {
					t.Error("nothing was released")
				}
				return err
			},
		} {
			if err := release(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if name == "MinHold" {
				time.Sleep(10 * sec)
			}
			noErr(t, tryClaim(t, other, name).Release(context.Background()))
		}
		cl := tryClaim(t, c, "away")
		host.Cut()
		began := time.Now()
		err := cl.Release(ctx)
		wantIs(t, err, etcdclaims.ErrUnknown)
		if took := time.Since(began); took > 5*sec {
			t.Errorf("it took %v", took)
		}
		host.Heal()
	})
}

// Work that is ended again says how it has ended.
func TestEndedWorkSaysHow(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c := w.peer()
		ctx := context.Background()
		for i, end := range []struct {
			first func(w *work.Work) error
			is    error
			says  string
		}{
			{func(w *work.Work) error { return w.Complete(ctx) }, work.ErrDone, "completed already, in attempt 1"},
			{func(w *work.Work) error { _, err := w.Fail(ctx, errors.New("no disk")); return err }, work.ErrBackoff, "failed already, in attempt 1: no disk"},
			{func(w *work.Work) error {
				_, err := w.Fail(ctx, etcdclaims.Permanent(errors.New("no disk")))
				return err
			}, work.ErrDead, "failed already, in attempt 1: no disk"},
			{func(w *work.Work) error { return w.Release(ctx) }, etcdclaims.ErrReleased, "given back already"},
		} {
			err := works(c).TryRun(ctx, fmt.Sprint(i), func(ctx context.Context, wk *work.Work) error {
				noErr(t, end.first(wk))
				noErr(t, wk.Release(ctx))
				if _, err := wk.Fail(ctx, errors.New("again")); !errors.Is(err, end.is) {
					t.Errorf("Fail: %v", err)
				}
				return wk.Complete(ctx, clientv3.OpPut("/effect", "x"))
			})
			wantIs(t, err, end.is)
			wantIs(t, err, etcdclaims.ErrReleased)
			var known *work.Error
			if found := errors.As(err, &known); found == errors.Is(end.is, etcdclaims.ErrReleased) || !strings.HasSuffix(err.Error(), `": `+end.says) {
				t.Errorf("%v; a *WorkError: %v", err, found)
			}
		}
	})
}

// The error of a call to a wrong endpoint names the endpoint, why there is no connection, and
// what to check.
func TestWrongEndpoint(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{})
		host.Kill()
		for name, call := range map[string]func(ctx context.Context) error{
			"TryAcquire": func(ctx context.Context) error { _, err := c.TryAcquire(ctx, "a"); return err },
			"Runner.TryRun": func(ctx context.Context) error {
				return works(c).TryRun(ctx, "a", func(context.Context, *work.Work) error { return nil })
			},
			"Lookup":  func(ctx context.Context) error { _, err := c.Lookup(ctx, "a"); return err },
			"Acquire": func(ctx context.Context) error { _, err := c.Acquire(ctx, "a"); return err },
			"Begin":   func(ctx context.Context) error { _, err := works(c).Begin(ctx, "a"); return err },
		} {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			err := call(ctx)
			cancel()
			for _, part := range []string{`"a"`, "127.0.0.1:2379", "connection refused", "check the endpoints"} {
				if err == nil || strings.Count(err.Error(), part) != 1 {
					t.Errorf("%s does not say %q once: %v", name, part, err)
				}
			}
		}
		host.Heal()
	})
}
