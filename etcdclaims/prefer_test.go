package etcdclaims_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// preferred lets a new client wait for "k" with a preference, and returns when it is in line.
func (w *world) preferred(p int) (<-chan claimed, context.CancelFunc) {
	w.Helper()
	return w.waits(w.peer(), etcdclaims.Prefer(p))
}

// waits lets a client wait for "k", and returns when it is in line.
func (w *world) waits(c *etcdclaims.Client, opts ...etcdclaims.AcquireOption) (<-chan claimed, context.CancelFunc) {
	w.Helper()
	before := w.places()
	ctx, cancel := context.WithCancel(context.Background())
	w.Cleanup(cancel)
	done := acquiring(ctx, c, "k", opts...)
	for range 100 {
		if time.Sleep(10 * ms); w.places() > before {
			return done, cancel
		}
	}
	w.Fatal("not in line")
	return done, cancel
}

// A claim with Prefer goes to the most preferred caller, in order among equals, and one without
// to the first in line.
func TestPreferOrder(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		held := tryClaim(t, w.peer(), "k", etcdclaims.Prefer(0))
		line := map[string]<-chan claimed{}
		line["plain"], _ = w.waits(w.peer())
		for _, name := range []string{"5 first", "9", "5 second"} {
			line[name], _ = w.preferred(int(name[0] - '0'))
		}
		fence := held.Fence()
		if all, err := admin.Line(context.Background(), w.peer(), "k"); err != nil || len(all) != 4 || all[0].Preference != 0 || all[2].Preference != 9 {
			t.Errorf("line %+v, %v", all, err)
		}
		for _, name := range []string{"9", "5 first", "5 second", "plain"} {
			release(t, held)
			held = w.within(sec, line[name])
			if held.Fence() <= fence {
				t.Errorf("fence %d after %d", held.Fence(), fence)
			}
			fence = held.Fence()
			if i, err := w.peer().Lookup(context.Background(), "k"); err != nil || strings.HasPrefix(name, "5") != (i.Preference == 5) {
				t.Errorf("%s: %+v, %v", name, i, err)
			}
		}
		// The last one was acquired without Prefer.
		first, _ := w.waits(w.peer())
		w.preferred(9)
		release(t, held)
		w.within(sec, first)
	})
}

// A claim with Prefer that was handed over by one without goes to the most preferred caller, although
// the notice has the places in the order of the line.
func TestPreferAfterAnotherOrder(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		held := tryClaim(t, w.peer(), "k")
		first, _ := w.preferred(0)
		plain, _ := w.waits(w.peer())
		best, _ := w.preferred(9)
		release(t, held)
		release(t, w.within(sec, first))
		release(t, w.within(sec, best))
		w.within(sec, plain)
	})
}

// A caller with Prefer is in line also where its own client holds the key, and callers without wait
// behind it in their order.
func TestPreferWithinOneClient(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		held := tryClaim(t, a, "k")
		plain := acquiring(context.Background(), a, "k")
		time.Sleep(sec)
		better, _ := w.waits(a, etcdclaims.Prefer(1))
		release(t, held)
		held = w.within(sec, plain)
		release(t, held)
		held = w.within(sec, better)
		plain = acquiring(context.Background(), a, "k")
		time.Sleep(sec)
		best, _ := w.waits(a, etcdclaims.Prefer(2))
		release(t, held)
		release(t, w.within(sec, best))
		release(t, w.within(sec, plain))
		w.CloseClean(a)
	})
}

// Whatever becomes of a request or its reply, the key has one owner, which is the most preferred
// caller.
func TestLossyPrefer(t *testing.T) {
	t.Parallel()
	lossy(t, steps.HandOver, func(t *testing.T, l *loss) {
		held := tryClaim(t, l.c, "k", etcdclaims.Prefer(0))
		first, _ := l.waits(l.other)
		next, _ := l.waits(l.other, etcdclaims.Prefer(1))
		l.strike()
		release(t, held)
		cl := l.within(sec, next)
		l.owned(cl, l.c)
		release(t, cl)
		release(t, l.within(sec, first))
		l.Available("k", l.c)
	})
}

// The preferred caller leaves between the question and the hand-over: the key goes to the next one
// that is preferred.
func TestPreferOneThatLeaves(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"leaves", "by its lease"} {
		virtualCase(t, how, func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			held := tryClaim(t, a, "k", etcdclaims.Prefer(1))
			plain, _ := w.waits(w.peer())
			gone, leave := w.preferred(9)
			better, _ := w.preferred(2)
			hold := make(chan struct{})
			host.Inject(claimtest.Fault{On: steps.HandOver, Hold: hold})
			done := make(chan error, 1)
			go func() { done <- held.Release(context.Background()) }()
			time.Sleep(sec)
			if how == "by its lease" {
				w.revokeLineOf(9)
			} else {
				leave()
				wantIs(t, (<-gone).err, context.Canceled)
			}
			time.Sleep(sec)
			close(hold)
			noErr(t, <-done)
			if how == "by its lease" { // it is in line again
				release(t, w.within(sec, gone))
			}
			release(t, w.within(sec, better))
			w.within(sec, plain)
		})
	}
}

// revokeLineOf revokes the lease of the place in line with the preference.
func (w *world) revokeLineOf(preference int) {
	w.Helper()
	line, err := admin.Line(context.Background(), w.peer(), "k")
	noErr(w.T, err)
	for _, l := range line {
		if l.Preference == preference {
			_, err := w.Raw.Revoke(context.Background(), l.Lease)
			noErr(w.T, err)
		}
	}
}

func TestPreferOptions(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		without, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
		noErr(t, err)
		t.Cleanup(func() { _ = without.Close(context.Background()) })
		for _, opts := range [][]etcdclaims.AcquireOption{
			{etcdclaims.Prefer(-1)},
			{etcdclaims.Prefer(0), etcdclaims.Slots(2)},
			{etcdclaims.Prefer(1), etcdclaims.Shared()},
			{etcdclaims.Prefer(1), etcdclaims.Note(nil)},
			{etcdclaims.Prefer(1), etcdclaims.If(clientv3.Compare(clientv3.Version("x"), "=", 0))},
		} {
			for _, c := range []*etcdclaims.Client{a, without} {
				if _, err := c.Acquire(context.Background(), "k", opts...); err == nil || !strings.Contains(err.Error(), "Prefer") {
					t.Errorf("got %v", err)
				}
			}
		}
		noErr(t, tryClaim(t, without, "k", etcdclaims.Prefer(1)).Check())
	})
}
