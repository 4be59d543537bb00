package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A lock's request that arrives after the lock was released does not lock the key
// again, whoever released it and whenever that request comes.
func TestLateLockDoesNotReturn(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for _, known := range []bool{true, false} { // whether the caller waited to know
		for _, after := range []time.Duration{0, 10 * sec, 10 * time.Minute} {
			virtualCase(t, fmt.Sprintf("known %v, %v", known, after), func(t *testing.T, w *world) {
				a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				b := w.peer()
				hold := make(chan struct{})
				host.Inject(claimtest.Fault{On: claimtest.Acquire, Hold: hold})
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				if !known {
					time.AfterFunc(sec, cancel)
				}
				_, ok, err := a.Locks().TryAcquire(ctx, "k", "me", time.Hour)
				if known && (!ok || err != nil) || !known && !errors.Is(err, etcdclaims.ErrUnknown) {
					t.Fatalf("locking: %v, %v", ok, err)
				}
				if ok, err := a.Locks().Release(bg, "k", "me"); ok != known || err != nil {
					t.Errorf("released %v: %v", ok, err)
				}
				time.Sleep(after)
				close(hold)
				time.Sleep(10 * time.Minute)
				if locked, err := b.Locks().IsLocked(bg, "k"); locked || err != nil {
					t.Errorf("it is locked again: %v", err)
				}
				w.closeClean(a, b)
				w.noLeases()
			})
		}
	}
}

// The same where the lease of the late request cannot be revoked: the request is void.
func TestLateLockOnALeaseThatStays(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		bg := context.Background()
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		hold := make(chan struct{})
		host.Inject(claimtest.Fault{On: claimtest.Acquire, Hold: hold})
		host.Inject(claimtest.Fault{On: claimtest.Revoke, Times: -1, LoseRequest: true})
		ctx, cancel := context.WithTimeout(bg, sec)
		defer cancel()
		if _, _, err := a.Locks().TryAcquire(ctx, "k", "me", time.Hour); !errors.Is(err, etcdclaims.ErrUnknown) {
			t.Fatalf("locking: %v", err)
		}
		if ok, err := a.Locks().Release(bg, "k", "me"); ok || err != nil {
			t.Errorf("released %v: %v", ok, err)
		}
		close(hold)
		time.Sleep(time.Minute)
		if locked, err := w.peer().Locks().IsLocked(bg, "k"); locked || err != nil {
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
		"request lost": {On: claimtest.Acquire, LoseRequest: true},
		"reply lost":   {On: claimtest.Acquire, LoseReply: true},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			host.Inject(fault)
			const n = 1000
			done := make(chan error, n)
			for i := range n {
				go func() {
					ctx, cancel := context.WithTimeout(bg, sec)
					defer cancel()
					_, _, err := a.Locks().TryAcquire(ctx, fmt.Sprint("k", i), "me", time.Hour)
					done <- err
				}()
			}
			time.Sleep(sec / 2)
			host.Cut()
			for range n {
				<-done
			}
			time.Sleep(time.Minute)
			host.Heal()
			time.Sleep(10 * sec)
			there := w.count("/own/k")
			time.Sleep(time.Minute)
			if now := w.count("/own/k"); now != there || w.count("/void/") > 0 {
				t.Errorf("%d locks, then %d, and %d that are void", there, now, w.count("/void/"))
			}
			if got, err := a.Locks().ReleaseAll(bg, "me"); got != there || err != nil {
				t.Errorf("released %d of %d: %v", got, there, err)
			}
			w.nothingLeft()
			w.noLeases()
		})
	}
}

// A raised epoch ends locks: no call takes one for held that Owns denies, nobody else
// gets the key before its TTL is over, and the owner gets it by locking anew.
func TestLocksAfterRaisedEpoch(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for _, ttl := range []time.Duration{30 * sec, time.Minute} {
		virtualCase(t, ttl.String(), func(t *testing.T, w *world) {
			a, b := w.peer(), w.peer()
			k := a.Locks()
			first := locked(t, k, "k", "me", 30*sec, true)
			locked(t, k, "other", "me", 30*sec, true)
			_, err := etcdclaims.RaiseEpoch(bg, w.raw, w.prefix, 0)
			noErr(t, err)
			if fence, ok, err := k.Renew(bg, "k", "me", ttl); ok || err != nil {
				t.Errorf("renewed: fence %d, %v", fence, err)
			}
			if _, ok, err := b.Locks().TryAcquire(bg, "k", "another", ttl); ok || err != nil {
				t.Errorf("another has it at once: %v", err)
			}
			fence := locked(t, k, "k", "me", ttl, true)
			if owns, err := b.Owns(bg, tokenFor("k", fence)); !owns || err != nil || fence <= first {
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
			locked(t, b.Locks(), "other", "another", ttl, true) // its TTL is over
		})
	}
	virtualCase(t, "release", func(t *testing.T, w *world) {
		a := w.peer()
		locked(t, a.Locks(), "k", "me", time.Hour, true)
		_, err := etcdclaims.RaiseEpoch(bg, w.raw, w.prefix, 0)
		noErr(t, err)
		if ok, err := a.Locks().Release(bg, "k", "me"); ok || err != nil {
			t.Errorf("released: %v, %v", ok, err)
		}
		lockedBy(t, a.Locks(), "k", "")
	})
}

// A lock that expired while its release was on its way was not released by it.
func TestReleaseOfLockThatExpires(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for _, taken := range []bool{false, true} {
		for name, fault := range map[string]claimtest.Fault{"request": {LoseRequest: true}, "reply": {LoseReply: true}} {
			for _, ttl := range []time.Duration{3 * sec, time.Hour} {
				virtualCase(t, fmt.Sprintf("%s lost, TTL %v, taken %v", name, ttl, taken), func(t *testing.T, w *world) {
					a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
					b := w.peer()
					k := a.Locks()
					locked(t, k, "k", "me", ttl, true)
					time.Sleep(1500 * time.Millisecond)
					for range 2 {
						fault.On = claimtest.Release
						host.Inject(fault)
					}
					if taken {
						time.AfterFunc(4*sec, func() { _, _, _ = b.Locks().TryAcquire(bg, "k", "another", time.Hour) })
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
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		k := a.Locks()
		const n = 600
		eachKey := numbered("k%04d", n)
		for _, key := range eachKey {
			locked(t, k, key, "me", time.Hour, true)
		}
		index := ""
		for key := range w.all() {
			if i := strings.LastIndex(key, "/"); strings.HasPrefix(key, w.prefix+"lock/") {
				index = key[:i+1]
			}
		}
		for _, bad := range []string{"", "a\nb", "\xff", "k0500\x01", strings.Repeat("x", 2000), "free"} {
			_, err := w.raw.Put(bg, index+bad, "")
			noErr(t, err)
		}
		_, err := w.raw.Put(bg, w.own("k0007"), "not ours", clientv3.WithIgnoreLease())
		noErr(t, err)
		host.Inject(claimtest.Fault{On: claimtest.Release, Skip: 3, LoseReply: true})
		host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 20 * time.Millisecond})
		begin := time.Now()
		got, err := k.ReleaseAll(bg, "me")
		if got != n-1 || !errors.Is(err, etcdclaims.ErrInvalidKey) || len(err.Error()) > 4000 {
			t.Errorf("released %d of %d: %v", got, n-1, err)
		}
		if d := time.Since(begin); d > 10*sec {
			t.Errorf("it took %v", d)
		}
		if left := w.count("/own/"); left != 1 {
			t.Errorf("%d keys are left", left)
		}
	})
}
