package etcdclaims_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
)

// pickUp is the documented bound from the death of a holder to the next owner,
// for a waiter whose watch is deaf.
func pickUp(ttl time.Duration) time.Duration { return ttl + sec + ttl/3 }

// A waiter whose watch keeps anything back gets the key of a dead holder within
// TTL + 1 s + one renewal interval, wherever in line it stands.
func TestDeafWaiterPicksUp(t *testing.T) {
	t.Parallel()
	const ttl = 6 * sec
	calls := map[string]func(context.Context, *etcdclaims.Client) error{
		"Acquire": func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.Acquire(ctx, "k"); return err },
		"Begin":   func(ctx context.Context, c *etcdclaims.Client) error { _, err := works(c).Begin(ctx, "k"); return err },
		"with a note": func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := c.Acquire(ctx, "k", etcdclaims.Note([]byte("x")))
			return err
		},
		"Manual": func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := c.Acquire(ctx, "k", etcdclaims.Manual())
			return err
		},
		"Run": func(ctx context.Context, c *etcdclaims.Client) error {
			return c.Run(ctx, "k", func(context.Context) error { return nil })
		},
	}
	if !testetcd.Long() {
		delete(calls, "Manual")
		delete(calls, "with a note")
	}
	for how, fault := range deafness.Kinds() {
		for call, acquire := range calls {
			for _, second := range []bool{false, true} {
				if second && call == "Begin" && !testetcd.Long() {
					continue
				}
				virtualCase(t, fmt.Sprintf("%s, %s, second in line %v", how, call, second), func(t *testing.T, w *world) {
					a, ahost := w.client(etcdclaims.Config{TTL: ttl})
					b, bhost := w.client(etcdclaims.Config{TTL: ttl})
					bhost.Inject(fault)
					tryClaim(t, a, "k")
					if second { // the first dies as well
						c, chost := w.client(etcdclaims.Config{TTL: ttl})
						acquiring(context.Background(), c, "k")
						time.Sleep(sec)
						time.AfterFunc(3*sec, chost.Kill)
					}
					done := make(chan error, 1)
					go func() { done <- acquire(context.Background(), b) }()
					if how == deafness.Cancel { // the watch begins before the oldest revision there is
						time.Sleep(100 * time.Millisecond)
						resp, err := w.Raw.Put(context.Background(), "/x", "")
						noErr(t, err)
						_, err = w.Raw.Compact(context.Background(), resp.Header.Revision)
						noErr(t, err)
					}
					time.Sleep(3 * sec)
					died := time.Now()
					ahost.Kill()
					select {
					case err := <-done:
						noErr(t, err)
						if d := time.Since(died); d > pickUp(ttl) {
							t.Errorf("picked up after %v, want %v", d, pickUp(ttl))
						}
					case <-time.After(10 * time.Minute):
						t.Fatalf("not picked up within 10 min; etcd has %v", w.All())
					}
				})
			}
		}
	}
}

// A release that a deaf waiter does not hear of delays it for one renewal
// interval.
func TestDeafWaiterIsHandedTheKey(t *testing.T) {
	t.Parallel()
	for how, fault := range deafness.Kinds() {
		virtualCase(t, how, func(t *testing.T, w *world) {
			a := w.peer()
			b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			host.Inject(fault)
			for range 3 {
				held := tryClaim(t, a, "k")
				done := acquiring(context.Background(), b, "k")
				time.Sleep(2 * sec)
				release(t, held)
				release(t, w.within(5*sec+100*time.Millisecond, done))
			}
			w.CloseClean(a, b)
		})
	}
}

// What waiters at rest cost: they share requests with the renewal.
func TestWaitersAtRestShareRequests(t *testing.T) {
	t.Parallel()
	n := 600
	if testing.Short() {
		n = 200
	}
	for _, same := range []bool{true, false} {
		virtualCase(t, fmt.Sprintf("one key %v", same), func(t *testing.T, w *world) {
			a, b := w.peer(), w.peer()
			ctx, cancel := context.WithCancel(context.Background())
			for i := range n {
				key := "k"
				if !same {
					key = fmt.Sprint("k", i)
				}
				if i == 0 || !same {
					tryClaim(t, a, key)
				}
				acquiring(ctx, b, key)
				if i%100 == 0 {
					time.Sleep(sec) // etcd cannot begin 512 watches at one virtual instant
				}
			}
			time.Sleep(30 * sec) // all are in line, and watch
			before := b.Stats().Requests
			time.Sleep(60 * sec)
			requests := b.Stats().Requests - before
			// A renewal every 5 s, so 13 if one falls on either end of the minute: each a
			// keep-alive and ceil(n/128) comparisons.
			t.Logf("%d waiters at rest: %d requests a minute", n, requests)
			if requests > int64(13*(1+(n+127)/128)+4) {
				t.Errorf("%d requests a minute", requests)
			}
			cancel()
			time.Sleep(5 * sec)
		})
	}
}

// One of three members hangs for the waiter's machine; then the holder dies. The
// waiter's watches are on one stream, which may be the hung member's.
func TestHungMemberAndDeadHolder(t *testing.T) {
	testetcd.SkipUnlessLong(t, "waits for leases of nine seconds")
	t.Parallel()
	members := claimtest.Cluster(t, 3)
	const ttl = 9 * sec // one that a busy machine can keep
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			prefix := fmt.Sprintf("/p%d/", i)
			ahost, bhost := members.Host(t), members.Host(t)
			a := claimtest.NewClient(t, ahost, etcdclaims.Config{Prefix: prefix, TTL: ttl})
			b := claimtest.NewClient(t, bhost, etcdclaims.Config{Prefix: prefix, TTL: ttl})
			tryClaim(t, a, "k")
			done := acquiring(t.Context(), b, "k")
			time.Sleep(3 * sec)
			bhost.Hang(members.Endpoints()[i%3])
			time.Sleep(2 * sec)
			ahost.Kill()
			died := time.Now()
			select {
			case r := <-done:
				noErr(t, r.err)
				t.Logf("picked up after %v", time.Since(died))
				// Each request that goes to the hung member costs a timeout more.
				if d := time.Since(died); d > pickUp(ttl)+5*sec {
					t.Errorf("picked up after %v", d)
				}
			case <-time.After(time.Minute):
				t.Fatal("not picked up within a minute")
			}
		})
	}
}

// History asks again for the progress by which it knows that it has read all events.
func TestHistoryAsksAgainForProgress(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "k"))
		tryClaim(t, c, "other") // what follows is of no event of k
		lost := host.Inject(deafness.Kinds()[deafness.Progress])
		time.AfterFunc(2*sec, lost.Remove)
		began := time.Now()
		h, err := admin.History(context.Background(), c, "k")
		noErr(t, err)
		if d := time.Since(began); len(h.Terms) != 1 || d < 2*sec || d > 2*sec+500*time.Millisecond {
			t.Errorf("%d terms after %v", len(h.Terms), d)
		}
	})
}
