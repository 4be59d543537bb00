package etcdclaims_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
	"google.golang.org/grpc/codes"
)

// endsFor returns when the claim's context has ended for a more preferred caller, which it must
// within a time.
func endsFor(t *testing.T, cl *etcdclaims.Claim, within time.Duration) time.Time {
	t.Helper()
	select {
	case <-cl.Context().Done():
		wantIs(t, context.Cause(cl.Context()), etcdclaims.ErrYield)
		noErr(t, cl.Check())
	case <-time.After(within):
		t.Fatalf("the context has not ended within %v", within)
	}
	return time.Now()
}

// stays checks that the claim's context does not end for a time.
func stays(t *testing.T, cl *etcdclaims.Claim, d time.Duration) {
	t.Helper()
	time.Sleep(d)
	if cl.Context().Err() != nil {
		t.Fatalf("the context ended: %v", context.Cause(cl.Context()))
	}
}

// The context ends when a more preferred caller has waited for the time, whatever others do,
// and stays as long as nobody does.
func TestYieldAfter(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		held := tryClaim(t, w.peer(), "k", etcdclaims.Prefer(3), etcdclaims.YieldAfter(20*sec))
		w.waits(w.peer())
		w.preferred(3)
		stays(t, held, time.Minute)
		for range 3 { // crashes, and comes again
			_, leave := w.preferred(9)
			stays(t, held, 15*sec)
			leave()
			stays(t, held, 2*sec)
		}
		better, _ := w.preferred(4)
		came := time.Now()
		stays(t, held, 10*sec)
		best, _ := w.preferred(5)
		if took := endsFor(t, held, 15*sec).Sub(came); took < 19*sec {
			t.Errorf("the context ended after %v", took)
		}
		release(t, held)
		held = w.within(sec, better) // the other one has not waited for so long
		release(t, held)
		w.within(sec, best)
	})
}

// The place of a dead process does not end a term.
func TestYieldAfterToNobodyDead(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		held := tryClaim(t, w.peer(), "k", etcdclaims.YieldAfter(20*sec))
		for _, lives := range []time.Duration{sec, 5 * sec, 11 * sec} {
			dying, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			_, leave := w.waits(dying, etcdclaims.Prefer(9))
			stays(t, held, lives)
			host.Kill()
			leave() // which does not reach etcd
			stays(t, held, 25*sec)
		}
		stays(t, held, 5*sec)
		live, _ := w.preferred(1)
		dying, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		w.waits(dying, etcdclaims.Prefer(9))
		stays(t, held, 11*sec)
		host.Kill()
		endsFor(t, held, 10*sec)
		release(t, held)
		w.within(sec, live)
	})
}

// A caller that was in line before counts from when the holder has the key.
func TestYieldAfterOfAnEarlierCaller(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		dying, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		tryClaim(t, dying, "k")
		next, _ := w.waits(w.peer(), etcdclaims.YieldAfter(10*sec))
		better, _ := w.preferred(1)
		time.Sleep(time.Minute)
		host.Kill()
		held := w.within(20*sec, next) // the order of the line
		stays(t, held, 9*sec)
		endsFor(t, held, 2*sec)
		release(t, held)
		w.within(sec, better)
	})
}

// No time at all.
func TestYieldAfterNothing(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		held := tryClaim(t, w.peer(), "k", etcdclaims.YieldAfter(0))
		stays(t, held, time.Minute)
		better, _ := w.preferred(1)
		endsFor(t, held, 100*ms)
		release(t, held)
		w.within(sec, better)
	})
}

// A watch that delivers nothing, or cannot begin, hides a caller until the next renewal.
func TestYieldAfterDeaf(t *testing.T) {
	t.Parallel()
	for how, fault := range deafness.Kinds() {
		virtualCase(t, how, func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			host.Inject(fault)
			held := tryClaim(t, a, "k", etcdclaims.YieldAfter(sec))
			stays(t, held, 17*sec)
			better, _ := w.preferred(1)
			endsFor(t, held, 17*sec)
			release(t, held)
			w.within(sec, better)
		})
	}
}

// What it costs to hold the key does not depend on how long others wait.
func TestYieldAfterRequests(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		held := tryClaim(t, a, "k", etcdclaims.YieldAfter(time.Hour))
		for range 20 {
			w.preferred(1)
		}
		time.Sleep(10 * sec)
		sent := func() int {
			return len(host.Sent(claimtest.Every)) - len(host.Sent(claimtest.KeepAlive)) - len(host.Sent(claimtest.Verify))
		}
		before := sent()
		stays(t, held, 150*sec)
		if n := sent() - before; n > 2 {
			t.Errorf("%d more requests in ten TTLs", n)
		}
		if n := len(host.Sent(claimtest.Verify)); n == 0 || n > 80 {
			t.Errorf("%d reads", n)
		}
	})
}

// Run stops its handler, waits for it, and hands the key over.
func TestRunYields(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		var returned time.Time
		done := make(chan error, 1)
		go func() {
			done <- w.peer().Run(context.Background(), "k", func(ctx context.Context) error {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), etcdclaims.ErrYield) {
					t.Errorf("the context ended with %v", context.Cause(ctx))
				}
				time.Sleep(2 * sec)
				returned = time.Now()
				return nil
			}, etcdclaims.YieldAfter(sec))
		}()
		time.Sleep(sec)
		better, _ := w.preferred(1)
		noErr(t, <-done)
		if r := <-better; r.err != nil || r.at.Before(returned) || r.at.Sub(returned) > 100*ms {
			t.Errorf("handed over after %v: %v", r.at.Sub(returned), r.err)
		}
	})
}

// Close does not wait for a more preferred caller.
func TestYieldAfterClose(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		tryClaim(t, a, "k", etcdclaims.YieldAfter(time.Hour))
		time.Sleep(sec)
		began := time.Now()
		w.closeClean(a)
		if took := time.Since(began); took > sec {
			t.Errorf("closing took %v", took)
		}
	})
}

// A caller that has waited for long enough while the claim is being given up costs nothing more.
func TestYieldAfterBesideRelease(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		held := tryClaim(t, a, "k", etcdclaims.YieldAfter(5*sec))
		better, _ := w.preferred(1)
		stays(t, held, 4500*ms)
		host.Inject(claimtest.Fault{On: claimtest.HandOver, LoseRequest: true})
		host.Inject(claimtest.Fault{On: claimtest.TimeToLive, Times: -1, DelayReply: ms}) // so that time passes
		before := a.Stats().Requests
		release(t, held) // by its second request, when the first has timed out
		if n := a.Stats().Requests - before; n > 12 {
			t.Errorf("%d requests", n)
		}
		w.within(sec, better)
	})
}

// A Yield that was under way when the time came, and came to nothing, delays the end of the
// context by 2 s at most.
func TestYieldAfterBesideYield(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		held := tryClaim(t, a, "k", etcdclaims.YieldAfter(5*sec))
		_, leave := w.preferred(2)
		stays(t, held, sec)
		better, _ := w.preferred(1)
		stays(t, held, 4500*ms-sec)
		host.Inject(claimtest.Fault{On: claimtest.HandOver, DelayRequest: sec, Code: codes.PermissionDenied})
		yielded := make(chan error, 1)
		go func() { _, err := held.Yield(context.Background()); yielded <- err }()
		time.Sleep(100 * ms)
		leave()
		wantIs(t, <-yielded, etcdclaims.ErrPermissionDenied)
		noErr(t, held.Check())
		endsFor(t, held, 3*sec)
		release(t, held)
		w.within(sec, better)
	})
}
