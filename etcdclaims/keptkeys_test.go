package etcdclaims_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/internal/option"
)

// Keys that belong to features are refused by every call that claims a key, before any
// request, with what to do instead. Operators still reach them.
func TestKeptKeys(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		c := w.peer()
		never := func(context.Context) error { t.Error("a function was called"); return nil }
		claiming := map[string]func(key string) error{
			"TryAcquire": func(key string) error { _, err := c.TryAcquire(ctx, key); return err },
			"Acquire":    func(key string) error { _, err := c.Acquire(ctx, key); return err },
			"Slots":      func(key string) error { _, err := c.TryAcquire(ctx, key, etcdclaims.Slots(2)); return err },
			"Shared":     func(key string) error { _, err := c.TryAcquire(ctx, key, etcdclaims.Shared()); return err },
			"TryRun":     func(key string) error { return c.TryRun(ctx, key, never) },
			"Run":        func(key string) error { return c.Run(ctx, key, never) },
			"TryBegin":   func(key string) error { _, err := works(c).TryBegin(ctx, key); return err },
			"Runner.Once": func(key string) error {
				_, _, err := works(c).Once(ctx, key, func(context.Context) ([]byte, error) { return nil, nil })
				return err
			},
			"TryAcquireAll":    func(key string) error { _, err := c.TryAcquireAll(ctx, []string{"k", key}); return err },
			"TryAcquireEach":   func(key string) error { _, errs := c.TryAcquireEach(ctx, []string{key}); return errs[0] },
			"Resize":           func(key string) error { return admin.Resize(ctx, c, key, 2) },
			"Locks.TryAcquire": func(key string) error { _, _, err := locks.New(c).TryAcquire(ctx, key, "me", time.Minute); return err },
		}
		for key, says := range map[string]string{
			"sched/g/owner": `is kept for schedulers: begin the key with another word than "sched/"; ForceRelease ends`,
			"queue/q":       "is kept for queues", "group/": "is kept for groups",
			"a#slot-1": `is kept for a slot: acquire "a" with Slots; ForceRelease of the SlotKey frees one slot`, "a/b#slot-x": "kept for a slot",
			"a#shared-x": `is kept for a shared claim: acquire "a" with Shared; ForceRelease of that key ends its claims`,
			" ":          "it is blank", "\u2003 ": "it is blank",
		} {
			for call, f := range claiming {
				if err := f(key); !errors.Is(err, etcdclaims.ErrInvalidKey) || !strings.Contains(err.Error(), says) {
					t.Errorf("%s %q: %v", call, key, err)
				}
			}
			if n := c.Stats().Requests; n != 0 {
				t.Fatalf("%q: %d requests", key, n)
			}
		}
		for _, key := range []string{"sched", "queues/a", "my/sched/a", "a#slot", " a"} {
			release(t, tryClaim(t, c, key))
		}
		for _, key := range []string{"sched/g/owner", "a#slot-1"} {
			held := tryClaim(t, c, key, option.OwnKey{})
			if i := lookUp(t, c, key); !i.Held || i.Fence != held.Fence() {
				t.Errorf("%+v", i)
			}
			if ok, err := c.Owns(ctx, held.Token()); !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
			_, err := admin.Line(ctx, c, key)
			noErr(t, err)
			_, ok, err := locks.New(c).Owner(ctx, key)
			if !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
			noErr(t, admin.ForceRelease(ctx, c, key, "test"))
			if h, err := admin.History(ctx, c, key); err != nil || len(h.Terms) != 1 || h.Terms[0].Ending != "forced" {
				t.Errorf("%+v, %v", h, err)
			}
		}
	})
}
