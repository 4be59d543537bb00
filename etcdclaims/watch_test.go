package etcdclaims_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watching is a Watch whose events arrive on a channel, that is closed at its
// end.
type watching struct {
	events chan etcdclaims.Event
	errs   chan error
	stop   context.CancelFunc
}

func startWatch(t *testing.T, c *etcdclaims.Client, prefix string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{events: make(chan etcdclaims.Event, 10_000), errs: make(chan error, 10), stop: cancel}
	go func() {
		defer close(w.events)
		for e, err := range c.Watch(ctx, prefix) {
			if err != nil {
				w.errs <- err
				continue
			}
			w.events <- e
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range w.events { // until it ends
		}
	})
	return w
}

// next returns the next event, which must be of the kind.
func (w *watching) next(t *testing.T, kind etcdclaims.EventKind, key string) etcdclaims.Event {
	t.Helper()
	select {
	case e, ok := <-w.events:
		if !ok || e.Kind != kind || e.Info.Key != key {
			t.Fatalf("got %v of %q (open: %v), want %v of %q", e.Kind, e.Info.Key, ok, kind, key)
		}
		return e
	case err := <-w.errs:
		t.Fatalf("the watch failed: %v", err)
	case <-time.After(2 * time.Minute):
		t.Fatalf("waited in vain for %v of %q", kind, key)
	}
	panic("unreachable")
}

func (w *watching) nothing(t *testing.T) {
	t.Helper()
	select {
	case e, ok := <-w.events:
		t.Fatalf("got %v of %q (open: %v), want nothing", e.Kind, e.Info.Key, ok)
	default:
	}
}

func (w *watching) end(t *testing.T) {
	t.Helper()
	select {
	case e, ok := <-w.events:
		if ok {
			t.Fatalf("got %v of %q, want the end", e.Kind, e.Info.Key)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the watch goes on")
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	one := tryClaim(t, a, "job/1")
	tryClaim(t, a, "other")
	two := tryBegin(t, b, "job/2")
	w := startWatch(t, b, "job/")
	if e := w.next(t, etcdclaims.Claimed, "job/1"); e.Info.Fence != one.Fence() || !e.Info.Held || e.Info.Owner != "a" || e.Info.Claim != one.ID() || e.Revision != one.Fence() {
		t.Errorf("%+v", e)
	}
	if e := w.next(t, etcdclaims.Claimed, "job/2"); e.Info.Fence != two.Fence() || e.Info.Attempt != 1 {
		t.Errorf("%+v", e)
	}
	synced := w.next(t, etcdclaims.Synced, "")
	if synced.Revision < two.Fence() {
		t.Errorf("synced at %d", synced.Revision)
	}
	noErr(t, one.Note(ctx, []byte("a note is no event")))
	noErr(t, one.Release(ctx))
	if e := w.next(t, etcdclaims.Freed, "job/1"); e.Info.Held || e.Info.Fence != one.Fence() || e.Revision <= synced.Revision {
		t.Errorf("%+v", e)
	}
	tryClaim(t, b, "other 2")
	three := tryClaim(t, b, "job/3")
	w.next(t, etcdclaims.Claimed, "job/3")

	// A hand-over raises the fence, freed in between or not.
	next, err := b.TryAcquire(ctx, "job/3", etcdclaims.Supersede())
	noErr(t, err)
	if e := w.next(t, etcdclaims.Claimed, "job/3"); e.Info.Fence != next.Fence() || e.Info.Fence <= three.Fence() {
		t.Errorf("%+v after fence %d", e, three.Fence())
	}
	got := make(chan *etcdclaims.Claim, 1)
	go func() {
		cl, err := a.Acquire(ctx, "job/3")
		if err != nil {
			t.Error(err)
		}
		got <- cl
	}()
	eventually(t, "one waits", func() bool { return lookUp(t, a, "job/3").Waiting == 1 })
	w.nothing(t) // a place in line is no event
	noErr(t, next.Release(ctx))
	handed := <-got
	e := <-w.events
	if e.Kind == etcdclaims.Freed {
		e = <-w.events
	}
	if e.Kind != etcdclaims.Claimed || e.Info.Key != "job/3" || e.Info.Fence != handed.Fence() || e.Info.Fence <= next.Fence() || e.Info.Owner != "a" {
		t.Errorf("%+v, want fence %d", e, handed.Fence())
	}
	noErr(t, two.Complete(ctx))
	w.next(t, etcdclaims.Freed, "job/2")
	_, err = etcd.Delete(ctx, prefix+"own/job/3")
	noErr(t, err)
	w.next(t, etcdclaims.Freed, "job/3")
	w.nothing(t)
	w.stop()
	w.end(t)
}

func TestWatchNothingYet(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	w := startWatch(t, b, "")
	w.next(t, etcdclaims.Synced, "")
	for _, key := range []string{"a", "b", "c"} {
		tryClaim(t, a, key)
		w.next(t, etcdclaims.Claimed, key)
	}
	n, err := a.ReleaseAll(t.Context())
	if n != 3 || err != nil {
		t.Errorf("released %d, %v", n, err)
	}
	freed := map[string]bool{}
	for range 3 {
		e := <-w.events
		if e.Kind != etcdclaims.Freed {
			t.Errorf("%+v", e)
		}
		freed[e.Info.Key] = true
	}
	if len(freed) != 3 {
		t.Errorf("freed %v", freed)
	}
}

func TestWatchManyInitially(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	keys := numbered("%04d", 1300)
	claimMany(t, a, keys)
	w := startWatch(t, b, "")
	for _, key := range keys {
		w.next(t, etcdclaims.Claimed, key)
	}
	w.next(t, etcdclaims.Synced, "")
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
	tryClaim(t, a, "k")
	t.Run("by its context", func(t *testing.T) {
		w := startWatch(t, b, "")
		w.next(t, etcdclaims.Claimed, "k")
		w.next(t, etcdclaims.Synced, "")
		w.stop()
		w.end(t)
		if len(w.errs) > 0 {
			t.Errorf("error %v", <-w.errs)
		}
	})
	t.Run("by break", func(t *testing.T) {
		for stopAt := 1; stopAt <= 3; stopAt++ {
			n := 0
			for e, err := range b.Watch(t.Context(), "") {
				noErr(t, err)
				if n++; n == stopAt {
					break
				}
				if e.Kind == etcdclaims.Synced {
					noErr(t, tryClaim(t, a, "k2").Release(t.Context()))
				}
			}
			if n != stopAt {
				t.Errorf("broke off at %d, not at %d", n, stopAt)
			}
		}
	})
	t.Run("by Close", func(t *testing.T) {
		w := startWatch(t, b, "")
		w.next(t, etcdclaims.Claimed, "k")
		w.next(t, etcdclaims.Synced, "")
		noErr(t, b.Close(t.Context()))
		w.end(t)
		for range b.Watch(t.Context(), "") {
			break // after Close it ends at once, with an error or without
		}
	})
}

func TestWatchResynced(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx := t.Context()
		etcd := server.Etcd(t)
		a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
		host := server.Host(t)
		observer := newClient(t, host.Etcd(t), etcdclaims.Config{Prefix: prefix})

		stays := tryClaim(t, a, "1 stays")
		goes := tryClaim(t, a, "2 goes")
		moves := tryClaim(t, a, "3 moves")
		w := startWatch(t, observer, "")
		for _, key := range []string{"1 stays", "2 goes", "3 moves"} {
			w.next(t, etcdclaims.Claimed, key)
		}
		w.next(t, etcdclaims.Synced, "")

		for round, away := range []time.Duration{time.Second, time.Minute} {
			host.Kill()
			time.Sleep(time.Second)
			noErr(t, goes.Release(ctx))
			noErr(t, moves.Release(ctx))
			moved := tryClaim(t, b, "3 moves")
			came := tryClaim(t, b, "4 comes")
			noErr(t, tryClaim(t, b, "5 comes and goes").Release(ctx))
			resp, err := etcd.Put(ctx, "/other", "")
			noErr(t, err)
			_, err = etcd.Compact(ctx, resp.Header.Revision)
			noErr(t, err)
			time.Sleep(away)
			w.nothing(t)
			host.Heal()

			w.next(t, etcdclaims.Resynced, "")
			if e := w.next(t, etcdclaims.Claimed, "3 moves"); e.Info.Fence != moved.Fence() || e.Info.Owner != "b" {
				t.Errorf("round %d: %+v, want fence %d", round, e, moved.Fence())
			}
			w.next(t, etcdclaims.Claimed, "4 comes")
			if e := w.next(t, etcdclaims.Freed, "2 goes"); e.Info.Fence != goes.Fence() {
				t.Errorf("round %d: %+v", round, e)
			}
			// It goes on from there.
			noErr(t, came.Release(ctx))
			w.next(t, etcdclaims.Freed, "4 comes")
			goes = tryClaim(t, a, "2 goes")
			w.next(t, etcdclaims.Claimed, "2 goes")
			moves = moved
		}
		noErr(t, stays.Check())
		w.nothing(t)
	})
}

// Without compaction a disconnection loses nothing, and needs no Resynced.
func TestWatchDisconnected(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		etcd := server.Etcd(t)
		a, _, prefix := twoOwners(t, etcd, etcdclaims.Config{})
		host := server.Host(t)
		observer := newClient(t, host.Etcd(t), etcdclaims.Config{Prefix: prefix})
		w := startWatch(t, observer, "")
		w.next(t, etcdclaims.Synced, "")
		synctest.Wait() // until it follows: a watch that has not begun reads again
		host.Kill()
		cl := tryClaim(t, a, "k")
		time.Sleep(time.Minute)
		noErr(t, cl.Release(t.Context()))
		host.Heal()
		w.next(t, etcdclaims.Claimed, "k")
		w.next(t, etcdclaims.Freed, "k")
		w.nothing(t)
	})
}

// A watch that is begun, or must read again, while etcd cannot be reached goes
// on when it can.
func TestWatchSurvivesOutage(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		etcd := server.Etcd(t)
		a, _, prefix := twoOwners(t, etcd, etcdclaims.Config{})
		noErr(t, tryClaim(t, a, "history").Release(t.Context()))
		cl := tryClaim(t, a, "k")
		noErr(t, tryClaim(t, a, "past").Release(t.Context()))
		host := server.Host(t)
		observer := newClient(t, host.Etcd(t), etcdclaims.Config{Prefix: prefix})
		host.Kill()
		w := startWatch(t, observer, "")
		time.Sleep(time.Minute)
		w.nothing(t)
		host.Heal()
		w.next(t, etcdclaims.Claimed, "k")
		w.next(t, etcdclaims.Synced, "")

		// The same in the midst of it: one gap, told once.
		host.Inject(claimtest.Fault{On: claimtest.Watch, Err: rpctypes.ErrGRPCNoLeader}) // which ends it
		host.Kill()
		time.Sleep(time.Minute)
		noErr(t, cl.Release(t.Context()))
		noErr(t, tryClaim(t, a, "unseen").Release(t.Context()))
		tryClaim(t, a, "new")
		host.Heal()
		w.next(t, etcdclaims.Resynced, "")
		w.next(t, etcdclaims.Claimed, "new")
		w.next(t, etcdclaims.Freed, "k")
		time.Sleep(time.Minute)
		w.nothing(t)
	})
}

// An epoch that is raised while a watch goes on shows in the fences it tells.
func TestWatchEpochRaised(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	w := startWatch(t, newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: "observer"}), "")
	w.next(t, etcdclaims.Synced, "")
	_, err := etcd.Put(ctx, prefix+"epoch", "2")
	noErr(t, err)
	cl := tryClaim(t, a, "k")
	if e := w.next(t, etcdclaims.Claimed, "k"); e.Info.Fence != cl.Fence() {
		t.Errorf("fence %d, the claim's is %d", e.Info.Fence, cl.Fence())
	}
	noErr(t, cl.Release(ctx))
	if e := w.next(t, etcdclaims.Freed, "k"); e.Info.Fence != cl.Fence() {
		t.Errorf("fence %d, the claim's was %d", e.Info.Fence, cl.Fence())
	}
}

func TestWatchForeignValue(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, prefix := twoOwners(t, etcd, etcdclaims.Config{})
	w := startWatch(t, a, "")
	w.next(t, etcdclaims.Synced, "")
	_, err := etcd.Put(ctx, prefix+"own/k", "not ours")
	noErr(t, err)
	if e := w.next(t, etcdclaims.Claimed, "k"); e.Info.Owner != "unknown" || !e.Info.Held {
		t.Errorf("%+v", e)
	}
	_, err = etcd.Delete(ctx, prefix, clientv3.WithPrefix())
	noErr(t, err)
	w.next(t, etcdclaims.Freed, "k")
}

func TestEventKindString(t *testing.T) {
	t.Parallel()
	for kind, want := range map[etcdclaims.EventKind]string{
		etcdclaims.Claimed: "claimed", etcdclaims.Freed: "freed", etcdclaims.Synced: "synced", etcdclaims.Resynced: "resynced", 0: "unknown",
	} {
		if got := kind.String(); got != want {
			t.Errorf("%d is %q, want %q", kind, got, want)
		}
	}
}
