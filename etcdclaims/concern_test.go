package etcdclaims_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// putsBeside returns an option that puts a key of the call's own beside its claim.
func putsBeside(i int) etcdclaims.TxnOption {
	return etcdclaims.Then(clientv3.OpPut(beside(i), key(i)))
}

func beside(i int) string { return fmt.Sprint("/beside/", i) }

// times returns how often the key was put.
func (w *world) times(etcdKey string) int64 {
	w.Helper()
	resp, err := w.Raw.Get(context.Background(), etcdKey)
	if err != nil {
		w.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return 0
	}
	return resp.Kvs[0].Version
}

// putOnce fails unless each of so many calls has put its key, once.
func (w *world) putOnce(calls int) {
	w.Helper()
	for i := range calls {
		if n := w.times(beside(i)); n != 1 {
			w.Errorf("%s was put %d times", beside(i), n)
		}
	}
}

// Calls with operations of their callers share a round trip if the callers have said what
// those concern, and nothing concerns two of them.
func TestConcernsShareRoundTrips(t *testing.T) {
	t.Parallel()
	const n = 20
	for name, test := range map[string]struct {
		concern func(i int) []string
		trips   int
	}{
		"each its own":      {func(i int) []string { return []string{key(i)} }, 3},
		"two each":          {func(i int) []string { return []string{fmt.Sprint("pair ", i/2)} }, 4},
		"one in common":     {func(i int) []string { return []string{key(i), "all"} }, n},
		"claim of another":  {func(i int) []string { return []string{key(i &^ 1)} }, 4},
		"whatever they may": {func(int) []string { return nil }, n},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, w *world) {
				c, host := w.busy()
				b := acquireTogether(w, host, n, func(i int) (*etcdclaims.Claim, error) {
					return c.TryAcquire(context.Background(), key(i), option.Concern{Names: test.concern(i)}, etcdclaims.If(clientv3.Compare(clientv3.CreateRevision(beside(i)), "=", 0)), putsBeside(i))
				})
				b.done.Wait()
				b.allHeld()
				if got := b.roundTrips(); got != test.trips {
					t.Errorf("%d round trips, want %d", got, test.trips)
				}
				w.putOnce(n)
				w.CloseClean(c)
			})
		})
	}
}

// So do calls that wait in line if need be.
func TestConcernsOfWaiters(t *testing.T) {
	t.Parallel()
	const n = 20
	virtually(t, func(t *testing.T, w *world) {
		other := w.peer()
		held := tryClaim(t, other, key(3))
		c, host := w.busy()
		b := acquireTogether(w, host, n, func(i int) (*etcdclaims.Claim, error) {
			return c.Acquire(context.Background(), key(i), option.Concern{Names: []string{key(i)}}, putsBeside(i))
		})
		time.Sleep(sec)
		noErr(t, held.Release(context.Background()))
		b.done.Wait()
		b.allHeld()
		w.putOnce(n)
		noErr(t, other.Close(context.Background()))
		w.CloseClean(c)
	})
}

// Of the calls that share a round trip, one whose own condition does not hold is refused.
func TestConcernRefusedAlone(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.busy()
		b := acquireTogether(w, host, 20, func(i int) (*etcdclaims.Claim, error) {
			rev := int64(0)
			if i == 7 {
				rev = 1
			}
			return c.TryAcquire(context.Background(), key(i), option.Concern{Names: []string{key(i)}},
				etcdclaims.If(clientv3.Compare(clientv3.CreateRevision(beside(i)), "=", rev)), putsBeside(i))
		})
		b.done.Wait()
		wantIs(t, b.errs[7], etcdclaims.ErrRefused)
		b.allHeld(7)
		if w.times(beside(7)) != 0 || w.get("own/k7") != "" {
			t.Error("what was refused was carried out")
		}
		w.CloseClean(c)
	})
}

// Whatever is lost of a shared round trip, what its calls do with Then is done once by
// those that have their claim, and by no other.
func TestConcernsLost(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]claimtest.Fault{
		"request": {On: claimtest.Acquire, LoseRequest: true},
		"reply":   {On: claimtest.Acquire, LoseReply: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, w *world) {
				c, host := w.busy()
				host.Inject(fault)
				b := acquireTogether(w, host, 40, func(i int) (*etcdclaims.Claim, error) {
					return c.TryAcquire(context.Background(), key(i), option.Concern{Names: []string{key(i)}}, putsBeside(i))
				})
				b.done.Wait()
				b.allHeld()
				if got := b.roundTrips(); got == 0 || got > 20 {
					t.Errorf("%d round trips: nothing was shared", got)
				}
				w.putOnce(40)
				w.CloseClean(c)
				w.NoLeases()
			})
		})
	}
}

// A caller that gives up voids the round trip that it shares, which arrives later. What the
// others do with Then is done once, and what it would have done never.
func TestConcernGivenUp(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.busy()
		arrives := make(chan struct{})
		host.Inject(claimtest.Fault{On: claimtest.Acquire, Hold: arrives})
		ctx, leave := context.WithCancel(context.Background())
		defer leave()
		b := acquireTogether(w, host, 20, func(i int) (*etcdclaims.Claim, error) {
			with := context.Background()
			if i == 5 {
				with = ctx
			}
			return c.TryAcquire(with, key(i), option.Concern{Names: []string{key(i)}}, putsBeside(i))
		})
		time.Sleep(200 * time.Millisecond)
		leave()
		time.Sleep(100 * time.Millisecond) // it is undone
		close(arrives)
		b.done.Wait()
		wantIs(t, b.errs[5], etcdclaims.ErrUnknown)
		b.allHeld(5)
		for i := range 20 {
			want := int64(1)
			if i == 5 {
				want = 0
			}
			if got := w.times(beside(i)); got != want {
				t.Errorf("%s was put %d times, want %d", beside(i), got, want)
			}
		}
		w.CloseClean(c)
		w.NoLeases()
	})
}

// Transactions under different claims share round trips under the same rule. One whose claim
// was taken away does nothing, and tells its caller so; the others are carried out.
func TestConcernsOfClaims(t *testing.T) {
	t.Parallel()
	for of, trips := range map[int]int{1: 3, 2: 4} { // how many have a concern in common
		virtually(t, func(t *testing.T, w *world) {
			const n = 40
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			claims := make([]*etcdclaims.Claim, n)
			for i := range claims {
				claims[i] = tryClaim(t, c, key(i))
			}
			w.rawPut(key(9), "of an operator")
			host.Inject(claimtest.Fault{On: claimtest.Other, Times: 2, DelayRequest: 100 * time.Millisecond})
			before, errs := len(host.Sent(claimtest.Other)), make([]error, n)
			var wg sync.WaitGroup
			for i, cl := range claims {
				wg.Go(func() {
					if i > 1 {
						time.Sleep(10 * time.Millisecond) // behind the first two
					}
					resp, err := txn.Concerning(cl.Txn(context.Background()), fmt.Sprint("concern ", i/of)).
						If(clientv3.Compare(clientv3.CreateRevision(beside(i)), "=", 0)).
						Then(clientv3.OpPut(beside(i), "")).Else(clientv3.OpGet(beside(i))).Commit()
					if errs[i] = err; err == nil && !resp.Succeeded {
						t.Errorf("%d: its condition did not hold", i)
					}
				})
			}
			wg.Wait()
			if got := len(host.Sent(claimtest.Other)) - before; got != trips {
				t.Errorf("%d have a concern in common: %d round trips, want %d", of, got, trips)
			}
			for i, err := range errs {
				if i == 9 {
					wantIs(t, err, etcdclaims.ErrLost)
				} else if err != nil {
					t.Errorf("%d: %v", i, err)
				}
				if got := w.times(beside(i)); (got == 1) == (i == 9) {
					t.Errorf("%s was put %d times", beside(i), got)
				}
			}
		})
	}
}
