package locks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A lock's request that arrives after the lock was released does not lock the key
// again, whoever released it and whenever that request comes.
func TestLateLockDoesNotReturn(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for _, known := range []bool{true, false} { // whether the caller waited to know
		for _, after := range []time.Duration{0, 10 * time.Second, 10 * time.Minute} {
			testclaims.Case(t, fmt.Sprintf("known %v, %v", known, after), func(t *testing.T, w *testclaims.World) {
				a, host := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
				b := w.Peer()
				hold := make(chan struct{})
				host.Inject(claimtest.Fault{On: steps.Take, Hold: hold})
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				if !known {
					time.AfterFunc(time.Second, cancel)
				}
				_, ok, err := locks.New(a).TryAcquire(ctx, "k", "me", time.Hour)
				if known && (!ok || err != nil) || !known && !errors.Is(err, etcdclaims.ErrUnknown) {
					t.Fatalf("locking: %v, %v", ok, err)
				}
				if ok, err := locks.New(a).Release(bg, "k", "me"); ok != known || err != nil {
					t.Errorf("released %v: %v", ok, err)
				}
				time.Sleep(after)
				close(hold)
				time.Sleep(10 * time.Minute)
				if locked, err := locks.New(b).IsLocked(bg, "k"); locked || err != nil {
					t.Errorf("it is locked again: %v", err)
				}
				w.CloseClean(a, b)
				w.NoLeases()
			})
		}
	}
}

// The same where the lease of the late request cannot be revoked: the request is void.
func TestLateLockOnALeaseThatStays(t *testing.T) {
	t.Parallel()
	testclaims.Virtually(t, func(t *testing.T, w *testclaims.World) {
		bg := context.Background()
		a, host := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
		hold := make(chan struct{})
		host.Inject(claimtest.Fault{On: steps.Take, Hold: hold})
		host.Inject(claimtest.Fault{On: claimtest.Revoke, Times: -1, LoseRequest: true})
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, _, err := locks.New(a).TryAcquire(ctx, "k", "me", time.Hour); !errors.Is(err, etcdclaims.ErrUnknown) {
			t.Fatalf("locking: %v", err)
		}
		if ok, err := locks.New(a).Release(bg, "k", "me"); ok || err != nil {
			t.Errorf("released %v: %v", ok, err)
		}
		close(hold)
		time.Sleep(time.Minute)
		if locked, err := locks.New(w.Peer()).IsLocked(bg, "k"); locked || err != nil {
			t.Errorf("it is locked again: %v", err)
		}
	})
}

// All locks of a client settle the same requests: what one of them has sent does not lock the key
// after another of them has released it, although the client has not settled it by itself yet.
func TestLateLockOfOtherLocks(t *testing.T) {
	t.Parallel()
	testclaims.Virtually(t, func(t *testing.T, w *testclaims.World) {
		bg := context.Background()
		a, host := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
		hold := make(chan struct{})
		host.Inject(claimtest.Fault{On: steps.Take, Hold: hold})
		host.Inject(claimtest.Fault{On: steps.Resolve, LoseRequest: true}) // of the client by itself
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, _, err := locks.New(a).TryAcquire(ctx, "k", "me", time.Hour); !errors.Is(err, etcdclaims.ErrUnknown) {
			t.Fatalf("locking: %v", err)
		}
		synctest.Wait()
		if ok, err := locks.New(a).Release(bg, "k", "me"); ok || err != nil {
			t.Errorf("released %v: %v", ok, err)
		}
		close(hold)
		time.Sleep(time.Minute)
		if locked, err := locks.New(w.Peer()).IsLocked(bg, "k"); locked || err != nil {
			t.Errorf("it is locked again: %v", err)
		}
	})
}

// A caller that gives up while nothing is known is told so, and the client finds
// out by itself: the lock is there, and can be read, or never will be.
func TestLockGivenUpIsSettled(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for name, fault := range map[string]claimtest.Fault{
		"request lost": {On: steps.Take, LoseRequest: true},
		"reply lost":   {On: steps.Take, LoseReply: true},
	} {
		testclaims.Case(t, name, func(t *testing.T, w *testclaims.World) {
			a, host := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
			host.Inject(fault)
			const n = 1000
			done := make(chan error, n)
			for i := range n {
				go func() {
					ctx, cancel := context.WithTimeout(bg, time.Second)
					defer cancel()
					_, _, err := locks.New(a).TryAcquire(ctx, fmt.Sprint("k", i), "me", time.Hour)
					done <- err
				}()
			}
			time.Sleep(time.Second / 2)
			host.Cut()
			for range n {
				<-done
			}
			time.Sleep(time.Minute)
			host.Heal()
			time.Sleep(10 * time.Second)
			there := w.Count("/own/k")
			time.Sleep(time.Minute)
			if now := w.Count("/own/k"); now != there || w.Count("/void/") > 0 {
				t.Errorf("%d locks, then %d, and %d that are void", there, now, w.Count("/void/"))
			}
			if got, err := locks.New(a).ReleaseAll(bg, "me"); got != there || err != nil {
				t.Errorf("released %d of %d: %v", got, there, err)
			}
			w.NothingLeft()
			w.NoLeases()
		})
	}
}

// A raised epoch ends locks: no call takes one for held that Owns denies, nobody else
// gets the key before its TTL is over, and the owner gets it by locking anew.
func TestLocksAfterRaisedEpoch(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for _, ttl := range []time.Duration{30 * time.Second, time.Minute} {
		testclaims.Case(t, ttl.String(), func(t *testing.T, w *testclaims.World) {
			a, b := w.Peer(), w.Peer()
			k := locks.New(a)
			first := testclaims.Locked(t, k, "k", "me", 30*time.Second, true)
			testclaims.Locked(t, k, "other", "me", 30*time.Second, true)
			_, err := admin.RaiseEpoch(bg, w.Raw, w.Prefix, 0)
			testclaims.NoErr(t, err)
			if fence, ok, err := k.Renew(bg, "k", "me", ttl); ok || err != nil {
				t.Errorf("renewed: fence %d, %v", fence, err)
			}
			if _, ok, err := locks.New(b).TryAcquire(bg, "k", "another", ttl); ok || err != nil {
				t.Errorf("another has it at once: %v", err)
			}
			fence := testclaims.Locked(t, k, "k", "me", ttl, true)
			if owns, err := b.Owns(bg, fencing.Token{Key: "k", Fence: fence}); !owns || err != nil || fence <= first {
				t.Errorf("fence %d after %d, owned: %v, %v", fence, first, owns, err)
			}
			for range 5 {
				time.Sleep(ttl / 2)
				again, ok, err := k.Renew(bg, "k", "me", ttl)
				if again != fence || !ok || err != nil {
					t.Errorf("renewed: fence %d of %d, %v, %v", again, fence, ok, err)
				}
			}
			if ok, err := k.Release(bg, "k", "me"); !ok || err != nil {
				t.Errorf("released: %v, %v", ok, err)
			}
			testclaims.Locked(t, locks.New(b), "other", "another", ttl, true) // its TTL is over
		})
	}
	testclaims.Case(t, "release", func(t *testing.T, w *testclaims.World) {
		a := w.Peer()
		testclaims.Locked(t, locks.New(a), "k", "me", time.Hour, true)
		_, err := admin.RaiseEpoch(bg, w.Raw, w.Prefix, 0)
		testclaims.NoErr(t, err)
		if ok, err := locks.New(a).Release(bg, "k", "me"); ok || err != nil {
			t.Errorf("released: %v, %v", ok, err)
		}
		testclaims.LockedBy(t, locks.New(a), "k", "")
	})
}

// A lock that expired while its release was on its way was not released by it.
func TestReleaseOfLockThatExpires(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for _, taken := range []bool{false, true} {
		for name, fault := range map[string]claimtest.Fault{"request": {LoseRequest: true}, "reply": {LoseReply: true}} {
			for _, ttl := range []time.Duration{3 * time.Second, time.Hour} {
				testclaims.Case(t, fmt.Sprintf("%s lost, TTL %v, taken %v", name, ttl, taken), func(t *testing.T, w *testclaims.World) {
					a, host := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
					b := w.Peer()
					k := locks.New(a)
					testclaims.Locked(t, k, "k", "me", ttl, true)
					time.Sleep(1500 * time.Millisecond)
					fault := fault // which other cases have, too
					fault.On = steps.Free
					for range 2 {
						host.Inject(fault)
					}
					if taken {
						time.AfterFunc(4*time.Second, func() { _, _, _ = locks.New(b).TryAcquire(bg, "k", "another", time.Hour) })
					}
					ok, err := k.Release(bg, "k", "me")
					switch {
					case ttl == time.Hour && (!ok || err != nil),
						ttl != time.Hour && (ok || !errors.Is(err, etcdclaims.ErrUnknown)):
						t.Errorf("released %v: %v", ok, err)
					}
					if owner, _, err := k.Owner(bg, "k"); owner == "me" || err != nil {
						t.Errorf("owner %q, %v", owner, err)
					}
				})
			}
		}
	}
}

// One entry that cannot be a lock's keeps none of the others.
func TestLocksReleaseAllGoesOn(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	testclaims.Virtually(t, func(t *testing.T, w *testclaims.World) {
		a, host := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
		k := locks.New(a)
		const n = 600
		for i := range n {
			testclaims.Locked(t, k, fmt.Sprintf("k%04d", i), "me", time.Hour, true)
		}
		index := ""
		for key := range w.All() {
			if i := strings.LastIndex(key, "/"); strings.HasPrefix(key, w.Prefix+"lock/") {
				index = key[:i+1]
			}
		}
		for _, bad := range []string{"", "a\nb", "\xff", "k0500\x01", strings.Repeat("x", 2000), "free"} {
			_, err := w.Raw.Put(bg, index+bad, "")
			testclaims.NoErr(t, err)
		}
		_, err := w.Raw.Put(bg, w.Own("k0007"), "not ours", clientv3.WithIgnoreLease())
		testclaims.NoErr(t, err)
		host.Inject(claimtest.Fault{On: steps.Free, Skip: 3, LoseReply: true})
		host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 20 * time.Millisecond})
		begin := time.Now()
		got, err := k.ReleaseAll(bg, "me")
		if got != n-1 || !errors.Is(err, etcdclaims.ErrInvalidKey) || len(err.Error()) > 4000 {
			t.Errorf("released %d of %d: %v", got, n-1, err)
		}
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("it took %v", d)
		}
		if left := w.Count("/own/"); left != 1 {
			t.Errorf("%d keys are left", left)
		}
	})
}
