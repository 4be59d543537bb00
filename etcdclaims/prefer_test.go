package etcdclaims_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
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

// yields checks what Yield returns, and that the claim is held as it should be after that.
func yields(t *testing.T, cl *etcdclaims.Claim, want bool) {
	t.Helper()
	got, err := cl.Yield(context.Background())
	if err != nil || got != want {
		t.Fatalf("Yield returned %v, %v, want %v", got, err, want)
	}
	if err := cl.Check(); want != errors.Is(err, etcdclaims.ErrReleased) || !want && err != nil {
		t.Fatalf("Check returned %v after Yield returned %v", err, want)
	}
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
		if all, err := w.peer().Line(context.Background(), "k"); err != nil || len(all) != 4 || all[0].Preference != 0 || all[2].Preference != 9 {
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
		yields(t, held, true)
		held = w.within(sec, better)
		time.Sleep(sec)
		best, _ := w.waits(a, etcdclaims.Prefer(2))
		release(t, held)
		release(t, w.within(sec, best))
		release(t, w.within(sec, plain))
		w.closeClean(a)
	})
}

func TestYield(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		held := tryClaim(t, w.peer(), "k", etcdclaims.Prefer(5))
		yields(t, held, false)
		w.waits(w.peer())
		equal, _ := w.preferred(5)
		yields(t, held, false)
		better, _ := w.preferred(6)
		best, leave := w.preferred(7)
		leave()
		if err := (<-best).err; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		time.Sleep(sec)
		yields(t, held, true)
		next := w.within(sec, better)
		if next.Fence() <= held.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), held.Fence())
		}
		noErr(t, held.Release(context.Background()))
		if got, err := held.Yield(context.Background()); got || !errors.Is(err, etcdclaims.ErrReleased) {
			t.Errorf("Yield of an ended claim returned %v, %v", got, err)
		}
		release(t, next)
		w.within(sec, equal)
	})
}

// Claims that cannot be handed over by themselves do not yield.
func TestYieldOfOthers(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		resting := tryClaim(t, a, "k", etcdclaims.MinHold(20*sec))
		done, _ := w.preferred(1)
		yields(t, resting, false)
		time.Sleep(20 * sec)
		yields(t, resting, true)
		w.within(sec, done)
		shared := tryClaim(t, a, "r", etcdclaims.Reentrant())
		again := tryClaim(t, a, "r", etcdclaims.Reentrant())
		next := acquiring(context.Background(), w.peer(), "r", etcdclaims.Prefer(1))
		time.Sleep(sec)
		yields(t, shared, false)
		release(t, again)
		yields(t, shared, true)
		w.within(sec, next)
		for _, cl := range []*etcdclaims.Claim{
			tryBegin(t, a, "work").Claim, tryClaim(t, a, "slots", etcdclaims.Slots(2)), tryClaim(t, a, "shared", etcdclaims.Shared()),
		} {
			yields(t, cl, false)
		}
	})
}

// Whatever becomes of a request or its reply, the key has one owner, which is the next one.
func TestLossyYield(t *testing.T) {
	t.Parallel()
	lossy(t, claimtest.HandOver, func(t *testing.T, l *loss) {
		held := tryClaim(t, l.c, "k")
		next, _ := l.waits(l.other, etcdclaims.Prefer(1))
		l.strike()
		yields(t, held, true)
		cl := l.within(sec, next)
		l.owned(cl, l.c)
		release(t, cl)
		l.free("k", l.c)
	})
}

// A yield whose outcome stays unknown ends the claim. The key has another owner: the
// preferred one, or the first in line if the late request finds nothing to hand over.
func TestYieldUnsettled(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		held := tryClaim(t, a, "k")
		first, _ := w.waits(w.peer())
		better, _ := w.preferred(1)
		late := delayed(host, claimtest.HandOver)
		host.Inject(claimtest.Fault{On: claimtest.HandOver, LoseRequest: true, Times: -1})
		ctx, cancel := context.WithTimeout(context.Background(), 2*sec)
		defer cancel()
		got, err := held.Yield(ctx)
		if got || !errors.Is(err, etcdclaims.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Yield returned %v, %v", got, err)
		}
		wantIs(t, held.Check(), etcdclaims.ErrReleased)
		next := w.within(5*sec, first)
		late.arrive()
		time.Sleep(10 * sec)
		noErr(t, next.Check())
		if ok, err := next.Owns(context.Background()); !ok || err != nil {
			t.Errorf("owns %v, %v", ok, err)
		}
		release(t, next)
		release(t, w.within(sec, better))
		w.free("k", a)
	})
}

// The preferred caller leaves between the question and the hand-over: the claim stays, or goes to
// the next one that is preferred.
func TestYieldToOneThatLeaves(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"alone", "with another", "by its lease", "unanswered at first", "released meanwhile"} {
		virtualCase(t, how, func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			held := tryClaim(t, a, "k", etcdclaims.Prefer(1))
			plain, _ := w.waits(w.peer())
			gone, leave := w.preferred(9)
			var better <-chan claimed
			if how == "with another" {
				better, _ = w.preferred(2)
			}
			hold := make(chan struct{})
			fault := claimtest.Fault{On: claimtest.HandOver, Hold: hold}
			if how == "unanswered at first" {
				fault = claimtest.Fault{On: claimtest.HandOver, LoseRequest: true, DelayRequest: 3 * sec, Code: codes.Unavailable}
			}
			host.Inject(fault)
			type result struct {
				yielded bool
				err     error
			}
			done := make(chan result, 1)
			go func() {
				yielded, err := held.Yield(context.Background())
				done <- result{yielded, err}
			}()
			time.Sleep(sec)
			wantIs(t, held.Check(), etcdclaims.ErrReleased)
			if how == "by its lease" {
				w.revokeLineOf(9)
				better = gone // it is in line again
			} else {
				leave()
				wantIs(t, (<-gone).err, context.Canceled)
			}
			time.Sleep(sec)
			if how == "released meanwhile" {
				release(t, held)
			}
			close(hold)
			r := <-done
			if how == "released meanwhile" { // it is not held any more
				wantIs(t, r.err, etcdclaims.ErrReleased)
				r.err = nil
			}
			if r.err != nil || r.yielded != (better != nil) {
				t.Fatalf("got %+v", r)
			}
			switch {
			case better != nil:
				wantIs(t, held.Check(), etcdclaims.ErrReleased)
				w.within(sec, better)
			case how == "released meanwhile":
				w.within(sec, plain)
			default:
				noErr(t, held.Check())
				time.Sleep(20 * sec)
				noErr(t, held.Check())
				release(t, held)
				w.within(sec, plain)
			}
		})
	}
}

// revokeLineOf revokes the lease of the place in line with the preference.
func (w *world) revokeLineOf(preference int) {
	w.Helper()
	line, err := w.peer().Line(context.Background(), "k")
	noErr(w.T, err)
	for _, l := range line {
		if l.Preference == preference {
			_, err := w.raw.Revoke(context.Background(), l.Lease)
			noErr(w.T, err)
		}
	}
}

// A claim whose hand-over etcd refuses stays.
func TestYieldRefused(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{rpctypes.ErrGRPCNoSpace, rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCLeaseNotFound} {
		virtualCase(t, refusal.Error(), func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			held := tryClaim(t, a, "k")
			better, _ := w.preferred(1)
			fault := host.Inject(claimtest.Fault{On: claimtest.HandOver, LoseRequest: true, Err: refusal, Times: -1})
			ctx, cancel := context.WithTimeout(context.Background(), 3*sec)
			defer cancel()
			got, err := held.Yield(ctx)
			if got || errors.Is(err, etcdclaims.ErrUnknown) || err == nil && fault.Hits() < 2 {
				t.Errorf("Yield returned %v, %v", got, err)
			}
			fault.Remove()
			time.Sleep(20 * sec)
			noErr(t, held.Check())
			yields(t, held, true)
			w.within(sec, better)
		})
	}
}

// A claim that is lost meanwhile is lost.
func TestYieldOfTheLost(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		held := tryClaim(t, a, "k")
		better, _ := w.preferred(1)
		hold := make(chan struct{})
		host.Inject(claimtest.Fault{On: claimtest.HandOver, Hold: hold})
		time.AfterFunc(sec, func() {
			_, err := w.raw.Put(context.Background(), w.own("k"), "other", clientv3.WithIgnoreLease())
			noErr(w.T, err)
			close(hold)
		})
		got, err := held.Yield(context.Background())
		if got || !errors.Is(err, etcdclaims.ErrLost) {
			t.Fatalf("Yield returned %v, %v", got, err)
		}
		_, err = w.raw.Delete(context.Background(), w.own("k"))
		noErr(t, err)
		w.within(20*sec, better)
	})
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
			{etcdclaims.YieldAfter(-1)},
			{etcdclaims.Prefer(0), etcdclaims.Slots(2)},
			{etcdclaims.Prefer(1), etcdclaims.Shared()},
			{etcdclaims.Prefer(1), etcdclaims.Barge()},
			{etcdclaims.Prefer(1), etcdclaims.Note(nil)},
			{etcdclaims.YieldAfter(1), etcdclaims.If(clientv3.Compare(clientv3.Version("x"), "=", 0))},
		} {
			for _, c := range []*etcdclaims.Client{a, without} {
				if _, err := c.Acquire(context.Background(), "k", opts...); err == nil || !strings.Contains(err.Error(), "Prefer") && !strings.Contains(err.Error(), "YieldAfter") {
					t.Errorf("got %v", err)
				}
			}
		}
		cl := tryClaim(t, without, "k", etcdclaims.Prefer(1), etcdclaims.YieldAfter(0))
		if got, err := cl.Yield(context.Background()); got || err != nil || cl.Check() != nil {
			t.Errorf("a passthrough yields: %v, %v", got, err)
		}
	})
}

// A claim that ends while Yield asks etcd is lost, and Yield says so.
func TestYieldCutOff(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 6 * sec})
		cl := tryClaim(t, c, "k", etcdclaims.Prefer(0))
		host.Cut()
		yielded, err := cl.Yield(context.Background())
		for try := 0; try < 5 && !yielded && !errors.Is(err, etcdclaims.ErrLost) && cl.Err() == nil; try++ {
			yielded, err = cl.Yield(context.Background())
		}
		if yielded || !errors.Is(err, etcdclaims.ErrLost) {
			t.Errorf("%v, %v; the claim: %v", yielded, err, cl.Err())
		}
		host.Heal()
	})
}
