package locks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestLocks(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, b, prefix := testclaims.TwoOwners(t, etcd, etcdclaims.Config{})
	one, two := locks.New(a), locks.New(b)
	const ttl = time.Minute

	testclaims.LockedBy(t, one, "k", "")
	testclaims.Unlocked(t, one, "k", "me", false)
	testclaims.Renewed(t, one, "k", "me", ttl, false)
	first := testclaims.Locked(t, one, "k", "me", ttl, true)
	testclaims.LockedBy(t, two, "k", "me")
	// The name is the identity: in another client it is the same owner.
	if again := testclaims.Locked(t, two, "k", "me", ttl, true); again != first {
		t.Errorf("the same owner's lock went from fence %d to %d", first, again)
	}
	testclaims.Locked(t, one, "k", "you", ttl, false)
	testclaims.Locked(t, two, "k", "you", ttl, false)
	testclaims.Unlocked(t, two, "k", "you", false)
	testclaims.Renewed(t, two, "k", "you", ttl, false)
	testclaims.LockedBy(t, one, "k", "me")
	if again := testclaims.Renewed(t, two, "k", "me", ttl, true); again != first {
		t.Errorf("renewing took fence %d to %d", first, again)
	}
	testclaims.Unlocked(t, two, "k", "me", true)
	testclaims.Unlocked(t, one, "k", "me", false)
	testclaims.Renewed(t, one, "k", "me", ttl, false)
	testclaims.LockedBy(t, one, "k", "")
	if second := testclaims.Locked(t, two, "k", "you", ttl, true); second <= first {
		t.Errorf("fence went from %d to %d", first, second)
	}
	testclaims.Locked(t, one, "k", "me", ttl, false)
	testclaims.Unlocked(t, one, "k", "you", true)

	// Nothing is left, not even leases of tries that came to nothing.
	resp, err := etcd.Get(t.Context(), prefix+"own/", clientv3.WithPrefix())
	testclaims.NoErr(t, err)
	index, err := etcd.Get(t.Context(), prefix+"lock/", clientv3.WithPrefix())
	testclaims.NoErr(t, err)
	if len(resp.Kvs)+len(index.Kvs) > 0 {
		t.Errorf("left over: %v %v", resp.Kvs, index.Kvs)
	}
}

func TestLocksOneWinner(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, b, _ := testclaims.TwoOwners(t, etcd, etcdclaims.Config{})
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
				k := []locks.Locks{locks.New(a), locks.New(b)}[i%2]
				fence, ok, err := k.TryAcquire(t.Context(), fmt.Sprint("k", same), owner, time.Minute)
				results <- result{fence, ok, err}
			}()
		}
		won, fences := 0, map[int64]bool{}
		for range cap(results) {
			r := <-results
			testclaims.NoErr(t, r.err)
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
	a, b, _ := testclaims.TwoOwners(t, etcd, etcdclaims.Config{})
	one, two := locks.New(a), locks.New(b)
	first := testclaims.Locked(t, one, "k", "me", 100*time.Second, true)
	if ttl := testclaims.LookUp(t, a, "k").TTL; ttl < 90*time.Second || ttl > 100*time.Second {
		t.Errorf("TTL %v", ttl)
	}
	second := testclaims.Locked(t, two, "k", "me", 300*time.Second, true)
	if second <= first {
		t.Errorf("another TTL took fence %d to %d", first, second)
	}
	if ttl := testclaims.LookUp(t, a, "k").TTL; ttl < 290*time.Second {
		t.Errorf("TTL %v", ttl)
	}
	third := testclaims.Renewed(t, one, "k", "me", 30*time.Second, true) // shorter, too
	if third <= second {
		t.Errorf("another TTL took fence %d to %d", second, third)
	}
	if ttl := testclaims.LookUp(t, a, "k").TTL; ttl > 30*time.Second {
		t.Errorf("TTL %v", ttl)
	}
	if ok, err := a.Owns(t.Context(), fencing.Token{Key: "k", Fence: second}); ok || err != nil {
		t.Errorf("the token before owns: %v, %v", ok, err)
	}
	if ok, err := a.Owns(t.Context(), fencing.Token{Key: "k", Fence: third}); !ok || err != nil {
		t.Errorf("the token does not own: %v, %v", ok, err)
	}
	testclaims.LockedBy(t, two, "k", "me")
}

// The fence of a lock that is renewed with the TTL it has stays, below etcd's
// least TTL as well.
func TestLocksShortTTLKeepsFence(t *testing.T) {
	t.Parallel()
	testclaims.Virtually(t, func(t *testing.T, w *testclaims.World) {
		a, _, _ := testclaims.TwoOwners(t, w.Server.Etcd(t), etcdclaims.Config{})
		for _, ttl := range []time.Duration{time.Millisecond, time.Second, 1500 * time.Millisecond, 2 * time.Second, 3 * time.Second} {
			key := ttl.String()
			first := testclaims.Locked(t, locks.New(a), key, "me", ttl, true)
			if again := testclaims.Renewed(t, locks.New(a), key, "me", ttl, true); again != first {
				t.Errorf("TTL %v: renewing took fence %d to %d", ttl, first, again)
			}
			if again := testclaims.Locked(t, locks.New(a), key, "me", ttl, true); again != first {
				t.Errorf("TTL %v: locking again took fence %d to %d", ttl, first, again)
			}
		}
	})
}

func TestLocksExpire(t *testing.T) {
	t.Parallel()
	testclaims.Virtually(t, func(t *testing.T, w *testclaims.World) {
		a, b, _ := testclaims.TwoOwners(t, w.Server.Etcd(t), etcdclaims.Config{})
		one, two := locks.New(a), locks.New(b)
		first := testclaims.Locked(t, one, "k", "me", 30*time.Second, true)
		time.Sleep(29 * time.Second)
		testclaims.LockedBy(t, two, "k", "me")
		testclaims.Locked(t, two, "k", "you", 30*time.Second, false)
		testclaims.Renewed(t, one, "k", "me", 30*time.Second, true)
		time.Sleep(29 * time.Second)
		testclaims.Locked(t, one, "k", "me", 30*time.Second, true) // renews as well
		time.Sleep(29 * time.Second)
		testclaims.LockedBy(t, two, "k", "me")
		time.Sleep(3 * time.Second)
		testclaims.LockedBy(t, two, "k", "")
		testclaims.Renewed(t, one, "k", "me", 30*time.Second, false)
		testclaims.Unlocked(t, one, "k", "me", false)
		if n, err := one.ReleaseAll(t.Context(), "me"); n != 0 || err != nil {
			t.Errorf("released %d expired locks, %v", n, err)
		}
		if second := testclaims.Locked(t, two, "k", "you", 300*time.Second, true); second <= first {
			t.Errorf("fence %d after %d", second, first)
		}
		testclaims.Locked(t, one, "k", "me", 30*time.Second, false)
		// A shorter TTL counts from now.
		testclaims.Renewed(t, two, "k", "you", 10*time.Second, true)
		time.Sleep(13 * time.Second)
		testclaims.Locked(t, one, "k", "me", 30*time.Second, true)
	})
}

func TestLocksReleaseAll(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := testclaims.TwoOwners(t, etcd, etcdclaims.Config{})
	one, two := locks.New(a), locks.New(b)
	for i := range 40 {
		testclaims.Locked(t, []locks.Locks{one, two}[i%2], fmt.Sprint("mine/", i), "me", time.Minute, true)
	}
	testclaims.Locked(t, one, "me", "you", time.Minute, true)       // a key with the owner's name
	testclaims.Locked(t, one, "yours", "me/", time.Minute, true)    // an owner whose name begins with the other's
	testclaims.Locked(t, one, "gone", "me", time.Minute, true)      // forced away behind the back
	testclaims.NoErr(t, admin.ForceRelease(ctx, b, "gone", "test")) //
	testclaims.Locked(t, one, "passed on", "me", time.Minute, true)
	testclaims.Unlocked(t, one, "passed on", "me", true)
	testclaims.Locked(t, one, "passed on", "you", time.Minute, true)
	mine := claimtest.NewClient(t, testclaims.EtcdFunc(testetcd.Shared(t).Client), etcdclaims.Config{Prefix: prefix, Owner: "me"})
	claim := testclaims.TryClaim(t, mine, "claimed")

	for want := range []int{40, 0} {
		want = []int{40, 0}[want]
		if n, err := two.ReleaseAll(ctx, "me"); n != want || err != nil {
			t.Errorf("released %d, %v, want %d", n, err, want)
		}
	}
	testclaims.LockedBy(t, one, "me", "you")
	testclaims.LockedBy(t, one, "yours", "me/")
	testclaims.LockedBy(t, one, "passed on", "you")
	testclaims.NoErr(t, claim.Check())
	if ok, err := claim.Owns(ctx); !ok || err != nil {
		t.Errorf("the claim is gone: %v, %v", ok, err)
	}
	if n, err := one.ReleaseAll(ctx, "you"); n != 2 || err != nil {
		t.Errorf("released %d, %v, want 2", n, err)
	}
	if n, err := one.ReleaseAll(ctx, "nobody"); n != 0 || err != nil {
		t.Errorf("released %d, %v", n, err)
	}
	testclaims.LockedBy(t, one, "mine/7", "")
}

func TestLocksAndClaims(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := testclaims.TwoOwners(t, etcd, etcdclaims.Config{})
	fence := testclaims.Locked(t, locks.New(a), "locked", "b", time.Minute, true) // b is the other client's label
	_, err := b.TryAcquire(ctx, "locked")
	testclaims.WantIs(t, err, etcdclaims.ErrHeld)
	_, err = testwork.Of(b).TryBegin(ctx, "locked")
	testclaims.WantIs(t, err, etcdclaims.ErrHeld)
	if i := testclaims.LookUp(t, b, "locked"); i.Kind != "lock" || i.Owner != "b" || i.Fence != fence {
		t.Errorf("%+v", i)
	}
	if _, errs := b.TryAcquireEach(ctx, []string{"locked", "free"}); errs[1] != nil {
		t.Error(errs[1])
	} else {
		testclaims.WantIs(t, errs[0], etcdclaims.ErrHeld)
	}
	_, err = b.TryAcquireAll(ctx, []string{"locked", "free 2"})
	testclaims.WantIs(t, err, etcdclaims.ErrHeld)

	// A claim whose owner's label is the owner's name is not the owner's lock.
	claim := testclaims.TryClaim(t, a, "claimed")
	k := locks.New(b)
	testclaims.Locked(t, k, "claimed", "a", time.Minute, false)
	testclaims.Renewed(t, k, "claimed", "a", time.Minute, false)
	testclaims.Unlocked(t, k, "claimed", "a", false)
	if n, err := k.ReleaseAll(ctx, "a"); n != 0 || err != nil {
		t.Errorf("released %d, %v", n, err)
	}
	testclaims.LockedBy(t, k, "claimed", "a")
	testclaims.NoErr(t, claim.Check())
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
	testclaims.Eventually(t, "a waiter", func() bool { return testclaims.LookUp(t, a, "locked").Waiting == 1 })
	testclaims.Locked(t, locks.New(a), "locked", "b", time.Minute, true) // the owner is
	testclaims.Unlocked(t, locks.New(a), "locked", "b", true)
	testclaims.NoErr(t, <-waiting)
	testclaims.Locked(t, locks.New(a), "locked", "c", time.Minute, true)
}

func TestLocksForeignValue(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, _, prefix := testclaims.TwoOwners(t, etcd, etcdclaims.Config{})
	_, err := etcd.Put(t.Context(), prefix+"own/k", "not ours")
	testclaims.NoErr(t, err)
	k := locks.New(a)
	testclaims.Locked(t, k, "k", "me", time.Minute, false)
	testclaims.Unlocked(t, k, "k", "me", false)
	testclaims.Renewed(t, k, "k", "me", time.Minute, false)
	if is, err := k.IsLocked(t.Context(), "k"); !is || err != nil {
		t.Errorf("IsLocked: %v, %v", is, err)
	}
	if resp, err := etcd.Get(t.Context(), prefix+"own/k"); err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != "not ours" {
		t.Errorf("it was changed: %v, %v", resp, err)
	}
}

func TestLocksBadInput(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, _, _ := testclaims.TwoOwners(t, etcd, etcdclaims.Config{})
	k := locks.New(a)
	ctx := t.Context()
	before := a.Stats().Requests
	try := func(ctx context.Context, key, owner string, ttl time.Duration) map[string]error {
		out := map[string]error{}
		_, _, out["TryAcquire"] = k.TryAcquire(ctx, key, owner, ttl)
		_, _, out["Renew"] = k.Renew(ctx, key, owner, ttl)
		return out
	}
	for _, key := range testclaims.BadKeys {
		for what, err := range try(ctx, key, "me", time.Minute) {
			if err == nil {
				t.Errorf("%s took the key %q", what, key)
			} else {
				testclaims.WantIs(t, err, etcdclaims.ErrInvalidKey)
			}
		}
		_, err := k.Release(ctx, key, "me")
		testclaims.WantIs(t, err, etcdclaims.ErrInvalidKey)
		_, err = k.IsLocked(ctx, key)
		testclaims.WantIs(t, err, etcdclaims.ErrInvalidKey)
		_, _, err = k.Owner(ctx, key)
		testclaims.WantIs(t, err, etcdclaims.ErrInvalidKey)
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

// The zero Locks are those of no client.
func TestZeroLocks(t *testing.T) {
	t.Parallel()
	var k locks.Locks
	ctx := t.Context()
	errs := make([]error, 6)
	_, _, errs[0] = k.TryAcquire(ctx, "k", "me", time.Minute)
	_, _, errs[1] = k.Renew(ctx, "k", "me", time.Minute)
	_, errs[2] = k.Release(ctx, "k", "me")
	_, errs[3] = k.ReleaseAll(ctx, "me")
	_, errs[4] = k.IsLocked(ctx, "k")
	_, _, errs[5] = k.Owner(ctx, "k")
	for i, err := range errs {
		if !errors.Is(err, etcdclaims.ErrNoClient) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// A lock whose lease is revoked before it is put is put on another.
func TestLockWhoseLeaseIsRevokedAtBirth(t *testing.T) {
	t.Parallel()
	testclaims.Virtually(t, func(t *testing.T, w *testclaims.World) {
		c, host := w.Client(etcdclaims.Config{})
		r := host.Inject(claimtest.Fault{On: claimtest.Acquire, Err: rpctypes.ErrGRPCLeaseNotFound})
		testclaims.Locked(t, locks.New(c), "k", "me", time.Minute, true)
		if r.Hits() != 1 {
			t.Errorf("met %d times", r.Hits())
		}
	})
}
