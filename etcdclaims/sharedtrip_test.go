package etcdclaims_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/server/v3/embed"
)

// flightOf lets n acquisitions share a round trip: two others are on their way
// for 100 ms, while which they come. What happens to the round trip that they
// share is injected by the caller, behind those two.
type flightOf struct {
	*world
	host   *claimtest.Host
	claims []*etcdclaims.Claim
	errs   []error
	done   sync.WaitGroup
	sent   int // acquisitions before
}

func board(w *world, host *claimtest.Host, n int, acquire func(i int) (*etcdclaims.Claim, error)) *flightOf {
	f := &flightOf{world: w, host: host, claims: make([]*etcdclaims.Claim, n), errs: make([]error, n)}
	f.sent = len(host.Sent(claimtest.Acquire))
	for i := range n {
		f.done.Go(func() {
			if i > 1 {
				time.Sleep(10 * time.Millisecond) // behind the first two
			}
			f.claims[i], f.errs[i] = acquire(i)
		})
	}
	return f
}

// delayTwo delays the two behind which others wait.
func delayTwo(host *claimtest.Host) {
	host.Inject(claimtest.Fault{On: claimtest.Acquire, Times: 2, DelayRequest: 100 * time.Millisecond})
}

func (f *flightOf) trips() int { return len(f.host.Sent(claimtest.Acquire)) - f.sent }

// allHeld fails unless each claim is held, but for some.
func (f *flightOf) allHeld(but ...int) {
	f.Helper()
	in := f.all()
	for i, cl := range f.claims {
		skip := false
		for _, b := range but {
			skip = skip || i == b
		}
		if skip {
			continue
		}
		if f.errs[i] != nil || cl == nil {
			f.Errorf("k%d: %v", i, f.errs[i])
			continue
		}
		if ok, err := cl.Owns(context.Background()); !ok || err != nil || in[f.own(cl.Key())] == "" {
			f.Errorf("k%d: owns %v, %v", i, ok, err)
		}
	}
}

func key(i int) string { return fmt.Sprint("k", i) }

// A caller that gives up makes void what it shares a round trip with others,
// which lose nothing but time, and leaves nothing behind. The round trip arrives
// when all that is over.
func TestCallerLeavesItsFlight(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "warm"))
		delayTwo(host)
		arrives := make(chan struct{})
		held := host.Inject(claimtest.Fault{On: claimtest.Acquire, Hold: arrives})
		ctx, leave := context.WithCancel(context.Background())
		f := board(w, host, 20, func(i int) (*etcdclaims.Claim, error) {
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
		f.done.Wait()
		wantIs(t, f.errs[5], etcdclaims.ErrUnknown)
		wantIs(t, f.errs[5], context.Canceled)
		f.allHeld(5)
		if w.get("own/k5") != "" {
			t.Error("the claim of the caller that left is there")
		}
		if got := f.trips(); got != 4 {
			t.Errorf("%d round trips: two alone, the one made void, and one more are 4", got)
		}
		w.closeClean(c)
		w.noLeases()
	})
}

// The lease of one of two sessions is revoked while claims on both share a
// round trip: those on the other session are one round trip later.
func TestDeadLeaseInAFlight(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "warm"))
		doomed := tryClaim(t, c, "doomed", etcdclaims.TTL(30*sec))
		delayTwo(host)
		arrives := make(chan struct{})
		held := host.Inject(claimtest.Fault{On: claimtest.Acquire, Hold: arrives})
		ended := make([]time.Time, 20)
		f := board(w, host, 20, func(i int) (*etcdclaims.Claim, error) {
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
		w.server.Revoke(t, w.own("doomed"))
		arrived := time.Now()
		close(arrives)
		f.done.Wait()
		f.allHeld(1) // which was carried out before the revocation
		lossOf(t, doomed.Err(), etcdclaims.ReasonRevoked)
		for i := 2; i < 20; i += 2 {
			if took := ended[i].Sub(arrived); took > 5*time.Millisecond {
				t.Errorf("k%d came %v after the refusal", i, took)
			}
		}
		w.closeClean(c)
	})
}

// One key that the client may not write fails alone.
func TestForbiddenKeyInAFlight(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "warm"))
		delayTwo(host)
		host.Inject(claimtest.Fault{On: claimtest.Acquire, Key: "k7", Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
		f := board(w, host, 40, func(i int) (*etcdclaims.Claim, error) {
			return c.TryAcquire(context.Background(), key(i))
		})
		f.done.Wait()
		wantIs(t, f.errs[7], rpctypes.ErrPermissionDenied)
		f.allHeld(7)
		w.closeClean(c)
	})
}

// The epoch is raised while acquisitions of the old one are on their way: they
// are made again, under the new one.
func TestEpochRisesUnderAFlight(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "warm"))
		delayTwo(host)
		arrives := make(chan struct{})
		host.Inject(claimtest.Fault{On: claimtest.Acquire, Hold: arrives})
		f := board(w, host, 30, func(i int) (*etcdclaims.Claim, error) {
			return c.TryAcquire(context.Background(), key(i))
		})
		time.Sleep(200 * time.Millisecond)
		w.server.RaiseEpoch(t, w.prefix)
		close(arrives)
		f.done.Wait()
		f.allHeld(0, 1) // claimed before, and lost by it
		for i, cl := range f.claims[2:] {
			if cl != nil && cl.Fence()>>47 != 1 {
				t.Errorf("k%d has fence %d, of an epoch before", i+2, cl.Fence())
			}
		}
	})
}

// Where more wait than etcd allows operations, they stand in two levels, and
// still go together.
func TestMoreThanEtcdAllowsInAFlight(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		limit uint
		trips int
	}{{"128", 128, 3}, {"32", 32, 10}, {"16", 16, 24}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, w *world) {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				release(t, tryClaim(t, c, "warm"))
				delayTwo(host)
				f := board(w, host, 402, func(i int) (*etcdclaims.Claim, error) {
					return c.TryAcquire(context.Background(), key(i))
				})
				f.done.Wait()
				f.allHeld()
				if got := f.trips(); got > test.trips {
					t.Errorf("%d round trips, want at most %d", got, test.trips)
				}
				w.closeClean(c)
			}, claimtest.MaxTxnOps(test.limit))
		})
	}
}

// A server that takes less in one request than others do is not asked for more
// again and again, and what is too large by itself fails alone.
func TestSmallRequestsInAFlight(t *testing.T) {
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
		if got := len(host.Sent(claimtest.Acquire)) - before; got > 30 {
			t.Errorf("%d round trips", got)
		}
		_, err := c.TryAcquire(context.Background(), "large", etcdclaims.Note(make([]byte, 40<<10)))
		wantIs(t, err, etcdclaims.ErrTooLarge)
		w.closeClean(c)
	}, claimtest.Tweak(func(cfg *embed.Config) { cfg.MaxRequestBytes = 32 << 10 }))
}

// A client with a KV of the caller's own shares round trips as well.
func TestFlightThroughANamespace(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		host := w.server.Host(t)
		etcd := host.Etcd(t)
		etcd.KV = namespace.NewKV(etcd.KV, "ns")
		etcd.Watcher = namespace.NewWatcher(etcd.Watcher, "ns")
		etcd.Lease = namespace.NewLease(etcd.Lease, "ns")
		c := newClient(t, etcd, etcdclaims.Config{Prefix: w.prefix, TTL: 15 * sec})
		release(t, tryClaim(t, c, "warm"))
		delayTwo(host)
		f := board(w, host, 40, func(i int) (*etcdclaims.Claim, error) {
			if i%4 == 3 {
				return c.Acquire(context.Background(), key(i))
			}
			return c.TryAcquire(context.Background(), key(i), etcdclaims.Note([]byte("n")))
		})
		f.done.Wait()
		for i, cl := range f.claims {
			if f.errs[i] != nil {
				t.Fatalf("k%d: %v", i, f.errs[i])
			}
			if ok, err := cl.Owns(context.Background()); !ok || err != nil {
				t.Errorf("k%d: %v, %v", i, ok, err)
			}
		}
		if got := f.trips(); got > 4 {
			t.Errorf("%d round trips", got)
		}
		if _, err := c.TryAcquire(context.Background(), "k3"); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Error(err)
		}
		resp, err := w.raw.Get(context.Background(), "ns"+w.own("k3"), clientv3.WithCountOnly())
		if err != nil || resp.Count != 1 {
			t.Errorf("%v, %v", resp, err)
		}
		for _, cl := range f.claims {
			release(t, cl)
		}
	})
}

// Claims on several keys at once share round trips too, but with nobody who wants
// one of the same keys.
func TestSeveralKeysInAFlight(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "warm"))
		delayTwo(host)
		var mu sync.Mutex
		owners := map[string]int{}
		fences := map[int64]int{}
		f := board(w, host, 12, func(i int) (*etcdclaims.Claim, error) {
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
		f.done.Wait()
		won := 0
		for i := 2; i < 12; i++ {
			if f.errs[i] == nil {
				won++
			} else {
				wantIs(t, f.errs[i], etcdclaims.ErrHeld)
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
		if got := f.trips(); got > 6 {
			t.Errorf("%d round trips", got)
		}
		w.closeClean(c)
	})
}
