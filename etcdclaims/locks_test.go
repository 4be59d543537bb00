package etcdclaims_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// locked locks, and wants the outcome.
func locked(t *testing.T, k etcdclaims.Locks, key, owner string, ttl time.Duration, want bool) int64 {
	t.Helper()
	fence, ok, err := k.TryAcquire(t.Context(), key, owner, ttl)
	noErr(t, err)
	if ok != want || ok != (fence > 0) {
		t.Fatalf("locking %q for %q: %v with fence %d, want %v", key, owner, ok, fence, want)
	}
	return fence
}

func renewed(t *testing.T, k etcdclaims.Locks, key, owner string, ttl time.Duration, want bool) int64 {
	t.Helper()
	fence, ok, err := k.Renew(t.Context(), key, owner, ttl)
	noErr(t, err)
	if ok != want || ok != (fence > 0) {
		t.Fatalf("renewing %q for %q: %v with fence %d, want %v", key, owner, ok, fence, want)
	}
	return fence
}

func unlocked(t *testing.T, k etcdclaims.Locks, key, owner string, want bool) {
	t.Helper()
	ok, err := k.Release(t.Context(), key, owner)
	noErr(t, err)
	if ok != want {
		t.Fatalf("unlocking %q for %q: %v, want %v", key, owner, ok, want)
	}
}

// lockedBy wants the owner, "" for none.
func lockedBy(t *testing.T, k etcdclaims.Locks, key, want string) {
	t.Helper()
	owner, ok, err := k.Owner(t.Context(), key)
	noErr(t, err)
	is, err := k.IsLocked(t.Context(), key)
	noErr(t, err)
	if owner != want || ok != (want != "") || is != ok {
		t.Fatalf("%q is locked by %q (%v, IsLocked %v), want %q", key, owner, ok, is, want)
	}
}

func TestLocks(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	one, two := a.Locks(), b.Locks()
	const ttl = time.Minute

	lockedBy(t, one, "k", "")
	unlocked(t, one, "k", "me", false)
	renewed(t, one, "k", "me", ttl, false)
	first := locked(t, one, "k", "me", ttl, true)
	lockedBy(t, two, "k", "me")
	// The name is the identity: in another client it is the same owner.
	if again := locked(t, two, "k", "me", ttl, true); again != first {
		t.Errorf("the same owner's lock went from fence %d to %d", first, again)
	}
	locked(t, one, "k", "you", ttl, false)
	locked(t, two, "k", "you", ttl, false)
	unlocked(t, two, "k", "you", false)
	renewed(t, two, "k", "you", ttl, false)
	lockedBy(t, one, "k", "me")
	if again := renewed(t, two, "k", "me", ttl, true); again != first {
		t.Errorf("renewing took fence %d to %d", first, again)
	}
	unlocked(t, two, "k", "me", true)
	unlocked(t, one, "k", "me", false)
	renewed(t, one, "k", "me", ttl, false)
	lockedBy(t, one, "k", "")
	if second := locked(t, two, "k", "you", ttl, true); second <= first {
		t.Errorf("fence went from %d to %d", first, second)
	}
	locked(t, one, "k", "me", ttl, false)
	unlocked(t, one, "k", "you", true)

	// Nothing is left, not even leases of tries that came to nothing.
	resp, err := etcd.Get(t.Context(), prefix+"own/", clientv3.WithPrefix())
	noErr(t, err)
	index, err := etcd.Get(t.Context(), prefix+"lock/", clientv3.WithPrefix())
	noErr(t, err)
	if len(resp.Kvs)+len(index.Kvs) > 0 {
		t.Errorf("left over: %v %v", resp.Kvs, index.Kvs)
	}
}

func TestLocksOneWinner(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	type result struct {
		fence int64
		ok    bool
		err   error
	}
	for _, same := range []bool{false, true} {
		results := make(chan result, 16)
		for i := range cap(results) {
			go func() {
				owner := "same"
				if !same {
					owner = fmt.Sprint("owner-", i)
				}
				k := []etcdclaims.Locks{a.Locks(), b.Locks()}[i%2]
				fence, ok, err := k.TryAcquire(t.Context(), fmt.Sprint("k", same), owner, time.Minute)
				results <- result{fence, ok, err}
			}()
		}
		won, fences := 0, map[int64]bool{}
		for range cap(results) {
			r := <-results
			noErr(t, r.err)
			if r.ok {
				won++
				fences[r.fence] = true
			}
		}
		if want := 1; !same && won != want || same && won != cap(results) || len(fences) != 1 {
			t.Errorf("same owner %v: %d of %d won, with fences %v", same, won, cap(results), fences)
		}
	}
}

func TestLocksTTL(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	one, two := a.Locks(), b.Locks()
	first := locked(t, one, "k", "me", 100*time.Second, true)
	if ttl := lookUp(t, a, "k").TTL; ttl < 90*time.Second || ttl > 100*time.Second {
		t.Errorf("TTL %v", ttl)
	}
	second := locked(t, two, "k", "me", 300*time.Second, true)
	if second <= first {
		t.Errorf("another TTL took fence %d to %d", first, second)
	}
	if ttl := lookUp(t, a, "k").TTL; ttl < 290*time.Second {
		t.Errorf("TTL %v", ttl)
	}
	third := renewed(t, one, "k", "me", 30*time.Second, true) // shorter, too
	if third <= second {
		t.Errorf("another TTL took fence %d to %d", second, third)
	}
	if ttl := lookUp(t, a, "k").TTL; ttl > 30*time.Second {
		t.Errorf("TTL %v", ttl)
	}
	if ok, err := a.Owns(t.Context(), tokenFor("k", second)); ok || err != nil {
		t.Errorf("the token before owns: %v, %v", ok, err)
	}
	if ok, err := a.Owns(t.Context(), tokenFor("k", third)); !ok || err != nil {
		t.Errorf("the token does not own: %v, %v", ok, err)
	}
	lockedBy(t, two, "k", "me")
}

// The fence of a lock that is renewed with the TTL it has stays, below etcd's
// least TTL as well.
func TestLocksShortTTLKeepsFence(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		a, _, _ := twoOwners(t, server.Etcd(t), etcdclaims.Config{})
		for _, ttl := range []time.Duration{time.Millisecond, time.Second, 1500 * time.Millisecond, 2 * time.Second, 3 * time.Second} {
			key := ttl.String()
			first := locked(t, a.Locks(), key, "me", ttl, true)
			if again := renewed(t, a.Locks(), key, "me", ttl, true); again != first {
				t.Errorf("TTL %v: renewing took fence %d to %d", ttl, first, again)
			}
			if again := locked(t, a.Locks(), key, "me", ttl, true); again != first {
				t.Errorf("TTL %v: locking again took fence %d to %d", ttl, first, again)
			}
		}
	})
}

func TestLocksExpire(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		a, b, _ := twoOwners(t, server.Etcd(t), etcdclaims.Config{})
		one, two := a.Locks(), b.Locks()
		first := locked(t, one, "k", "me", 30*time.Second, true)
		time.Sleep(29 * time.Second)
		lockedBy(t, two, "k", "me")
		locked(t, two, "k", "you", 30*time.Second, false)
		renewed(t, one, "k", "me", 30*time.Second, true)
		time.Sleep(29 * time.Second)
		locked(t, one, "k", "me", 30*time.Second, true) // renews as well
		time.Sleep(29 * time.Second)
		lockedBy(t, two, "k", "me")
		time.Sleep(3 * time.Second)
		lockedBy(t, two, "k", "")
		renewed(t, one, "k", "me", 30*time.Second, false)
		unlocked(t, one, "k", "me", false)
		if n, err := one.ReleaseAll(t.Context(), "me"); n != 0 || err != nil {
			t.Errorf("released %d expired locks, %v", n, err)
		}
		if second := locked(t, two, "k", "you", 300*time.Second, true); second <= first {
			t.Errorf("fence %d after %d", second, first)
		}
		locked(t, one, "k", "me", 30*time.Second, false)
		// A shorter TTL counts from now.
		renewed(t, two, "k", "you", 10*time.Second, true)
		time.Sleep(13 * time.Second)
		locked(t, one, "k", "me", 30*time.Second, true)
	})
}

func TestLocksReleaseAll(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	one, two := a.Locks(), b.Locks()
	for i := range 40 {
		locked(t, []etcdclaims.Locks{one, two}[i%2], fmt.Sprint("mine/", i), "me", time.Minute, true)
	}
	locked(t, one, "me", "you", time.Minute, true)    // a key with the owner's name
	locked(t, one, "yours", "me/", time.Minute, true) // an owner whose name begins with the other's
	locked(t, one, "gone", "me", time.Minute, true)   // forced away behind the back
	noErr(t, b.ForceRelease(ctx, "gone", "test"))     //
	locked(t, one, "passed on", "me", time.Minute, true)
	unlocked(t, one, "passed on", "me", true)
	locked(t, one, "passed on", "you", time.Minute, true)
	mine := newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: "me"})
	claim := tryClaim(t, mine, "claimed")

	for want := range []int{40, 0} {
		want = []int{40, 0}[want]
		if n, err := two.ReleaseAll(ctx, "me"); n != want || err != nil {
			t.Errorf("released %d, %v, want %d", n, err, want)
		}
	}
	lockedBy(t, one, "me", "you")
	lockedBy(t, one, "yours", "me/")
	lockedBy(t, one, "passed on", "you")
	noErr(t, claim.Check())
	if ok, err := claim.Owns(ctx); !ok || err != nil {
		t.Errorf("the claim is gone: %v, %v", ok, err)
	}
	if n, err := one.ReleaseAll(ctx, "you"); n != 2 || err != nil {
		t.Errorf("released %d, %v, want 2", n, err)
	}
	if n, err := one.ReleaseAll(ctx, "nobody"); n != 0 || err != nil {
		t.Errorf("released %d, %v", n, err)
	}
	lockedBy(t, one, "mine/7", "")
}

func TestLocksAndClaims(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	fence := locked(t, a.Locks(), "locked", "b", time.Minute, true) // b is the other client's label
	_, err := b.TryAcquire(ctx, "locked")
	wantIs(t, err, etcdclaims.ErrHeld)
	_, err = b.TryBegin(ctx, "locked")
	wantIs(t, err, etcdclaims.ErrHeld)
	if i := lookUp(t, b, "locked"); i.Kind != "lock" || i.Owner != "b" || i.Fence != fence {
		t.Errorf("%+v", i)
	}
	if _, errs := b.TryAcquireEach(ctx, []string{"locked", "free"}); errs[1] != nil {
		t.Error(errs[1])
	} else {
		wantIs(t, errs[0], etcdclaims.ErrHeld)
	}
	_, err = b.TryAcquireAll(ctx, []string{"locked", "free 2"})
	wantIs(t, err, etcdclaims.ErrHeld)

	// A claim whose owner's label is the owner's name is not the owner's lock.
	claim := tryClaim(t, a, "claimed")
	k := b.Locks()
	locked(t, k, "claimed", "a", time.Minute, false)
	renewed(t, k, "claimed", "a", time.Minute, false)
	unlocked(t, k, "claimed", "a", false)
	if n, err := k.ReleaseAll(ctx, "a"); n != 0 || err != nil {
		t.Errorf("released %d, %v", n, err)
	}
	lockedBy(t, k, "claimed", "a")
	noErr(t, claim.Check())
	if ok, err := claim.Owns(ctx); !ok || err != nil {
		t.Errorf("the claim is gone: %v, %v", ok, err)
	}

	// Who waits in line for a claim is not overtaken by a lock.
	waiting := make(chan error, 1)
	go func() {
		cl, err := b.Acquire(ctx, "locked")
		if err == nil {
			err = cl.Release(ctx)
		}
		waiting <- err
	}()
	eventually(t, "a waiter", func() bool { return lookUp(t, a, "locked").Waiting == 1 })
	locked(t, a.Locks(), "locked", "b", time.Minute, true) // the owner is
	unlocked(t, a.Locks(), "locked", "b", true)
	noErr(t, <-waiting)
	locked(t, a.Locks(), "locked", "c", time.Minute, true)
}

func TestLocksForeignValue(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, _, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	_, err := etcd.Put(t.Context(), prefix+"own/k", "not ours")
	noErr(t, err)
	k := a.Locks()
	locked(t, k, "k", "me", time.Minute, false)
	unlocked(t, k, "k", "me", false)
	renewed(t, k, "k", "me", time.Minute, false)
	if is, err := k.IsLocked(t.Context(), "k"); !is || err != nil {
		t.Errorf("IsLocked: %v, %v", is, err)
	}
	if kv := rawKV(t, etcd, prefix+"own/k"); kv == nil || string(kv.Value) != "not ours" {
		t.Errorf("it was changed: %v", kv)
	}
}

func TestLocksBadInput(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, _, _ := twoOwners(t, etcd, etcdclaims.Config{})
	k := a.Locks()
	ctx := t.Context()
	before := a.Stats().Requests
	try := func(ctx context.Context, key, owner string, ttl time.Duration) map[string]error {
		out := map[string]error{}
		_, _, out["TryAcquire"] = k.TryAcquire(ctx, key, owner, ttl)
		_, _, out["Renew"] = k.Renew(ctx, key, owner, ttl)
		return out
	}
	for _, key := range badKeys {
		for what, err := range try(ctx, key, "me", time.Minute) {
			if err == nil {
				t.Errorf("%s took the key %q", what, key)
			} else {
				wantIs(t, err, etcdclaims.ErrInvalidKey)
			}
		}
		_, err := k.Release(ctx, key, "me")
		wantIs(t, err, etcdclaims.ErrInvalidKey)
		_, err = k.IsLocked(ctx, key)
		wantIs(t, err, etcdclaims.ErrInvalidKey)
		_, _, err = k.Owner(ctx, key)
		wantIs(t, err, etcdclaims.ErrInvalidKey)
	}
	for _, owner := range []string{"", "a\nb", "\xff", strings.Repeat("x", 1025)} {
		for what, err := range try(ctx, "k", owner, time.Minute) {
			if err == nil {
				t.Errorf("%s took the owner %q", what, owner)
			}
		}
		if _, err := k.Release(ctx, "k", owner); err == nil {
			t.Errorf("Release took the owner %q", owner)
		}
		if _, err := k.ReleaseAll(ctx, owner); err == nil {
			t.Errorf("ReleaseAll took the owner %q", owner)
		}
	}
	for _, ttl := range []time.Duration{0, -time.Second, 366 * 24 * time.Hour} {
		for what, err := range try(ctx, "k", "me", ttl) {
			if err == nil || !strings.Contains(err.Error(), ttl.String()) {
				t.Errorf("%s with TTL %v: %v", what, ttl, err)
			}
		}
	}
	if n := a.Stats().Requests - before; n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// A lock whose lease is revoked before it is put is put on another.
func TestLockWhoseLeaseIsRevokedAtBirth(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{})
		r := host.Inject(claimtest.Fault{On: claimtest.Acquire, Err: rpctypes.ErrGRPCLeaseNotFound})
		locked(t, c.Locks(), "k", "me", time.Minute, true)
		if r.Hits() != 1 {
			t.Errorf("met %d times", r.Hits())
		}
	})
}
