package etcdclaims_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/embed"
)

// Those who wait for a round trip when the client closes are told so.
func TestCloseWhileOthersWaitForARoundTrip(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "warm"))
		host.Inject(claimtest.Fault{On: steps.Take, Times: -1, DelayRequest: 100 * time.Millisecond})
		done := make(chan error, 6)
		for i := range cap(done) {
			go func() {
				if i > 1 {
					time.Sleep(time.Millisecond)
				}
				_, err := c.TryAcquire(context.Background(), key(i))
				done <- err
			}()
		}
		time.Sleep(10 * time.Millisecond)
		w.CloseClean(c)
		late := time.After(10 * time.Minute)
		for range cap(done) {
			select {
			case err := <-done:
				wantIs(t, err, etcdclaims.ErrClosed)
			case <-late:
				t.Fatal("somebody waits 10 minutes after Close")
			}
		}
	})
}

// Whatever the size of what shares a round trip, a server that takes less is
// learnt, and not asked again for the same.
func TestSmallRequestsOfEverySize(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	for _, n := range []int{0, 100, 200, 300, 310, 320, 350, 450, 600, 1000, 2000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, w *world) {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				release(t, tryClaim(t, c, "warm"))
				host.Inject(claimtest.Fault{On: steps.Take, Times: -1, DelayRequest: time.Millisecond})
				before := len(host.Sent(steps.Take))
				_, errs := c.TryAcquireEach(context.Background(), numbered("k%d", 300), etcdclaims.Note(bytes.Repeat([]byte("n"), n)))
				for _, err := range errs {
					noErr(t, err)
				}
				if got := len(host.Sent(steps.Take)) - before; got == 0 || got > 80 {
					t.Errorf("%d round trips", got)
				}
				host.RemoveFaults()
				w.CloseClean(c)
			}, claimtest.Tweak(func(cfg *embed.Config) { cfg.MaxRequestBytes = 32 << 10 }))
		})
	}
}

// A request that is wider than the server allows fails alone, and holds up nobody.
func TestTooWideARequestAmongOthers(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.busy()
		host.Inject(claimtest.Fault{On: steps.Take, Times: -1, DelayRequest: time.Millisecond})
		begin := time.Now()
		took := make([]time.Duration, 8)
		b := acquireTogether(w, host, 8, func(i int) (*etcdclaims.Claim, error) {
			defer func() { took[i] = time.Since(begin) }()
			if i == 2 {
				_, err := c.TryAcquireAll(context.Background(), numbered("many/%d", 40))
				return nil, err
			}
			return c.TryAcquire(context.Background(), key(i))
		})
		b.done.Wait()
		wantIs(t, b.errs[2], etcdclaims.ErrTooLarge)
		b.allHeld(2)
		for i, d := range took {
			if d > 200*time.Millisecond {
				t.Errorf("k%d took %v", i, d)
			}
		}
		host.RemoveFaults()
		w.CloseClean(c)
	}, testclaims.MaxTxnOps(32))
}

// Calls whose shared round trip was lost are resolved by shared requests.
func TestLostBatchIsResolvedTogether(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]claimtest.Fault{
		"request": {On: steps.Take, LoseRequest: true},
		"reply":   {On: steps.Take, LoseReply: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, w *world) {
				c, host := w.busy()
				host.Inject(fault)
				// All of them have asked before the first of them has its answer, however busy the machine.
				host.Inject(claimtest.Fault{On: steps.Resolve, Times: -1, DelayRequest: time.Millisecond})
				b := acquireTogether(w, host, 102, func(i int) (*etcdclaims.Claim, error) {
					return c.TryAcquire(context.Background(), key(i))
				})
				b.done.Wait()
				b.allHeld()
				if n := len(host.Sent(steps.Resolve)); n == 0 || n > 10 {
					t.Errorf("%d requests to find out", n)
				}
				w.CloseClean(c)
				w.NoLeases()
			})
		})
	}
}

// An etcd that has too much to do is not asked more for it.
func TestOverloadedServerIsNotAskedMore(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.busy()
		host.Inject(claimtest.Fault{On: steps.Take, Times: -1, DelayRequest: time.Millisecond, Err: rpctypes.ErrGRPCRequestTooManyRequests})
		b := acquireTogether(w, host, 102, func(i int) (*etcdclaims.Claim, error) {
			return c.TryAcquire(context.Background(), key(i))
		})
		time.Sleep(sec)
		if most := host.MostInFlight(steps.Take); most == 0 || most > 4 {
			t.Errorf("%d requests at once", most)
		}
		host.RemoveFaults()
		b.done.Wait()
		b.allHeld()
		w.CloseClean(c)
	})
}

// One round trip that stalls for a while does not hold up what comes behind it.
func TestStalledRoundTripHoldsUpNobody(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "warm"))
		for k, d := range map[string]time.Duration{"a": 2 * time.Millisecond, "b": time.Millisecond, "c": 200 * time.Millisecond} {
			host.Inject(claimtest.Fault{On: steps.Take, Key: k, DelayRequest: d})
		}
		took := make(chan time.Duration, 1)
		get := func(k string) {
			begin := time.Now()
			cl, err := c.TryAcquire(context.Background(), k)
			noErr(t, err)
			if k == "g" {
				took <- time.Since(begin)
			}
			release(t, cl)
		}
		var wg sync.WaitGroup
		for _, k := range []string{"a", "b", "c", "d", "e", "f"} { // from c on together, when b has landed
			wg.Go(func() { get(k) })
			time.Sleep(100 * time.Microsecond)
		}
		time.Sleep(1300 * time.Microsecond)
		wg.Go(func() { get("g") }) // while a and those four are under way
		if d := <-took; d > 20*time.Millisecond {
			t.Errorf("took %v behind a round trip that stalls", d)
		}
		wg.Wait()
		w.CloseClean(c)
	})
}

// Callers of one client that want one key get it in the order in which they came,
// even those that came before the first was told whether it has it.
func TestCallersOfOneClientInOrder(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held by another %v", held), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, w *world) {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				release(t, tryClaim(t, c, "warm"))
				other := w.peer()
				foreign := tryClaim(t, other, "k")
				if !held {
					release(t, foreign)
				}
				host.Inject(claimtest.Fault{On: steps.Take, DelayReply: 100 * time.Millisecond})
				var mu sync.Mutex
				var order []int
				var wg sync.WaitGroup
				for i := range 8 {
					done := acquiring(context.Background(), c, "k")
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
					time.Sleep(10 * time.Millisecond)
				}
				if held {
					time.Sleep(sec)
					release(t, foreign)
				}
				wg.Wait()
				if !slices.IsSorted(order) {
					t.Errorf("served in the order %v", order)
				}
				w.CloseClean(c, other)
			})
		})
	}
}
