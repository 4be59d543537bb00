package locks_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/internal/testclaims"
)

// A lock that another process of its owner renews meanwhile is unlocked all the same: after
// true nobody has it, also if the reply to the first request was lost.
func TestLockReleaseBesideRenew(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]bool{"refused": false, "request lost": true} {
		testclaims.Case(t, name, func(t *testing.T, w *testclaims.World) {
			ctx := context.Background()
			b, bhost := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
			c, host := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
			testclaims.Locked(t, locks.New(b), "k", "me", time.Minute, true)
			bhost.Inject(claimtest.Fault{On: claimtest.Revoke, DelayRequest: 3 * time.Second}) // of the lease before
			host.Inject(claimtest.Fault{On: claimtest.Release, Key: "k", LoseRequest: lose, Saw: func(any) {
				testclaims.Renewed(t, locks.New(b), "k", "me", 2*time.Minute, true)
			}})
			if ok, err := locks.New(c).Release(ctx, "k", "me"); !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
			if owner, held, err := locks.New(b).Owner(ctx, "k"); held || err != nil {
				t.Errorf("locked by %q, %v", owner, err)
			}
		})
	}
}

// Renew returns true beside another Renew of the same owner.
func TestLockRenewBesideRenew(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]struct {
		ttl   time.Duration
		fault claimtest.Fault // during which the other is carried out
	}{
		"another TTL":  {3 * time.Minute, claimtest.Fault{On: claimtest.Grant}},
		"the same TTL": {time.Minute, claimtest.Fault{On: claimtest.Verify, Skip: 1}}, // after the keep-alive
	} {
		testclaims.Case(t, name, func(t *testing.T, w *testclaims.World) {
			ctx := context.Background()
			b := w.Peer()
			c, host := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
			testclaims.Locked(t, locks.New(b), "k", "me", time.Minute, true)
			at.fault.Saw = func(any) { testclaims.Renewed(t, locks.New(b), "k", "me", 2*time.Minute, true) }
			host.Inject(at.fault)
			fence, ok, err := locks.New(c).Renew(ctx, "k", "me", at.ttl)
			if i := testclaims.LookUp(t, b, "k"); !ok || err != nil || i.Fence != fence || i.TTL != at.ttl {
				t.Errorf("%d, %v, %v; the lock has the fence %d and lasts %v", fence, ok, err, i.Fence, i.TTL)
			}
		})
	}
}

// A key whose shared holders have died is held by nobody, and their token owns nothing.
func TestLockOfDeadSharers(t *testing.T) {
	t.Parallel()
	testclaims.Virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		a, host := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
		b := w.Peer()
		cl, err := a.TryAcquire(ctx, "k", etcdclaims.Shared())
		testclaims.NoErr(t, err)
		for _, held := range []bool{true, false} {
			if is, err := locks.New(b).IsLocked(ctx, "k"); is != held || err != nil {
				t.Errorf("locked: %v, %v; want %v", is, err, held)
			}
			if owns, err := b.Owns(ctx, cl.Token()); owns != held || err != nil {
				t.Errorf("the token owns the key: %v, %v; want %v", owns, err, held)
			}
			host.Kill()
			time.Sleep(time.Minute)
		}
	})
}

// A lost reply about the record that dead sharers have left concerns no lock: the call goes on.
func TestLockBehindDeadSharersWithLostReply(t *testing.T) {
	t.Parallel()
	testclaims.Virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		a, dead := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
		b, host := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
		_, err := a.TryAcquire(ctx, "k", etcdclaims.Shared())
		testclaims.NoErr(t, err)
		dead.Kill()
		time.Sleep(time.Minute)
		lost := host.Inject(claimtest.Fault{On: claimtest.Every, Key: "k", Skip: 1, LoseReply: true})
		if _, ok, err := locks.New(b).TryAcquire(ctx, "k", "me", time.Minute); !ok || err != nil {
			t.Errorf("acquired: %v, %v", ok, err)
		}
		if lost.Hits() != 1 {
			t.Errorf("%d replies were lost", lost.Hits())
		}
	})
}
