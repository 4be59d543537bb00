package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
)

// followers lets so many callers of one client wait for a key that it holds.
func (w *world) followers(c *etcdclaims.Client, key string, n int, opts ...etcdclaims.AcquireOption) (done []<-chan claimed, leave []context.CancelFunc) {
	for range n {
		ctx, cancel := context.WithCancel(context.Background())
		w.Cleanup(cancel)
		done, leave = append(done, acquiring(ctx, c, key, opts...)), append(leave, cancel)
		time.Sleep(10 * time.Millisecond)
	}
	return done, leave
}

// A caller with another TTL has another session, so it stands in line behind a claim of its
// own client. Callers that wait locally for that claim get the key on their own session.
func TestLocalWaitersOfTwoSessions(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, other := w.peer(), w.peer()
		lease := func() int64 {
			resp, err := w.Raw.Get(t.Context(), w.Own("k"))
			if err != nil || len(resp.Kvs) != 1 {
				t.Fatalf("%v, %v", resp, err)
			}
			return resp.Kvs[0].Lease
		}
		first := tryClaim(t, c, "k")
		usual := lease()
		long, _ := w.followers(c, "k", 1, etcdclaims.TTL(20*sec))
		local, _ := w.followers(c, "k", 2)
		release(t, first)
		second := w.within(sec, long[0])
		if lease() == usual {
			t.Fatal("the first in line has the same session")
		}
		release(t, second)
		for _, waiter := range local {
			cl := w.within(sec, waiter)
			time.Sleep(2 * time.Minute) // until an idle session has ended
			if w.Ours(cl); lease() != usual {
				t.Error("the claim is on the lease of another session")
			}
			release(t, cl)
		}
		w.Available("k", other)
		time.Sleep(2 * time.Minute)
		if n := c.Stats().Sessions; n != 0 {
			t.Errorf("%d sessions are left", n)
		}
		w.CloseClean(c, other)
	})
}

// Within one client a hand-over is one request, and nobody stands in line.
func TestHandOverWithinOneClient(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, other := w.peer(), w.peer()
		cl := tryClaim(t, c, "k")
		done, leave := w.followers(c, "k", 5)
		if n := w.places(); n != 0 {
			t.Errorf("%d places in line", n)
		}
		leave[2]()
		if r := <-done[2]; !errors.Is(r.err, context.Canceled) {
			t.Errorf("gave up: %v", r.err)
		}
		for i := range done {
			if i == 2 {
				continue
			}
			before, old := c.Stats().Requests, cl
			release(t, cl)
			cl = w.within(10*time.Millisecond, done[i])
			if n := c.Stats().Requests - before; n != 1 {
				t.Errorf("%d requests", n)
			}
			if cl.Fence() <= old.Fence() || !errors.Is(old.Err(), etcdclaims.ErrReleased) {
				t.Errorf("fences %d, %d; the old claim: %v", old.Fence(), cl.Fence(), old.Err())
			}
			w.Ours(cl)
		}
		time.Sleep(20 * sec)
		w.Ours(cl)
		release(t, cl)
		w.Available("k", other)
		w.CloseClean(c, other)
	})
}

// Those of another client are neither passed by local waiters that came later, nor
// do they pass those that came first.
func TestFollowersAndOthersInTurn(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, b := w.peer(), w.peer()
		held := tryClaim(t, c, "k")
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 12 {
			client := c
			if i%4 == 2 {
				client = b
			}
			done := acquiring(context.Background(), client, "k")
			wg.Go(func() {
				r := <-done
				if r.err != nil {
					t.Error(r.err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(50 * time.Millisecond)
				release(t, r.cl)
			})
			time.Sleep(20 * time.Millisecond)
		}
		release(t, held)
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 12 {
			t.Errorf("served in the order %v", order)
		}
		if n := w.places() + w.notices(); n != 0 {
			t.Errorf("%d places in line and notices are left: %v", n, w.All())
		}
		w.CloseClean(c, b)
	})
}

// However the claim ends that they follow, local waiters get the key, in order, or
// hear why not.
func TestFollowersOfAClaimThatEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		opts []etcdclaims.AcquireOption
		end  func(w *world, c *etcdclaims.Client, host *claimtest.Host, cl *etcdclaims.Claim)
		took time.Duration
	}{
		"deleted": {nil, func(w *world, _ *etcdclaims.Client, _ *claimtest.Host, _ *etcdclaims.Claim) {
			w.Server.Delete(w.T, w.Own("k"))
		}, 6 * sec},
		"forced": {nil, func(w *world, c *etcdclaims.Client, _ *claimtest.Host, _ *etcdclaims.Claim) {
			if err := admin.ForceRelease(context.Background(), c, "k", "test"); err != nil {
				w.Error(err)
			}
		}, sec},
		"release all": {nil, func(w *world, c *etcdclaims.Client, _ *claimtest.Host, _ *etcdclaims.Claim) {
			if _, err := c.ReleaseAll(context.Background()); err != nil {
				w.Error(err)
			}
		}, sec},
		"superseded": {nil, func(w *world, c *etcdclaims.Client, _ *claimtest.Host, _ *etcdclaims.Claim) {
			release(w, tryClaim(w, c, "k", etcdclaims.Supersede()))
		}, sec},
		"superseded often": {nil, func(w *world, c *etcdclaims.Client, _ *claimtest.Host, _ *etcdclaims.Claim) {
			for range 10 {
				tryClaim(w, c, "k", etcdclaims.Supersede())
			}
			release(w, tryClaim(w, c, "k", etcdclaims.Supersede()))
		}, sec},
		"epoch raised": {nil, func(w *world, _ *etcdclaims.Client, _ *claimtest.Host, cl *etcdclaims.Claim) {
			w.Server.RaiseEpoch(w.T, w.Prefix)
			_ = cl.Release(context.Background())
		}, sec},
		"MinHold": {[]etcdclaims.AcquireOption{etcdclaims.MinHold(5 * sec)}, func(w *world, _ *etcdclaims.Client, _ *claimtest.Host, cl *etcdclaims.Claim) {
			release(w, cl)
		}, 8 * sec},
		"MaxHold": {[]etcdclaims.AcquireOption{etcdclaims.MaxHold(5 * sec)}, func(*world, *etcdclaims.Client, *claimtest.Host, *etcdclaims.Claim) {}, 25 * sec},
		"noted": {nil, func(w *world, _ *etcdclaims.Client, _ *claimtest.Host, cl *etcdclaims.Claim) {
			if err := cl.Note(context.Background(), []byte("n")); err != nil {
				w.Error(err)
			}
			release(w, cl)
		}, sec},
		"lost request": {nil, func(w *world, _ *etcdclaims.Client, host *claimtest.Host, cl *etcdclaims.Claim) {
			host.Inject(claimtest.Fault{On: steps.Pass, LoseRequest: true})
			release(w, cl)
		}, 5 * sec},
		"lost reply": {nil, func(w *world, _ *etcdclaims.Client, host *claimtest.Host, cl *etcdclaims.Claim) {
			host.Inject(claimtest.Fault{On: steps.Pass, LoseReply: true})
			release(w, cl)
		}, 5 * sec},
		"lost reply, then deleted": {nil, func(w *world, _ *etcdclaims.Client, host *claimtest.Host, cl *etcdclaims.Claim) {
			host.Inject(claimtest.Fault{On: steps.Pass, LoseReply: true})
			deleted := time.AfterFunc(100*time.Millisecond, func() { _, _ = w.Raw.Delete(context.Background(), w.Own("k")) })
			release(w, cl)
			if deleted.Stop() {
				w.Error("released before the claim was deleted")
			}
		}, 6 * sec},
		"late request": {nil, func(w *world, _ *etcdclaims.Client, host *claimtest.Host, cl *etcdclaims.Claim) {
			late := delayed(host, steps.Pass)
			host.Inject(claimtest.Fault{On: steps.Pass, Times: -1, LoseRequest: true})
			ctx, cancel := context.WithTimeout(context.Background(), sec)
			defer cancel()
			if err := cl.Release(ctx); !errors.Is(err, etcdclaims.ErrUnknown) {
				w.Errorf("releasing: %v", err)
			}
			late.arrive()
			host.RemoveFaults()
		}, 6 * sec},
	}
	for name, e := range ends {
		virtualCase(t, name, func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			other := w.peer()
			cl := tryClaim(t, c, "k", e.opts...)
			n := 3
			if strings.HasPrefix(name, "superseded") {
				n = 60 // of whom some have followed the new claim when that ends, and others have not
			}
			done, _ := w.followers(c, "k", n)
			e.end(w, c, host, cl)
			type won struct {
				i int
				r claimed
			}
			wins := make(chan won, len(done))
			for i := range done {
				go func() { wins <- won{i, <-done[i]} }()
			}
			last := cl.Fence()
			for i := range done {
				begin := time.Now()
				win := <-wins
				next := win.r.cl
				if win.r.err != nil || time.Since(begin) > e.took {
					w.Fatalf("follower %d after %v: %v", win.i, time.Since(begin), win.r.err)
				}
				if win.i != i && name != "epoch raised" { // which makes all ask again
					t.Errorf("follower %d came in place of %d", win.i, i)
				}
				if next.Fence() <= last {
					t.Errorf("fence %d after %d", next.Fence(), last)
				}
				last = next.Fence()
				w.Ours(next)
				if v := w.get("note/k"); v != "" {
					t.Errorf("left: a note, %s", v)
				}
				release(t, next)
			}
			time.Sleep(20 * sec)
			w.Available("k", other)
			if n := w.places() + w.notices(); n != 0 {
				t.Errorf("%d places in line and notices are left: %v", n, w.All())
			}
			w.CloseClean(c, other)
		})
	}
}

// A local waiter that gives up before it has a place in line does not let those behind it
// pass those before it.
func TestFollowerGivesUpBeforeItsTurn(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		cl := tryClaim(t, c, "k")
		done, leave := w.followers(c, "k", 5)
		host.Inject(claimtest.Fault{On: steps.Enqueue, Times: 1, DelayRequest: 300 * time.Millisecond})
		w.Server.Delete(w.T, w.Own("k"))
		<-cl.Done()
		time.Sleep(10 * time.Millisecond) // the first asks for its place
		leave[1]()
		leave[2]()
		for _, i := range []int{0, 3, 4} {
			r := w.within(sec, done[i])
			for _, later := range done[i+1:] {
				select {
				case early := <-later:
					if early.err == nil {
						t.Errorf("one after follower %d was there before it", i)
					}
				default:
				}
			}
			release(t, r)
		}
		w.CloseClean(c)
	})
}

// Followers hear of the end of their client. If only their session ends they go on
// with another.
func TestFollowersWithoutAClient(t *testing.T) {
	t.Parallel()
	for _, closing := range []bool{true, false} {
		virtualCase(t, fmt.Sprint(closing), func(t *testing.T, w *world) {
			c := w.peer()
			tryClaim(t, c, "k")
			done, _ := w.followers(c, "k", 2)
			if closing {
				if err := c.Close(context.Background()); err != nil {
					t.Error(err)
				}
			} else {
				w.Server.Revoke(t, w.Own("k"))
			}
			if !closing {
				for range done { // whichever comes first
					select {
					case r := <-done[0]:
						noErr(t, r.err)
						release(t, r.cl)
					case r := <-done[1]:
						noErr(t, r.err)
						release(t, r.cl)
					case <-time.After(5 * sec):
						t.Fatalf("not acquired; etcd has %v", w.All())
					}
				}
				w.CloseClean(c)
				return
			}
			for i := range done {
				r := <-done[i]
				if !errors.Is(r.err, etcdclaims.ErrClosed) {
					t.Errorf("closing: %v", r.err)
				}
			}
			w.NothingLeft()
		})
	}
}

// Callers may come and leave for as long as a key is held: nothing is left of them.
func TestLocalWaitersThatLeft(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c := w.peer()
		cl := tryClaim(t, c, "k")
		for range 500 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if _, err := c.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
		if n := etcdclaims.LocalWaiters(cl); n > 20 {
			t.Errorf("%d callers are kept", n)
		}
		release(t, cl)
	})
}
