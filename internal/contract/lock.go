package contract

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/locks"
)

// locked locks, and wants it to succeed or not.
func (t *trial) locked(k locks.Locks, key, owner string, ttl time.Duration, want bool) (fence int64) {
	t.Helper()
	fence, ok, err := k.TryAcquire(t.ctx, key, owner, ttl)
	t.ok(err)
	if ok != want || ok != (fence > 0) {
		t.Fatalf("locking %s for %s: %v with fence %d, want %v", key, owner, ok, fence, want)
	}
	return fence
}

func (t *trial) relocked(k locks.Locks, key, owner string, ttl time.Duration, want bool) (fence int64) {
	t.Helper()
	fence, ok, err := k.Renew(t.ctx, key, owner, ttl)
	t.ok(err)
	if ok != want || ok != (fence > 0) {
		t.Fatalf("renewing %s for %s: %v with fence %d, want %v", key, owner, ok, fence, want)
	}
	return fence
}

func (t *trial) unlocked(k locks.Locks, key, owner string, want bool) {
	t.Helper()
	ok, err := k.Release(t.ctx, key, owner)
	t.ok(err)
	if ok != want {
		t.Fatalf("unlocking %s for %s: %v, want %v", key, owner, ok, want)
	}
}

// lockedBy wants the key to have the owner, or with "" none.
func (t *trial) lockedBy(k locks.Locks, key, want string) {
	t.Helper()
	owner, ok, err := k.Owner(t.ctx, key)
	t.ok(err)
	is, err := k.IsLocked(t.ctx, key)
	t.ok(err)
	if owner != want || ok != (want != "") || is != ok {
		t.Fatalf("%s is locked by %q (%v, %v), want %q", key, owner, ok, is, want)
	}
}

var lockCases = []Case{
	{"locks are their owners'", func(t *trial) {
		const ttl = time.Minute
		a, b := t.pair(etcdclaims.Config{})
		here, there := locks.New(a), locks.New(b)
		t.lockedBy(here, "k", "")
		t.unlocked(here, "k", "me", false)
		t.relocked(here, "k", "me", ttl, false)
		first := t.locked(here, "k", "me", ttl, true)
		t.lockedBy(there, "k", "me")
		// The name is the identity, in whatever process.
		if again := t.locked(there, "k", "me", ttl, true); again != first {
			t.Errorf("fence %d became %d for the same owner", first, again)
		}
		if again := t.relocked(there, "k", "me", ttl, true); again != first {
			t.Errorf("fence %d became %d by renewing", first, again)
		}
		t.locked(here, "k", "you", ttl, false)
		t.locked(there, "k", "you", ttl, false)
		t.relocked(there, "k", "you", ttl, false)
		t.unlocked(there, "k", "you", false)
		t.lockedBy(here, "k", "me")
		t.unlocked(there, "k", "me", true)
		t.unlocked(here, "k", "me", false)
		t.lockedBy(here, "k", "")
		t.rises(first, t.locked(there, "k", "you", ttl, true))
	}},

	{"of many who lock one succeeds", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		var wg sync.WaitGroup
		var won atomic.Int64
		for i := range 8 {
			wg.Go(func() {
				_, ok, err := locks.New([]*etcdclaims.Client{a, b}[i%2]).TryAcquire(t.ctx, "k", fmt.Sprint("owner", i), time.Minute)
				if err != nil {
					t.Error(err)
				}
				if ok {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d have locked the key", won.Load())
		}
	}},

	{"locks and claims exclude each other", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		k := locks.New(b)
		claim := t.try(a, "k")
		t.lockedBy(k, "k", "a")
		t.locked(k, "k", "a", time.Minute, false) // the label of a claim is no lock's owner
		t.unlocked(k, "k", "a", false)
		t.relocked(k, "k", "a", time.Minute, false)
		t.ok(claim.Check())
		t.ok(claim.Release(t.ctx))
		fence := t.locked(k, "k", "me", time.Minute, true)
		if info := t.refused(a, "k"); info.Owner != "me" || info.Kind != "lock" || info.Fence != fence {
			t.Errorf("a lock is told as %+v", info)
		}
		turns := make(chan turn, 1)
		t.queue(t.ctx, a, "k", 1, turns)
		t.locked(k, "k", "you", time.Minute, false)
		t.unlocked(k, "k", "me", true)
		got := t.next(turns)
		t.ok(got.err)
		t.rises(claim.Fence(), fence, got.claim.Fence())
	}},

	{"an owner's locks are released at once", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		k := locks.New(a)
		for i := range 5 {
			t.locked(k, fmt.Sprint("k", i), "me", time.Minute, true)
		}
		t.locked(k, "yours", "you", time.Minute, true)
		for _, want := range []int{5, 0} {
			if n, err := locks.New(b).ReleaseAll(t.ctx, "me"); n != want || err != nil {
				t.Errorf("released %d, %v, want %d", n, err, want)
			}
		}
		t.lockedBy(k, "k0", "")
		t.lockedBy(k, "yours", "you")
	}},
}
