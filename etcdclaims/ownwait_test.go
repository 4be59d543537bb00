package etcdclaims_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"go.uber.org/zap/zaptest/observer"
)

const ownWaitLine = "handler waits for a claim of its own client; it may wait for itself"

// ownWaits takes the lines about such handlers from a log.
func ownWaits(logs outageLog) []observer.LoggedEntry {
	defer logs.TakeAll()
	return logs.FilterMessage(ownWaitLine).All()
}

// isHere reports whether fields of a line name this file.
func isHere(line observer.LoggedEntry, fields ...string) bool {
	for _, f := range fields {
		at, _ := line.ContextMap()[f].(string)
		if file, n, _ := strings.Cut(at, ".go:"); filepath.Base(file) != "ownwait_test" || n == "" || n == "0" {
			return false
		}
	}
	return true
}

// A handler that waits for its own client, for its own key or in a circle, is a line of the log,
// with both keys and where both were acquired.
func TestOwnWaitIsLogged(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		log, logs := logged()
		c, _ := w.client(etcdclaims.Config{Logger: log})
		never := func(context.Context) error { t.Error("it ran"); return nil }
		nested := map[string]func(ctx context.Context, key string) error{
			"Run": func(ctx context.Context, key string) error { return c.Run(ctx, key, never) },
			"Acquire": func(ctx context.Context, key string) error {
				_, err := c.Acquire(ctx, key, etcdclaims.MaxHold(time.Hour))
				return err
			},
			"Runner.Run": func(ctx context.Context, key string) error {
				return works(c).Run(ctx, key, func(ctx context.Context, _ *work.Work) error { return never(ctx) })
			},
			"Slots": func(ctx context.Context, key string) error { return c.Run(ctx, key, never, etcdclaims.Slots(1)) },
		}
		for name, inner := range nested {
			ctx, cancel := context.WithTimeout(context.Background(), 30*sec)
			var opts []etcdclaims.AcquireOption
			if name == "Slots" {
				opts = append(opts, etcdclaims.Slots(1))
			}
			began := time.Now()
			_ = c.Run(ctx, name, func(ctx context.Context) error { return inner(ctx, name) }, opts...)
			cancel()
			lines := ownWaits(logs)
			if len(lines) != 1 {
				t.Fatalf("%s: %d lines", name, len(lines))
			}
			if f := lines[0].ContextMap(); f["key"] != name || !strings.HasPrefix(f["holds"].(string), name) || !isHere(lines[0], "acquired", "caller", "holdsFrom") || lines[0].Time.Sub(began) > 6*sec {
				t.Errorf("%s: %v", name, f)
			}
		}

		ctx, cancel := context.WithTimeout(context.Background(), 30*sec)
		defer cancel()
		var wg sync.WaitGroup
		for _, p := range [][2]string{{"p", "q"}, {"q", "p"}} {
			wg.Go(func() {
				_ = c.Run(ctx, p[0], func(ctx context.Context) error {
					time.Sleep(sec)
					return c.Run(ctx, p[1], never)
				})
			})
		}
		wg.Wait()
		lines := ownWaits(logs)
		if len(lines) != 2 {
			t.Fatalf("%d lines", len(lines))
		}
		for _, line := range lines {
			f := line.ContextMap()
			if both := f["key"].(string) + f["holds"].(string); both != "pq" && both != "qp" || !isHere(line, "acquired", "caller", "holdsFrom") {
				t.Error(f)
			}
		}
	})
}

// What is no circle is not logged: a claim that is shared or has a place, a holder in another
// process, a caller without a claim, a short wait. Calls that wait for one key are one line a
// minute.
func TestNoOwnWait(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		log, logs := logged()
		c, _ := w.client(etcdclaims.Config{Logger: log})
		other := w.peer()
		ctx := context.Background()
		none := func(context.Context) error { time.Sleep(20 * sec); return nil }
		for name, run := range map[string]func() error{
			"Reentrant": func() error {
				return c.Run(ctx, "r", func(ctx context.Context) error { return c.Run(ctx, "r", none, etcdclaims.Reentrant()) }, etcdclaims.Reentrant())
			},
			"Slots": func() error {
				return c.Run(ctx, "s", func(ctx context.Context) error { return c.Run(ctx, "s", none, etcdclaims.Slots(2)) }, etcdclaims.Slots(2))
			},
			"another process": func() error {
				held := tryClaim(t, other, "o")
				time.AfterFunc(20*sec, func() { _ = held.Release(ctx) })
				return c.Run(ctx, "h", func(ctx context.Context) error { return c.Run(ctx, "o", none) })
			},
			"no claim": func() error {
				held := tryClaim(t, c, "n")
				time.AfterFunc(20*sec, func() { _ = held.Release(ctx) })
				return c.Run(ctx, "n", none)
			},
			"short": func() error {
				held := tryClaim(t, c, "t")
				time.AfterFunc(4*sec, func() { _ = held.Release(ctx) })
				return c.Run(ctx, "h", func(ctx context.Context) error { return c.Run(ctx, "t", none) })
			},
		} {
			if err := run(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := len(ownWaits(logs)); n != 0 {
				t.Errorf("%s: %d lines", name, n)
			}
		}
		limited, cancel := context.WithTimeout(ctx, 50*sec)
		defer cancel()
		_ = c.Run(limited, "many", func(ctx context.Context) error {
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() { _, _ = c.Acquire(ctx, "many") })
			}
			wg.Wait()
			return nil
		})
		if n := len(ownWaits(logs)); n != 1 {
			t.Errorf("%d lines of a hundred calls", n)
		}
	})
}
