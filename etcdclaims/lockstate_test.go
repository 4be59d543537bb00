package etcdclaims_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
)

// A lock that another process of its owner renews meanwhile is unlocked all the same: after
// true nobody has it, also if the reply to the first request was lost.
func TestLockReleaseBesideRenew(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]bool{"refused": false, "request lost": true} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			ctx := context.Background()
			b, bhost := w.client(etcdclaims.Config{TTL: 15 * sec})
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			locked(t, b.Locks(), "k", "me", time.Minute, true)
			bhost.Inject(claimtest.Fault{On: claimtest.Revoke, DelayRequest: 3 * sec}) // of the lease before
			host.Inject(claimtest.Fault{On: claimtest.Release, Key: "k", LoseRequest: lose, Saw: func(any) {
				renewed(t, b.Locks(), "k", "me", 2*time.Minute, true)
			}})
			if ok, err := c.Locks().Release(ctx, "k", "me"); !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
			if owner, held, err := b.Locks().Owner(ctx, "k"); held || err != nil {
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
		virtualCase(t, name, func(t *testing.T, w *world) {
			ctx := context.Background()
			b := w.peer()
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			locked(t, b.Locks(), "k", "me", time.Minute, true)
			at.fault.Saw = func(any) { renewed(t, b.Locks(), "k", "me", 2*time.Minute, true) }
			host.Inject(at.fault)
			fence, ok, err := c.Locks().Renew(ctx, "k", "me", at.ttl)
			if i := lookUp(t, b, "k"); !ok || err != nil || i.Fence != fence || i.TTL != at.ttl {
				t.Errorf("%d, %v, %v; the lock has the fence %d and lasts %v", fence, ok, err, i.Fence, i.TTL)
			}
		})
	}
}

// A key whose shared holders have died is held by nobody, and their token owns nothing.
func TestLockOfDeadSharers(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		b := w.peer()
		cl, err := a.TryAcquire(ctx, "k", etcdclaims.Shared())
		noErr(t, err)
		for _, held := range []bool{true, false} {
			if is, err := b.Locks().IsLocked(ctx, "k"); is != held || err != nil {
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
