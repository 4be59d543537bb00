package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/option"
)

// Once the record of a key with slots was deleted by hand, no holder of a slot owns it any more,
// whoever has the key by then. The client notices within a third of the TTL. The slot stays held for
// a TTL, as its handler may still run.
func TestSlotsRecordDeleted(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(w *world, c *etcdclaims.Client) etcdclaims.Reason{
		"nobody comes": func(*world, *etcdclaims.Client) etcdclaims.Reason { return etcdclaims.ReasonDeleted },
		"whole": func(w *world, c *etcdclaims.Client) etcdclaims.Reason {
			tryClaim(w.T, c, "k")
			return etcdclaims.ReasonSuperseded
		},
		"whole, which came and went": func(w *world, c *etcdclaims.Client) etcdclaims.Reason {
			release(w.T, tryClaim(w.T, c, "k"))
			return etcdclaims.ReasonDeleted
		},
		"whole, and then slots again": func(w *world, c *etcdclaims.Client) etcdclaims.Reason {
			release(w.T, tryClaim(w.T, c, "k"))
			noErr(w.T, admin.Resize(context.Background(), c, "k", 3))
			return etcdclaims.ReasonSuperseded
		},
		"shared": func(w *world, c *etcdclaims.Client) etcdclaims.Reason {
			tryClaim(w.T, c, "k", etcdclaims.Shared())
			return etcdclaims.ReasonSuperseded
		},
		"other slots": func(w *world, c *etcdclaims.Client) etcdclaims.Reason {
			tryClaim(w.T, c, "k", etcdclaims.Slots(200))
			return etcdclaims.ReasonSuperseded
		},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			ctx := context.Background()
			a, b := w.peer(), w.peer()
			slot := tryClaim(t, a, "k", etcdclaims.Slots(3))
			w.Server.Delete(t, w.Own("k"))
			reason := next(w, b)
			if _, err := slot.Txn(ctx).Then().Commit(); !errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("a write of the slot's holder: %v", err)
			}
			lossOf(t, slot.Err(), reason)
			noErr(t, b.Close(ctx))
			time.Sleep(sec)
			if reason == etcdclaims.ReasonDeleted {
				if _, err := a.TryAcquire(ctx, slot.Key(), option.OwnKey{}); !errors.Is(err, etcdclaims.ErrHeld) {
					t.Errorf("the slot of a handler that may run on: %v", err)
				}
			}
			time.Sleep(17 * sec)
			if info, err := a.Lookup(ctx, slot.Key()); err != nil || info.Held {
				t.Errorf("after a TTL: %+v, %v", info, err)
			}
		})
	}
}

// Without a call of its holder, the next verification finds that the record is gone: of some slots,
// and of so many that each is verified at every third renewal only.
func TestSlotsRecordDeletedUnnoticed(t *testing.T) {
	t.Parallel()
	for name, within := range map[string]time.Duration{"few": 6 * sec, "many": 16 * sec} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			a, b := w.peer(), w.peer()
			slots := []*etcdclaims.Claim{tryClaim(t, a, "k", etcdclaims.Slots(200)), tryClaim(t, a, "k", etcdclaims.Slots(200))}
			if name == "many" {
				fill(t, a, 1100)
			}
			w.Server.Delete(t, w.Own("k"))
			whole := tryClaim(t, b, "k")
			time.Sleep(within)
			for _, cl := range slots {
				lossOf(t, cl.Err(), etcdclaims.ReasonSuperseded)
			}
			noErr(t, whole.Check())
		})
	}
}

// fill claims many keys.
func fill(t *testing.T, c *etcdclaims.Client, n int) {
	t.Helper()
	for i := 0; i < n; i += 50 {
		keys := make([]string, 50)
		for j := range keys {
			keys[j] = fmt.Sprint("fill/", i+j)
		}
		if _, err := c.TryAcquireAll(context.Background(), keys); err != nil {
			t.Fatal(err)
		}
	}
}

// The caller in line puts the record again when it gets a slot, which is when the slots of before
// have ended. Another number of slots, by Resize, ends no claim.
func TestSlotsRecordDeletedBeforeALine(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		claims := w.slotted(2, a, b)
		next := acquiring(ctx, b, "k", etcdclaims.Slots(2))
		time.Sleep(sec)
		w.Server.Delete(t, w.Own("k"))
		time.Sleep(6 * sec)
		for _, cl := range claims {
			lossOf(t, cl.Err(), etcdclaims.ReasonDeleted)
		}
		one := w.within(16*sec, next)
		noErr(t, admin.Resize(ctx, a, "k", 3))
		time.Sleep(6 * sec)
		noErr(t, one.Check())
		if owns, err := one.Owns(ctx); !owns || err != nil {
			t.Errorf("owns %v, %v", owns, err)
		}
		release(t, one)
		w.clean(a, b)
	})
}

// A release of a slot whose record is gone frees the slot.
func TestSlotsRecordDeletedBeforeARelease(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, b := w.peer(), w.peer()
		slot := tryClaim(t, a, "k", etcdclaims.Slots(2))
		w.Server.Delete(t, w.Own("k"))
		release(t, slot)
		release(t, tryClaim(t, b, "k"))
		w.CloseClean(a, b)
	})
}
