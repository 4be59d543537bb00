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
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A waiter that may not take a suspected holder's key has it when the lease ends.
func TestSuspectNotPermitted(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, ahost := w.client(etcdclaims.Config{TTL: 15 * sec})
		b, bhost := w.client(etcdclaims.Config{TTL: 15 * sec})
		tryClaim(t, a, "k", etcdclaims.Suspectable())
		waits := w.waitingFor(b, "k")[0]
		denied := bhost.Inject(claimtest.Fault{On: steps.TakeOver, LoseRequest: true, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
		ahost.Kill()
		time.Sleep(5 * sec)
		if n := denied.Hits(); n != 1 {
			t.Errorf("%d take-overs were tried", n)
		}
		bhost.RemoveFaults()
		cl := w.within(12*sec, waits)
		judged(t, b, 0, 0)
		release(t, cl)
		time.Sleep(20 * sec) // until the leases of the dead have ended
		w.CloseClean(b)
	})
}

// The history of a key tells a suspicion from a release by a person.
func TestSuspicionInHistory(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, ahost := w.client(etcdclaims.Config{TTL: 15 * sec})
		b, _ := w.client(etcdclaims.Config{TTL: 15 * sec, Owner: "next"})
		old := tryClaim(t, a, "k", etcdclaims.Suspectable())
		waits := w.waitingFor(b, "k")[0]
		ahost.Kill()
		cl := w.within(sec, waits)
		h, err := admin.History(context.Background(), b, "k")
		noErr(t, err)
		for _, term := range h.Terms {
			if term.Fence == old.Fence() && (term.Ending != "suspected" || !strings.Contains(term.Cause, "next")) {
				t.Errorf("%+v", term)
			}
		}
		if len(h.Terms) != 2 {
			t.Errorf("%d terms", len(h.Terms))
		}
		release(t, cl)
		time.Sleep(20 * sec)
		w.CloseClean(b)
	})
}
