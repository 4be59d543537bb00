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
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/server/v3/embed"
)

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

// sharedBatch is n acquisitions that share a round trip, because two others before
// them are under way for 100 ms. The caller injects the fault of that round trip
// after the faults of those two.
type sharedBatch struct {
	*world
	host   *claimtest.Host
	claims []*etcdclaims.Claim
	errs   []error
	done   sync.WaitGroup
	sent   int // acquisitions before
}

// acquireTogether makes n calls, of which all but the first two share a round trip.
func acquireTogether(w *world, host *claimtest.Host, n int, acquire func(i int) (*etcdclaims.Claim, error)) *sharedBatch {
	b := &sharedBatch{world: w, host: host, claims: make([]*etcdclaims.Claim, n), errs: make([]error, n)}
	b.sent = len(host.Sent(claimtest.Acquire))
	for i := range n {
		b.done.Go(func() {
			if i > 1 {
				time.Sleep(10 * time.Millisecond) // behind the first two
			}
			b.claims[i], b.errs[i] = acquire(i)
		})
	}
	return b
}

// delayTwo delays the two round trips behind which the other calls wait.
func delayTwo(host *claimtest.Host) {
	host.Inject(claimtest.Fault{On: claimtest.Acquire, Times: 2, DelayRequest: 100 * time.Millisecond})
}

// busy returns a client that has a session, and delays its next two acquisitions.
func (w *world) busy() (*etcdclaims.Client, *claimtest.Host) {
	w.Helper()
	c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
	release(w.T, tryClaim(w.T, c, "warm"))
	delayTwo(host)
	return c, host
}

func (b *sharedBatch) roundTrips() int { return len(b.host.Sent(claimtest.Acquire)) - b.sent }

// allHeld fails unless each claim is held, except those of the calls in but.
func (b *sharedBatch) allHeld(but ...int) {
	b.Helper()
	in := b.All()
	for i, cl := range b.claims {
		if slices.Contains(but, i) {
			continue
		}
		if b.errs[i] != nil || cl == nil {
			b.Errorf("k%d: %v", i, b.errs[i])
			continue
		}
		if ok, err := cl.Owns(context.Background()); !ok || err != nil || in[b.Own(cl.Key())] == "" {
			b.Errorf("k%d: owns %v, %v", i, ok, err)
		}
	}
}

func key(i int) string { return fmt.Sprint("k", i) }

// A caller that gives up voids the round trip that it shares. The other calls are
// sent again, and the caller leaves nothing behind. The round trip arrives after that.
func TestCallerLeavesBatch(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.busy()
		arrives := make(chan struct{})
		held := host.Inject(claimtest.Fault{On: claimtest.Acquire, Hold: arrives})
		ctx, leave := context.WithCancel(context.Background())
		b := acquireTogether(w, host, 20, func(i int) (*etcdclaims.Claim, error) {
			if i == 5 {
				return c.TryAcquire(ctx, key(i))
			}
			return c.TryAcquire(context.Background(), key(i))
		})
		time.Sleep(200 * time.Millisecond)
		if held.Hits() != 1 {
			t.Fatalf("%d round trips are held", held.Hits())
		}
		leave()
		time.Sleep(100 * time.Millisecond) // it is undone
		close(arrives)
		b.done.Wait()
		wantIs(t, b.errs[5], etcdclaims.ErrUnknown)
		wantIs(t, b.errs[5], context.Canceled)
		b.allHeld(5)
		if w.get("own/k5") != "" {
			t.Error("the claim of the caller that left is there")
		}
		if got := b.roundTrips(); got != 4 {
			t.Errorf("%d round trips: two alone, the one made void, and one more are 4", got)
		}
		w.CloseClean(c)
		w.NoLeases()
	})
}
