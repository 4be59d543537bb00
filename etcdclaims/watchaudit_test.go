package etcdclaims_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// seen follows a Watch and says what is held by its account.
type seen struct {
	held     map[string]int64
	resynced int
}

func (s *seen) take(t *testing.T, w *watching) {
	t.Helper()
	for {
		select {
		case e := <-w.events:
			switch e.Kind {
			case etcdclaims.Claimed:
				s.held[e.Info.Key] = e.Info.Fence
			case etcdclaims.Freed:
				delete(s.held, e.Info.Key)
			case etcdclaims.Resynced:
				s.resynced++
			case etcdclaims.Synced:
			}
		default:
			return
		}
	}
}

// Events that never arrive are made up for within a renewal interval and a second.
func TestDeafWatchIsMadeUpFor(t *testing.T) {
	t.Parallel()
	for how, fault := range deafness.Kinds() {
		virtualCase(t, how, func(t *testing.T, w *world) {
			ctx := context.Background()
			a, dies := w.client(etcdclaims.Config{TTL: 6 * sec})
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			s := &seen{held: map[string]int64{}}
			gone := tryClaim(t, c, "released")
			host.Inject(fault)
			view := startWatch(t, c, "")
			if how == deafness.Cancel {
				resp, err := w.Raw.Put(ctx, "/x", "")
				noErr(t, err)
				_, err = w.Raw.Compact(ctx, resp.Header.Revision)
				noErr(t, err)
			}
			time.Sleep(20 * sec)
			check := func(what string, bound time.Duration, keys ...string) {
				t.Helper()
				time.Sleep(bound + 100*time.Millisecond)
				s.take(t, view)
				if len(s.held) != len(keys) {
					t.Errorf("%s: it tells of %v, not %v", what, s.held, keys)
				}
				for _, k := range keys {
					if i, _ := a.Lookup(ctx, k); s.held[k] != i.Fence {
						t.Errorf("%s: %q has fence %d, it tells %d", what, k, i.Fence, s.held[k])
					}
				}
			}
			check("at first", 0, "released")
			cl := tryClaim(t, a, "k")
			check("claimed", 6*sec, "released", "k")
			release(t, gone)
			tryClaim(t, a, "k2")
			check("one freed, one claimed", 6*sec, "k", "k2")
			_, err := a.TryAcquire(ctx, "k", etcdclaims.Supersede())
			noErr(t, err)
			_ = cl
			check("another term", 6*sec, "k", "k2")
			dies.Kill()
			check("its holder died", 6*sec+sec+5*sec)
			dies.Heal()
		})
	}
}

// A watch that is only busy misses nothing, and is not said to.
func TestBusyWatchHasNoGap(t *testing.T) {
	testetcd.SkipUnlessLong(t, "makes thousands of claims")
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		a, ahost := w.client(etcdclaims.Config{TTL: 15 * sec})
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		for _, h := range []*claimtest.Host{ahost, host} {
			h.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 2 * time.Millisecond})
		}
		s := &seen{held: map[string]int64{}}
		view := startWatch(t, c, "")
		done := make(chan struct{})
		for i := range 4 {
			go func() {
				defer func() { done <- struct{}{} }()
				for n := 0; ctx.Err() == nil; n++ {
					cl := tryClaim(t, a, fmt.Sprint(i, " ", n%5))
					time.Sleep(time.Duration(1+(i*7+n)%30) * time.Millisecond)
					release(t, cl)
				}
			}()
		}
		for range 12 {
			time.Sleep(sec)
			s.take(t, view)
		}
		cancel()
		for range 4 {
			<-done
		}
		time.Sleep(5 * sec)
		s.take(t, view)
		if s.resynced != 0 || len(s.held) != 0 {
			t.Errorf("resynced %d times, held %v", s.resynced, s.held)
		}
	})
}

// A consumer that stands still for long costs a bounded backlog, and is told the
// present state when it goes on.
func TestSlowWatchConsumer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		a := w.peer()
		heard := 0
		host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, Edit: func(reply any) { heard += len(reply.(*pb.WatchResponse).Events) }})
		held := map[string]int64{}
		still, resynced := true, 0
		const rounds = 12_000
		for e, err := range c.Watch(ctx, "") {
			noErr(t, err)
			switch e.Kind {
			case etcdclaims.Claimed:
				held[e.Info.Key] = e.Info.Fence
			case etcdclaims.Freed:
				delete(held, e.Info.Key)
			case etcdclaims.Resynced:
				resynced++
			case etcdclaims.Synced:
			}
			switch {
			case e.Kind == etcdclaims.Synced:
				tryClaim(t, w.peer(), "first")
			case still && e.Info.Key == "first":
				for range rounds / 100 {
					claims := claimMany(t, a, numbered("%d", 100))
					_, err := a.ReleaseAll(ctx)
					noErr(t, err)
					_ = claims
				}
				tryClaim(t, a, "last")
				time.Sleep(sec)
				still = false
			}
			if held["last"] != 0 {
				break
			}
		}
		t.Logf("%d events came of %d, resynced %d times", heard, 2*rounds, resynced)
		if resynced != 1 || heard > 3*4096 {
			t.Errorf("%d events came of %d, resynced %d times", heard, 2*rounds, resynced)
		}
		if len(held) != 2 {
			t.Errorf("it tells of %d keys, not of the first and the last alone", len(held))
		}
	})
}

// A watch that reads pages of two revisions, since etcd was compacted meanwhile, never yields
// an older event after a newer term.
func TestWatchCompactedBetweenPages(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	virtually(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		a, b := w.peer(), w.peer()
		const n = 600 // more than a page
		var last *etcdclaims.Claim
		for i := range n {
			last = tryClaim(t, a, fmt.Sprintf("k/%04d", i))
		}
		time.AfterFunc(time.Minute, cancel)
		first, seen := true, 0
		for e, err := range b.Watch(ctx, "k/") {
			noErr(t, err)
			if first {
				first = false
				_, err := w.Raw.Put(context.Background(), "/elsewhere", "")
				noErr(t, err)
				w.Server.Compact(t)
				release(t, last)
				last = tryClaim(t, a, last.Key())
			}
			if e.Info.Key == last.Key() {
				if seen++; e.Kind != etcdclaims.Claimed || e.Info.Fence != last.Fence() {
					t.Errorf("%v with the fence %d, while the key is held with %d", e.Kind, e.Info.Fence, last.Fence())
				}
			}
		}
		if seen != 1 {
			t.Errorf("the last key was yielded %d times", seen)
		}
	})
}
