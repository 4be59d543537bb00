package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testclaims"
)

// brief leases end while a case waits, and are long enough to be renewed on a busy machine.
var brief = etcdclaims.Config{TTL: etcdclaims.MinTTL}

// lasting leases are renewed so seldom that a loss is heard of by a watch, or too late.
var lasting = etcdclaims.Config{TTL: time.Minute}

const heard = 15 * time.Second // less than TTL/3, after which a lease is renewed

// A claim excludes others, and guards what is written under it.
func exclusion(v *variant) {
	a, b := v.pair(etcdclaims.Config{})
	cl := try(v, a, "k", etcdclaims.Note([]byte("n")))
	if i := v.held(b, "k"); i.Owner != "a" || i.Fence != cl.Fence() || i.Claim != cl.ID() || i.Lease == 0 {
		v.Errorf("%v is described as %+v", cl.Token(), i)
	}
	v.held(a, "k")
	if i := testclaims.LookUp(v, b, "k"); string(i.Note) != "n" || i.TTL <= 0 {
		v.Errorf("%v is looked up as %+v", cl.Token(), i)
	}
	noErr(v, cl.Note(v.ctx, []byte("m")))
	noErr(v, cl.Renew(v.ctx))
	for _, want := range []bool{true, false} { // its own condition fails the second time
		resp, err := cl.Txn(v.ctx).If(v.absent("x")).Then(v.put("x", "1")).Else(v.put("y", "2")).Commit()
		noErr(v, err)
		if resp.Succeeded != want {
			v.Errorf("the condition held: %v, want %v", resp.Succeeded, want)
		}
	}
	v.stored("x", "1")
	v.stored("y", "2")
	if i := testclaims.LookUp(v, b, "k"); string(i.Note) != "m" || i.Fence != cl.Fence() {
		v.Errorf("after a note it is described as %+v", i)
	}
	if owns, err := b.Owns(v.ctx, cl.Token()); !owns || err != nil {
		v.Errorf("%v is owned: %v, %v", cl.Token(), owns, err)
	}
	noErr(v, cl.Release(v.ctx))
	v.rises(cl.Fence(), try(v, b, "k").Fence())
	v.lateWrites(cl, etcdclaims.ErrReleased)
}

// Each option changes the request.
func options(v *variant) {
	a, b := v.pair(etcdclaims.Config{})
	_, err := a.TryAcquire(v.ctx, "then", etcdclaims.If(v.absent("x")), etcdclaims.Then(v.put("x", "1")))
	noErr(v, err)
	v.stored("x", "1")
	_, err = a.TryAcquire(v.ctx, "if", etcdclaims.If(v.absent("x")), etcdclaims.Then(v.put("x", "2")))
	wantIs(v, err, etcdclaims.ErrRefused)
	v.stored("x", "1")

	one, two := try(v, a, "reentrant", etcdclaims.Reentrant()), try(v, a, "reentrant", etcdclaims.Reentrant())
	noErr(v, one.Release(v.ctx))
	v.held(b, "reentrant", etcdclaims.Reentrant())
	noErr(v, two.Release(v.ctx))
	try(v, b, "reentrant")

	old, now := try(v, a, "supersede", etcdclaims.Supersede()), try(v, a, "supersede", etcdclaims.Supersede())
	v.rises(old.Fence(), now.Fence())
	lost(v, old, etcdclaims.ReasonSuperseded)
	v.lateWrites(old, etcdclaims.ErrLost)

	lazy := try(v, a, "lazy", etcdclaims.LazyRelease())
	noErr(v, lazy.Release(v.ctx))
	eventually(v, "the key is free", func() bool { return !testclaims.LookUp(v, b, "lazy").Held })

	first, second := try(v, a, "slots", etcdclaims.Slots(2)), try(v, b, "slots", etcdclaims.Slots(2))
	v.held(a, "slots", etcdclaims.Slots(2))
	_, err = a.TryAcquire(v.ctx, "slots", etcdclaims.Slots(3))
	wantIs(v, err, etcdclaims.ErrSlots)
	got := v.wait(a, "slots", 1, etcdclaims.Slots(2))
	noErr(v, second.Release(v.ctx))
	if next := v.next(got, second.Fence()); next.Slot() == first.Slot() {
		v.Errorf("slot %d has two holders", next.Slot())
	}
	noErr(v, admin.Resize(v.ctx, a, "slots", 3))
	try(v, b, "slots", etcdclaims.Slots(3))

	r1, r2 := try(v, a, "shared", etcdclaims.Shared()), try(v, b, "shared", etcdclaims.Shared())
	v.held(a, "shared")
	noErr(v, r1.Release(v.ctx))
	v.held(a, "shared")
	noErr(v, r2.Release(v.ctx))
	writer := try(v, a, "shared")
	v.rises(r1.Fence(), writer.Fence())
	v.held(b, "shared", etcdclaims.Shared())
}

// Several keys go in one request, or in several that share round trips.
func several(v *variant) {
	a, b := v.pair(etcdclaims.Config{})
	all, err := a.TryAcquireAll(v.ctx, []string{"k1", "k2"})
	noErr(v, err)
	if all[0].Fence() != all[1].Fence() {
		v.Errorf("acquired %v, want both with one fence", all)
	}
	_, err = b.TryAcquireAll(v.ctx, []string{"k0", "k2"})
	wantIs(v, err, etcdclaims.ErrHeld)
	if testclaims.LookUp(v, b, "k0").Held {
		v.Error("one of two keys was acquired")
	}
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprintf("k%02d", i))
	}
	_, errs := b.TryAcquireEach(v.ctx, append(keys, "k1"))
	for _, err := range errs[:len(keys)] {
		noErr(v, err)
	}
	wantIs(v, errs[len(keys)], etcdclaims.ErrHeld)
	listed := 0
	for i, err := range a.List(v.ctx, "k") {
		noErr(v, err)
		if listed++; !i.Held || listed == 1 && i.Key != "k00" {
			v.Errorf("listed as %+v", i)
		}
	}
	if listed != len(keys)+2 {
		v.Errorf("%d keys are listed, want %d", listed, len(keys)+2)
	}
	for _, want := range []int{len(keys), 0} {
		if n, err := b.ReleaseAll(v.ctx); n != want || err != nil {
			v.Errorf("released %d, %v, want %d", n, err, want)
		}
	}
}

// Waiters are served in order: handed the key by another client and by their own, or after
// the death of its holder.
func inLine(v *variant) {
	a, b := v.pair(lasting)
	cl := try(v, a, "k")
	ctx, giveUp := context.WithCancel(v.ctx)
	left := v.waitFor(ctx, b, "k", 1)
	giveUp()
	if c := <-left; !errors.Is(c.err, context.Canceled) {
		v.Errorf("giving up ended with %v", c.err)
	}
	eventually(v, "its place is gone", func() bool { return testclaims.LookUp(v, a, "k").Waiting == 0 })
	unmet := v.wait(b, "k", 1, etcdclaims.If(v.absent("x"))) // when it has its turn
	_, err := cl.Txn(v.ctx).Then(v.put("x", "1")).Commit()
	noErr(v, err)
	noErr(v, cl.Release(v.ctx))
	wantIs(v, (<-unmet).err, etcdclaims.ErrRefused)
	eventually(v, "its place is gone", func() bool { return testclaims.LookUp(v, a, "k").Waiting == 0 })
	cl = try(v, a, "k")
	first, second, third, fourth := v.wait(b, "k", 1), v.wait(b, "k", 2), v.wait(a, "k", 3), v.wait(b, "k", 4)
	for _, got := range []<-chan claimed{first, second, third} {
		noErr(v, cl.Release(v.ctx))
		cl = v.next(got, cl.Fence())
	}
	testclaims.Vanish(v, v.raw, b, "k")
	cl = v.next(fourth, cl.Fence())
	forced := v.wait(a, "k", 1)
	noErr(v, admin.ForceRelease(v.ctx, a, "k", "maintenance"))
	v.next(forced, cl.Fence())
	within(v, heard, cl.Done())
	lost(v, cl, etcdclaims.ReasonDeleted)
}

// Of many who race for a key one wins, and no two of those who wait are inside at a time.
func racing(v *variant) {
	const racers = 16
	a, b := v.pair(etcdclaims.Config{})
	clients := []*etcdclaims.Client{a, b}
	won := 0
	errs, _ := testclaims.AtOnce(racers, func(i int) error {
		_, err := clients[i%2].TryAcquire(v.ctx, "one")
		return err
	})
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			wantIs(v, err, etcdclaims.ErrHeld)
		}
	}
	if won != 1 {
		v.Errorf("%d of %d have acquired the key", won, racers)
	}
	var mu sync.Mutex
	var inside, most int
	var fences []int64
	errs, _ = testclaims.AtOnce(racers, func(i int) error {
		cl, err := clients[i%2].Acquire(v.ctx, "k")
		if err != nil {
			return err
		}
		mu.Lock()
		inside++
		most, fences = max(most, inside), append(fences, cl.Fence())
		mu.Unlock()
		time.Sleep(5 * time.Millisecond) // an invitation to the others
		mu.Lock()
		inside--
		mu.Unlock()
		return cl.Release(v.ctx)
	})
	for _, err := range errs {
		noErr(v, err)
	}
	if most != 1 {
		v.Errorf("%d were inside at a time", most)
	}
	v.rises(fences...)
}

// The first in line asks the holder's client whether it lives, and takes the key if there is
// no answer.
func suspicion(v *variant) {
	a, host := v.client(etcdclaims.Config{Owner: "a"})
	b, _ := v.client(etcdclaims.Config{Owner: "b"})
	cl := try(v, a, "k", etcdclaims.Suspectable())
	got := v.wait(b, "k", 1, etcdclaims.Suspectable())
	time.Sleep(2 * time.Second)
	if len(got) > 0 {
		v.Error("a holder that answers was suspected")
	}
	if host == nil {
		noErr(v, cl.Release(v.ctx))
	} else {
		host.Kill()
	}
	v.next(got, cl.Fence())
}

// A claim that is lost in etcd is refused everything.
func losses(v *variant) {
	a, b := v.pair(lasting)
	cl, other := try(v, a, "revoked"), try(v, a, "other")
	testclaims.Vanish(v, v.raw, b, "revoked")
	within(v, heard, cl.Done(), other.Done()) // they share the lease
	lost(v, cl, etcdclaims.ReasonRevoked)
	v.lateWrites(cl, etcdclaims.ErrLost)
	v.rises(cl.Fence(), try(v, b, "revoked").Fence())

	for _, end := range []string{"txn", "release", "renew", "note", "owns"} {
		cl := try(v, a, end)
		v.remove(end)
		next := try(v, b, end)
		switch end {
		case "release":
			wantIs(v, cl.Release(v.ctx), etcdclaims.ErrLost)
		case "renew":
			wantIs(v, cl.Renew(v.ctx), etcdclaims.ErrLost)
		case "note":
			wantIs(v, cl.Note(v.ctx, []byte("late")), etcdclaims.ErrLost)
		case "owns":
			if owns, err := cl.Owns(v.ctx); owns || err != nil {
				v.Errorf("%v is owned: %v, %v", cl.Token(), owns, err)
			}
		}
		v.lateWrites(cl, etcdclaims.ErrLost)
		if i := v.held(a, end); i.Fence != next.Fence() || len(i.Note) > 0 {
			v.Errorf("after %s of a lost claim the key is held as %+v", end, i)
		}
	}
}

// A request whose reply is lost is asked for, or undone.
func lostReply(v *variant) {
	c, host := v.client(etcdclaims.Config{})
	if host == nil {
		v.Skip("loses replies on a host")
	}
	host.Inject(claimtest.Fault{On: steps.Take, LoseReply: true})
	cl, err := c.Acquire(v.ctx, "resolved")
	noErr(v, err)
	noErr(v, cl.Check())
	ctx, cancel := context.WithTimeout(v.ctx, time.Second)
	defer cancel()
	host.Inject(claimtest.Fault{On: steps.Take, LoseReply: true})
	if _, err := c.Acquire(ctx, "undone"); err == nil {
		v.Error("acquired without a reply")
	}
	eventually(v, "it is undone", func() bool { return !testclaims.LookUp(v, c, "undone").Held })
}

// Claims last as long as they are renewed, and some keys longer than their claims.
func expiry(v *variant) {
	a, b := v.pair(brief)
	auto, manual := try(v, a, "auto"), try(v, a, "manual", etcdclaims.Manual())
	expired := v.wait(b, "manual", 1)
	resting := try(v, a, "resting", etcdclaims.MinHold(3*time.Second))
	noErr(v, resting.Release(v.ctx))
	if i := v.held(b, "resting"); i.Kind != "resting" {
		v.Errorf("a key at rest is described as %+v", i)
	}
	most := try(v, a, "most", etcdclaims.MaxHold(4*time.Second))
	v.next(v.wait(b, "resting", 1), resting.Fence())
	v.next(expired, manual.Fence())
	lost(v, manual, etcdclaims.ReasonExpired)
	within(v, time.Minute, most.Done())
	lost(v, most, etcdclaims.ReasonMaxHold)
	noErr(v, auto.Check())
	if i := v.held(b, "auto"); i.Fence != auto.Fence() {
		v.Errorf("fence %d became %d", auto.Fence(), i.Fence)
	}
}

// A handler runs while its key is held. If it does not stop, its key is kept.
func running(v *variant) {
	cfg := brief
	cfg.Drain = 300 * time.Millisecond
	a, b := v.pair(cfg)
	failed := errors.New("failed")
	wantIs(v, a.Run(v.ctx, "k", func(ctx context.Context) error {
		token, _ := fencing.FromContext(ctx)
		if i := v.held(b, "k"); i.Fence != token.Fence {
			v.Errorf("the handler's token is %v, and the key is held as %+v", token, i)
		}
		return failed
	}), failed)
	ctx, cancel := context.WithCancel(v.ctx)
	stop, ended := make(chan struct{}), make(chan error, 1)
	letStop := sync.OnceFunc(func() { close(stop) })
	defer letStop() // if the case fails before
	go func() { ended <- a.TryRun(ctx, "k", func(context.Context) error { cancel(); <-stop; return nil }) }()
	var zombie etcdclaims.Info
	eventually(v, "its key is a zombie's", func() bool {
		zombie = testclaims.LookUp(v, b, "k")
		return zombie.Kind == "zombie"
	})
	v.next(v.wait(b, "k", 1), zombie.Fence)
	letStop()
	<-ended
	noErr(v, a.Close(v.ctx))
	wantIs(v, a.TryRun(v.ctx, "k2", func(context.Context) error { return nil }), etcdclaims.ErrClosed)
}

// Changes of owners are watched.
func ownersWatched(v *variant) {
	a, b := v.pair(etcdclaims.Config{})
	before := try(v, a, "w/before")
	ctx, cancel := context.WithCancel(v.ctx)
	events := make(chan etcdclaims.Event, 64)
	go func() {
		defer close(events)
		for e, err := range b.Watch(ctx, "w/") {
			if err == nil && e.Kind != etcdclaims.Resynced { // which may happen at any time
				events <- e
			}
		}
	}()
	sees := func(kind etcdclaims.EventKind, key string, fence int64) {
		v.Helper()
		if e := <-events; e.Kind != kind || e.Info.Key != key || e.Info.Fence != fence {
			v.Fatalf("the event is %v of %+v, want %v of %s@%d", e.Kind, e.Info, kind, key, fence)
		}
	}
	sees(etcdclaims.Claimed, "w/before", before.Fence())
	sees(etcdclaims.Synced, "", 0)
	cl := try(v, b, "w/k")
	sees(etcdclaims.Claimed, "w/k", cl.Fence())
	got := v.wait(a, "w/k", 1)
	noErr(v, cl.Release(v.ctx))
	next := v.next(got, cl.Fence())
	sees(etcdclaims.Claimed, "w/k", next.Fence()) // handed over, it was never free
	testclaims.Vanish(v, v.raw, b, "w/before")
	sees(etcdclaims.Freed, "w/before", before.Fence())
	sees(etcdclaims.Freed, "w/k", next.Fence())
	cancel()
	for range events {
	}
}
