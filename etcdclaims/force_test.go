package etcdclaims_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestForceReleaseClaim(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	lost := make(chan *etcdclaims.LostError, 1)
	prefix := testetcd.Prefix(t)
	a := newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: "a", TTL: time.Minute, Hooks: onLoss(func(l *etcdclaims.LostError) { lost <- l })})
	b := newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: "operator b"})
	cl := tryClaim(t, a, "k", etcdclaims.Note([]byte("note")))
	other := tryClaim(t, a, "other")
	noErr(t, admin.ForceRelease(ctx, b, "k", "disk full on a"))
	if i := lookUp(t, b, "k"); i.Held || i.Note != nil {
		t.Errorf("%+v", i)
	}
	// Its holder hears of it by the watch, not by the next renewal, 20 s after the one before.
	select {
	case <-cl.Done():
	case <-time.After(15 * time.Second):
		t.Fatal("the holder has not heard of it")
	}
	err := cl.Err()
	wantIs(t, err, etcdclaims.ErrLost)
	var l *etcdclaims.LostError
	if !errors.As(err, &l) || l.Reason != etcdclaims.ReasonDeleted || l.Token != cl.Token() ||
		!strings.Contains(err.Error(), "disk full on a") || !strings.Contains(err.Error(), "operator b") {
		t.Errorf("lost as %v", err)
	}
	if got := <-lost; got.Token != cl.Token() {
		t.Errorf("hook got %v", got)
	}
	noErr(t, other.Check())
	if ok, err := other.Owns(ctx); !ok || err != nil {
		t.Errorf("the holder's other claim: %v, %v", ok, err)
	}
	next := tryClaim(t, b, "k")
	if next.Fence() <= cl.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), cl.Fence())
	}
	wantIs(t, cl.Release(ctx), etcdclaims.ErrLost)
	noErr(t, next.Check())
	eventually(t, "the notice is removed", func() bool {
		resp, err := etcd.Get(ctx, prefix+"session/"+a.Instance()+"/evict/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		noErr(t, err)
		return resp.Count == 0
	})
	// Of one's own claims, too.
	noErr(t, admin.ForceRelease(ctx, b, "k", ""))
	eventually(t, "the own claim is lost", func() bool { return errors.Is(next.Err(), etcdclaims.ErrLost) })
}

func TestForceReleaseWork(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	w := tryBegin(t, a, "k")
	noErr(t, admin.ForceRelease(ctx, b, "k", "stuck"))
	next := tryBegin(t, b, "k")
	if r, ok := next.Previous(); !ok || r.State != work.StateOrphaned || next.Attempt() != 2 {
		t.Errorf("attempt %d, previous %+v", next.Attempt(), r)
	}
	wantIs(t, w.Complete(ctx), etcdclaims.ErrLost)
}

func TestForceReleaseWaiters(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	tryClaim(t, a, "k")
	got := make(chan error, 1)
	go func() { _, err := b.Acquire(ctx, "k"); got <- err }()
	eventually(t, "one waits", func() bool { return lookUp(t, a, "k").Waiting == 1 })
	noErr(t, admin.ForceRelease(ctx, a, "k", "next please"))
	noErr(t, <-got)
	if i := lookUp(t, a, "k"); i.Owner != "b" {
		t.Errorf("%+v", i)
	}
}

func TestForceReleaseOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx, etcd := t.Context(), server.Etcd(t)
		a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
		noErr(t, admin.ForceRelease(ctx, b, "free", "it is free"))

		testclaims.Locked(t, locks.New(a), "lock", "me", time.Hour, true)
		noErr(t, admin.ForceRelease(ctx, b, "lock", "test"))
		testclaims.LockedBy(t, locks.New(a), "lock", "")
		testclaims.Unlocked(t, locks.New(a), "lock", "me", false)
		tryClaim(t, b, "lock")

		zombie := tryClaim(t, a, "zombie", etcdclaims.MaxHold(4*time.Second))
		time.Sleep(5 * time.Second)
		wantIs(t, zombie.Err(), etcdclaims.ErrLost)
		i := lookUp(t, b, "zombie")
		if !i.Held || i.Kind != "zombie" || i.Fence <= zombie.Fence() || i.Owner != "a" || i.Claim != zombie.ID() {
			t.Errorf("%+v", i)
		}
		noErr(t, admin.ForceRelease(ctx, b, "zombie", "it is dead, I looked"))
		if next := tryClaim(t, b, "zombie"); next.Fence() <= i.Fence {
			t.Errorf("fence %d after %d", next.Fence(), i.Fence)
		}

		resting := tryClaim(t, a, "resting", etcdclaims.MinHold(time.Hour))
		noErr(t, resting.Release(ctx))
		if i := lookUp(t, b, "resting"); !i.Held || i.Kind != "resting" || i.TTL < 50*time.Minute || i.Fence <= resting.Fence() {
			t.Errorf("%+v", i)
		}
		noErr(t, admin.ForceRelease(ctx, b, "resting", ""))
		tryClaim(t, b, "resting")

		manual := tryClaim(t, a, "manual", etcdclaims.Manual())
		noErr(t, admin.ForceRelease(ctx, b, "manual", ""))
		tryClaim(t, b, "manual")
		time.Sleep(time.Second)
		wantIs(t, manual.Err(), etcdclaims.ErrLost)

		// Notices that nobody removes go with the leases they are on.
		time.Sleep(2 * time.Hour)
		resp, err := etcd.Get(ctx, prefix+"session/"+a.Instance()+"/evict/", clientv3.WithPrefix())
		noErr(t, err)
		if len(resp.Kvs) > 0 {
			t.Errorf("left over: %v", resp.Kvs)
		}
	})
}

// A forced release works while etcd is out of space. Without the notice, which would need
// space, the holder finds its claim lost at its next renewal.
func TestForceReleaseNoSpace(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		cl, shared := tryClaim(t, a, "k"), tryClaim(t, a, "shared", etcdclaims.Shared())
		tryClaim(t, b, "other")
		w.Server.FillQuota(t)
		noErr(t, admin.ForceReleaseTerm(ctx, b, cl.Token(), "why"))
		noErr(t, admin.ForceRelease(ctx, b, "shared", "why"))
		for key := range w.All() {
			if key == w.Own("k") || strings.HasPrefix(key, w.Own("shared")) {
				t.Errorf("%s is left", key)
			}
		}
		time.Sleep(6 * sec)
		lossOf(t, cl.Err(), etcdclaims.ReasonDeleted)
		lossOf(t, shared.Err(), etcdclaims.ReasonDeleted)
		w.Server.FreeQuota(t)
	})
}

// The record of a key that several hold is not deleted by a version that cannot read it: an
// exclusive claim could then stand beside theirs. A claim of a newer version is released.
func TestForceReleaseNewer(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		slot := tryClaim(t, a, "k", etcdclaims.Slots(2))
		w.put("own/k", `{"v":2,"kind":"slots","slots":{"of":2}}`, 0)
		if err := admin.ForceRelease(ctx, b, "k", "why"); err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Error(err)
		}
		_, err := b.TryAcquire(ctx, "k")
		wantIs(t, err, etcdclaims.ErrHeld)
		noErr(t, slot.Check())
		w.put("own/claim", laterShapes, w.lasting())
		noErr(t, admin.ForceRelease(ctx, b, "claim", "why"))
		tryClaim(t, b, "claim")
	})
}
