package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// MinHold is kept though the context of the releasing caller ends before the key is
// on a lease of its own, and whatever request is lost or late then.
func TestMinHoldThoughTheContextEnds(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for _, how := range []string{"before", "deadline before", "during the grant", "during the move"} {
		for name, fault := range map[string]claimtest.Fault{
			"none":         {},
			"grant lost":   {On: claimtest.Grant, LoseRequest: true},
			"grant's lost": {On: claimtest.Grant, LoseReply: true, Times: 2},
			"move lost":    {On: steps.Rehome, LoseRequest: true, Times: 2},
			"move's lost":  {On: steps.Rehome, LoseReply: true},
			"no space":     {On: claimtest.Grant, Times: -1, Err: rpctypes.ErrGRPCNoSpace},
		} {
			virtualCase(t, how+", "+name, func(t *testing.T, w *world) {
				a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				b := w.peer()
				begin := time.Now()
				cl := tryClaim(t, a, "k", etcdclaims.MinHold(time.Minute))
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				if name != "none" {
					host.Inject(fault)
				}
				switch how {
				case "before":
					cancel()
				case "deadline before":
					ctx, cancel = context.WithDeadline(bg, time.Now().Add(-sec))
					defer cancel()
				case "during the grant":
					host.Inject(claimtest.Fault{On: claimtest.Grant, DelayReply: 100 * time.Millisecond})
					time.AfterFunc(50*time.Millisecond, cancel)
				case "during the move":
					host.Inject(claimtest.Fault{On: steps.Rehome, DelayReply: 100 * time.Millisecond})
					time.AfterFunc(50*time.Millisecond, cancel)
				}
				early := ctx.Err() != nil // then the release has a time of its own
				if err := cl.Release(ctx); err != nil && (!errors.Is(err, etcdclaims.ErrUnknown) || !early && !errors.Is(err, ctx.Err()) && name != "no space") {
					t.Errorf("release: %v", err)
				}
				if cl.Check() == nil {
					t.Error("held after its release")
				}
				for time.Since(begin) < 59*sec {
					if _, err := b.TryAcquire(bg, "k"); !errors.Is(err, etcdclaims.ErrHeld) {
						t.Fatalf("%v into a MinHold of 60 s: %v", time.Since(begin), err)
					}
					time.Sleep(testetcd.Fewer(sec, 5*sec))
				}
				time.Sleep(5 * sec)
				tryClaim(t, b, "k")
				if s := a.Stats(); s.Held != 0 || s.Released != 1 {
					t.Errorf("stats %+v", s)
				}
			})
		}
	}
}

// Close and ReleaseAll keep a MinHold for as many keys as there are, and no longer
// than they say.
func TestMinHoldOfManyKeys(t *testing.T) {
	t.Parallel()
	bg, n := context.Background(), 100
	switch {
	case testetcd.Long():
		n = 1000
	case testing.Short():
		n = testetcd.Fewer(50, 20)
	}
	for how, give := range map[string]func(c *etcdclaims.Client, ctx context.Context) error{
		"Close":      func(c *etcdclaims.Client, ctx context.Context) error { return c.Close(ctx) },
		"ReleaseAll": func(c *etcdclaims.Client, ctx context.Context) error { _, err := c.ReleaseAll(ctx); return err },
	} {
		for name, fault := range map[string]claimtest.Fault{
			"none":        {},
			"grants lost": {On: claimtest.Grant, LoseReply: true, Times: min(3, n/100)}, // at most as many as leases
			"moves lost":  {On: steps.Rehome, LoseRequest: true},
			"moves' lost": {On: steps.Rehome, LoseReply: true},
		} {
			for _, ended := range []bool{false, true} {
				virtualCase(t, fmt.Sprintf("%s, %s, context ended %v", how, name, ended), func(t *testing.T, w *world) {
					a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
					b := w.peer()
					begin := time.Now()
					keys := numbered("k%d", n)
					for i, some := 0, keys; len(some) > 0; i++ { // of as many ages as there may be
						claimMany(t, a, some[:10], etcdclaims.MinHold(time.Hour+time.Duration(i)*10*sec))
						some = some[10:]
					}
					tryClaim(t, a, "plain")
					if name != "none" {
						host.Inject(fault)
					}
					host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 20 * time.Millisecond})
					ctx, cancel := context.WithCancel(bg)
					defer cancel()
					if ended {
						cancel()
					}
					giving := time.Now()
					err := give(a, ctx)
					t.Logf("%v after %v", err, time.Since(giving))
					if err != nil && (how == "Close" || !ended) {
						t.Errorf("giving up: %v", err)
					}
					if d := time.Since(giving); d > 5*sec {
						t.Errorf("it took %v", d)
					}
					time.Sleep(time.Until(begin.Add(time.Hour - sec)))
					_, errs := b.TryAcquireEach(bg, keys)
					for i, err := range errs {
						if !errors.Is(err, etcdclaims.ErrHeld) {
							t.Fatalf("key %d before its MinHold: %v", i, err)
						}
					}
					release(t, tryClaim(t, b, "plain"))
					time.Sleep(time.Until(begin.Add((time.Hour+time.Duration(n)*sec)*17/16)).Round(sec) + 3*sec)
					claimMany(t, b, keys)
				})
			}
		}
	}
}

// A key whose MinHold passes while etcd does not answer is free as soon as it answers.
func TestMinHoldOverInAnOutage(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: time.Minute})
		other := w.peer()
		cl := tryClaim(t, c, "k", etcdclaims.MinHold(20*sec))
		host.Cut()
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		wantIs(t, cl.Release(ctx), etcdclaims.ErrUnknown)
		time.Sleep(30 * sec)
		host.Heal()
		time.Sleep(10 * sec)
		release(t, tryClaim(t, other, "k"))
		if n := len(host.Sent(steps.Rehome)); n > 0 {
			t.Errorf("put on another lease %d times", n)
		}
	})
}

// Close waits for a release that is under way, and does not revoke the lease under
// a key that is being moved.
func TestMinHoldWhileClosing(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for i := range 12 {
		virtualCase(t, fmt.Sprint(i), func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			b := w.peer()
			cl := tryClaim(t, a, "k", etcdclaims.MinHold(time.Minute))
			host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 20 * time.Millisecond})
			done := make(chan error, 1)
			go func() { done <- cl.Release(bg) }()
			time.Sleep(time.Duration(i) * 5 * time.Millisecond)
			if err := a.Close(bg); err != nil {
				t.Errorf("closing: %v", err)
			}
			if err := <-done; err != nil && !errors.Is(err, etcdclaims.ErrLost) { // Close came first
				t.Errorf("release: %v", err)
			}
			time.Sleep(50 * sec)
			if _, err := b.TryAcquire(bg, "k"); !errors.Is(err, etcdclaims.ErrHeld) {
				t.Errorf("50 s into a MinHold of 60 s: %v", err)
			}
		})
	}
}

// The key of a handler that goes on past its drain is held for the MinHold, too.
func TestMinHoldOfZombie(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, b := w.peer(), w.peer()
		stop, running := make(chan struct{}), make(chan struct{})
		go func() {
			_ = a.TryRun(context.Background(), "k", func(context.Context) error {
				close(running)
				<-stop
				return nil
			}, etcdclaims.MinHold(time.Hour))
		}()
		<-running
		noErr(t, a.Close(context.Background()))
		time.Sleep(50 * time.Minute)
		if _, err := b.TryAcquire(context.Background(), "k"); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("50 min into a MinHold of 60: %v", err)
		}
		close(stop)
	})
}

// A key that Close moves for its MinHold is no ghost to a client whose watch breaks meanwhile:
// it stays held.
func TestMinHoldWhileClosingAndTheWatchBreaks(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		other := w.peer()
		tryClaim(t, c, "k", etcdclaims.MinHold(time.Minute))
		time.Sleep(sec)
		host.Inject(claimtest.Fault{On: claimtest.Watch, Err: refusals["no leader"]})
		host.Break()
		host.Inject(claimtest.Fault{On: claimtest.Grant, DelayReply: sec})
		noErr(t, c.Close(context.Background()))
		if _, err := other.TryAcquire(context.Background(), "k"); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("2 s into a MinHold of a minute: %v, want ErrHeld", err)
		}
	})
}
