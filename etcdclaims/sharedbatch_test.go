package etcdclaims_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/server/v3/embed"
)

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

// The lease of one of two sessions is revoked while claims of both share a round
// trip. The claims of the other session take one more round trip.
func TestDeadLeaseInBatch(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "warm"))
		doomed := tryClaim(t, c, "doomed", etcdclaims.TTL(30*sec))
		delayTwo(host)
		arrives := make(chan struct{})
		held := host.Inject(claimtest.Fault{On: claimtest.Acquire, Hold: arrives})
		ended := make([]time.Time, 20)
		b := acquireTogether(w, host, 20, func(i int) (*etcdclaims.Claim, error) {
			var opts []etcdclaims.AcquireOption
			if i%2 == 1 {
				opts = append(opts, etcdclaims.TTL(30*sec))
			}
			cl, err := c.TryAcquire(context.Background(), key(i), opts...)
			ended[i] = time.Now()
			return cl, err
		})
		time.Sleep(200 * time.Millisecond)
		if held.Hits() != 1 {
			t.Fatalf("%d round trips are held", held.Hits())
		}
		w.Server.Revoke(t, w.Own("doomed"))
		arrived := time.Now()
		close(arrives)
		b.done.Wait()
		b.allHeld(1) // which was carried out before the revocation
		lossOf(t, doomed.Err(), etcdclaims.ReasonRevoked)
		for i := 2; i < 20; i += 2 {
			if took := ended[i].Sub(arrived); took > 5*time.Millisecond {
				t.Errorf("k%d came %v after the refusal", i, took)
			}
		}
		w.CloseClean(c)
	})
}

// The call for a key that the client may not write fails, and no other call does.
func TestForbiddenKeyInBatch(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.busy()
		host.Inject(claimtest.Fault{On: claimtest.Acquire, Key: "k7", Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
		b := acquireTogether(w, host, 40, func(i int) (*etcdclaims.Claim, error) {
			return c.TryAcquire(context.Background(), key(i))
		})
		b.done.Wait()
		wantIs(t, b.errs[7], rpctypes.ErrPermissionDenied)
		b.allHeld(7)
		w.CloseClean(c)
	})
}

// The epoch is raised while acquisitions of the old epoch are under way. They are
// made again under the new one.
func TestEpochRisesDuringBatch(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.busy()
		arrives := make(chan struct{})
		host.Inject(claimtest.Fault{On: claimtest.Acquire, Hold: arrives})
		b := acquireTogether(w, host, 30, func(i int) (*etcdclaims.Claim, error) {
			return c.TryAcquire(context.Background(), key(i))
		})
		time.Sleep(200 * time.Millisecond)
		w.Server.RaiseEpoch(t, w.Prefix)
		close(arrives)
		b.done.Wait()
		b.allHeld(0, 1) // claimed before, and lost by it
		for i, cl := range b.claims[2:] {
			if cl != nil && cl.Fence()>>47 != 1 {
				t.Errorf("k%d has fence %d, of an epoch before", i+2, cl.Fence())
			}
		}
	})
}

// Calls with more operations than etcd allows in a transaction still share round
// trips, as nested transactions.
func TestBatchBeyondMaxTxnOps(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	for _, test := range []struct {
		name  string
		limit uint
		trips int
	}{{"128", 128, 3}, {"32", 32, 10}, {"16", 16, 24}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, w *world) {
				c, host := w.busy()
				b := acquireTogether(w, host, 402, func(i int) (*etcdclaims.Claim, error) {
					return c.TryAcquire(context.Background(), key(i))
				})
				b.done.Wait()
				b.allHeld()
				if got := b.roundTrips(); got > test.trips {
					t.Errorf("%d round trips, want at most %d", got, test.trips)
				}
				w.CloseClean(c)
			}, testclaims.MaxTxnOps(test.limit))
		})
	}
}

// The client learns that a server accepts only smaller requests. A call that is too
// large by itself fails, and no other call does.
func TestBatchBeyondMaxRequestBytes(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "warm"))
		keys := make([]string, 300)
		for i := range keys {
			keys[i] = key(i)
		}
		before := len(host.Sent(claimtest.Acquire))
		claims, errs := c.TryAcquireEach(context.Background(), keys, etcdclaims.Note(bytes.Repeat([]byte("n"), 500)))
		for i := range keys {
			if errs[i] != nil || claims[i].Check() != nil {
				t.Errorf("%s: %v", keys[i], errs[i])
			}
		}
		// 300 of about 900 bytes are 11 times 24 KiB, which is what is left of the
		// first guess after halving it.
		if got := len(host.Sent(claimtest.Acquire)) - before; got == 0 || got > 30 {
			t.Errorf("%d round trips", got)
		}
		_, err := c.TryAcquire(context.Background(), "large", etcdclaims.Note(make([]byte, 40<<10)))
		wantIs(t, err, etcdclaims.ErrTooLarge)
		w.CloseClean(c)
	}, claimtest.Tweak(func(cfg *embed.Config) { cfg.MaxRequestBytes = 32 << 10 }))
}

// Calls of a client with a KV of its own share round trips too.
func TestBatchInNamespace(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		host := w.Server.Host(t)
		etcd := host.Etcd(t)
		etcd.KV = namespace.NewKV(etcd.KV, "ns")
		etcd.Watcher = namespace.NewWatcher(etcd.Watcher, "ns")
		etcd.Lease = namespace.NewLease(etcd.Lease, "ns")
		c := newClient(t, etcd, etcdclaims.Config{Prefix: w.Prefix, TTL: 15 * sec})
		release(t, tryClaim(t, c, "warm"))
		delayTwo(host)
		b := acquireTogether(w, host, 40, func(i int) (*etcdclaims.Claim, error) {
			if i%4 == 3 {
				return c.Acquire(context.Background(), key(i))
			}
			return c.TryAcquire(context.Background(), key(i), etcdclaims.Note([]byte("n")))
		})
		b.done.Wait()
		for i, cl := range b.claims {
			if b.errs[i] != nil {
				t.Fatalf("k%d: %v", i, b.errs[i])
			}
			if ok, err := cl.Owns(context.Background()); !ok || err != nil {
				t.Errorf("k%d: %v, %v", i, ok, err)
			}
		}
		if got := b.roundTrips(); got == 0 || got > 4 {
			t.Errorf("%d round trips", got)
		}
		if _, err := c.TryAcquire(context.Background(), "k3"); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Error(err)
		}
		resp, err := w.Raw.Get(context.Background(), "ns"+w.Own("k3"), clientv3.WithCountOnly())
		if err != nil || resp.Count != 1 {
			t.Errorf("%v, %v", resp, err)
		}
		for _, cl := range b.claims {
			release(t, cl)
		}
	})
}

// Claims on several keys at once share round trips too, except with calls for one of
// the same keys.
func TestSeveralKeysInBatch(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.busy()
		var mu sync.Mutex
		owners := map[string]int{}
		fences := map[int64]int{}
		b := acquireTogether(w, host, 12, func(i int) (*etcdclaims.Claim, error) {
			if i < 2 {
				return c.TryAcquire(context.Background(), key(i))
			}
			// 2 and 3 want a key in common, as do 4 and 5, and so on.
			claims, err := c.TryAcquireAll(context.Background(), []string{key(i), fmt.Sprint("common", i/2), key(100 + i)})
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, cl := range claims {
				owners[cl.Key()]++
				fences[cl.Fence()]++
			}
			return claims[0], nil
		})
		b.done.Wait()
		won := 0
		for i := 2; i < 12; i++ {
			if b.errs[i] == nil {
				won++
			} else {
				wantIs(t, b.errs[i], etcdclaims.ErrHeld)
			}
		}
		if won != 5 {
			t.Errorf("%d of five pairs won", won)
		}
		for k, n := range owners {
			if n != 1 {
				t.Errorf("%s has %d owners", k, n)
			}
		}
		if got := b.roundTrips(); got == 0 || got > 6 {
			t.Errorf("%d round trips", got)
		}
		w.CloseClean(c)
	})
}
