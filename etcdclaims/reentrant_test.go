package etcdclaims_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// Callers of one client that ask for a key with Reentrant at the same time share the claim. None
// of them waits in line for the others to release it.
func TestReentrantAtOnce(t *testing.T) {
	t.Parallel()
	for _, inLine := range []bool{false, true} {
		for name, opts := range map[string][]etcdclaims.AcquireOption{"both": {etcdclaims.Reentrant()}, "the second": nil} {
			if inLine {
				name += ", in line"
			}
			virtualCase(t, name, func(t *testing.T, w *world) {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				other := w.peer()
				tryClaim(t, c, "warm")
				var held *etcdclaims.Claim
				if inLine {
					held = tryClaim(t, other, "k")
				} else {
					host.Inject(claimtest.Fault{On: claimtest.Acquire, DelayReply: 10 * time.Millisecond})
				}
				first := acquiring(context.Background(), c, "k", opts...)
				time.Sleep(time.Millisecond)
				second := acquiring(context.Background(), c, "k", etcdclaims.Reentrant())
				if inLine {
					time.Sleep(sec)
					release(t, held)
				}
				one, two := w.within(sec, first), w.within(sec, second)
				if one.Fence() != two.Fence() {
					t.Errorf("fences %d and %d", one.Fence(), two.Fence())
				}
				release(t, one)
				w.Ours(two)
				release(t, two)
				w.CloseClean(c, other)
			})
		}
	}
}

// A caller with Reentrant that came while its own client's claim was in doubt, because the wall
// clock was set, shares that claim as soon as it is verified.
func TestReentrantWhileTheClaimIsInDoubt(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		one := tryClaim(t, c, "k")
		host.Inject(claimtest.Fault{On: claimtest.KeepAlive, DelayReply: sec})
		host.StepClock(time.Hour)
		second := acquiring(context.Background(), c, "k", etcdclaims.Reentrant())
		two := w.within(6*sec, second) // with the next renewal
		if one.Fence() != two.Fence() {
			t.Errorf("fences %d and %d", one.Fence(), two.Fence())
		}
	})
}

// Reentrant shares no claim that its first caller has yet to be given: should that caller leave,
// the claim would end under the second.
func TestReentrantSharesNoClaimThatIsGivenUp(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		other := w.peer()
		tryClaim(t, c, "warm")
		held := tryClaim(t, other, "k")
		ctx, cancel := context.WithCancel(context.Background())
		first := acquiring(ctx, c, "k", etcdclaims.Reentrant(), etcdclaims.Manual())
		time.Sleep(2 * sec)
		slow := host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, DelayReply: sec})
		release(t, held) // a Manual claim is renewed before its caller gets it
		time.Sleep(500 * time.Millisecond)
		second := acquiring(context.Background(), c, "k", etcdclaims.Reentrant())
		time.Sleep(100 * time.Millisecond)
		cancel()
		if r := <-first; r.err == nil {
			t.Fatal("the first caller got the claim after its context had ended")
		}
		slow.Remove()
		w.Ours(w.within(2*sec, second))
	})
}

// Many callers with Reentrant in line, each of which releases at once, cost a few requests each: those that
// come too late for a claim of their own client stay in line, and send nothing.
func TestReentrantHerd(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		const n = 100
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		held := tryClaim(t, w.peer(), "k")
		var callers sync.WaitGroup
		for range n {
			callers.Go(func() {
				claim, err := c.Acquire(t.Context(), "k", etcdclaims.Reentrant())
				if err != nil {
					t.Error(err)
					return
				}
				release(t, claim)
			})
		}
		time.Sleep(5 * sec)
		before := len(host.Sent(claimtest.Every))
		release(t, held)
		callers.Wait()
		if sent := len(host.Sent(claimtest.Every)) - before; sent > 8*n {
			t.Errorf("%d requests for %d callers", sent, n)
		}
	})
}
