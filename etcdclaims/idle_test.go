package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A session that carries nothing ends after two of its TTLs: that of a TTL asked for
// once, and the client's own. What is claimed later begins another.
func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		n := testetcd.Fewer(120, 20)
		for i := range n {
			release(t, tryClaim(t, a, "k", etcdclaims.TTL(time.Duration(20+i)*sec)))
		}
		if s := a.Stats(); s.Sessions < n/2 {
			t.Errorf("%d sessions", s.Sessions)
		}
		time.Sleep(time.Duration(2*(20+n))*sec + 5*sec)
		if s := a.Stats(); s.Sessions != 0 {
			t.Errorf("%d sessions, nothing held", s.Sessions)
		}
		w.NothingLeft()
		w.NoLeases()
		before := a.Stats().Requests
		time.Sleep(20 * time.Minute)
		if s := a.Stats(); s.Requests != before {
			t.Errorf("%d requests of a client that does nothing", s.Requests-before)
		}
		cl := tryClaim(t, a, "k")
		time.Sleep(20 * time.Minute)
		noErr(t, cl.Check())
		release(t, cl)
	})
}

// When a session ends, to the second, and what keeps it.
func TestWhatKeepsASession(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	virtualCase(t, "nothing", func(t *testing.T, w *world) {
		a := w.peer()
		release(t, tryClaim(t, a, "k"))
		time.Sleep(29 * sec)
		if s := a.Stats(); s.Sessions != 1 {
			t.Errorf("%d sessions after 29 s of TTL 15 s", s.Sessions)
		}
		time.Sleep(2 * sec)
		if s := a.Stats(); s.Sessions != 0 {
			t.Errorf("%d sessions after 31 s of TTL 15 s", s.Sessions)
		}
	})
	virtualCase(t, "use", func(t *testing.T, w *world) {
		a := w.peer()
		release(t, tryClaim(t, a, "k"))
		first := len(w.All())
		for range 20 {
			time.Sleep(29 * sec)
			if n := len(w.All()); n != first || a.Stats().Sessions != 1 {
				t.Fatal("the session is gone that was used every 29 s")
			}
			release(t, tryClaim(t, a, "k"))
		}
		if n := a.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions", n)
		}
	})
	virtualCase(t, "waiting", func(t *testing.T, w *world) {
		a, b := w.peer(), w.peer()
		cl := tryClaim(t, b, "k")
		waiting := acquiring(bg, a, "k")
		time.Sleep(10 * time.Minute)
		release(t, cl)
		r := <-waiting
		noErr(t, r.err)
		release(t, r.cl)
	})
	virtualCase(t, "a caller that left", func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		host.Inject(claimtest.Fault{On: claimtest.Grant, DelayReply: sec})
		ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
		defer cancel()
		if _, err := a.TryAcquire(ctx, "k"); err == nil {
			t.Error("acquired")
		}
		time.Sleep(40 * sec)
		w.NothingLeft()
		w.NoLeases()
	})
	virtualCase(t, "what is to be undone", func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, a, "warm"))
		host.Inject(claimtest.Fault{On: steps.Take, LoseReply: true})
		undo := host.Inject(claimtest.Fault{On: steps.Undo, Times: -1, LoseRequest: true})
		resolve := host.Inject(claimtest.Fault{On: steps.Resolve, Times: -1, LoseRequest: true})
		ctx, cancel := context.WithTimeout(bg, sec)
		defer cancel()
		if _, err := a.TryAcquire(ctx, "k"); !errors.Is(err, etcdclaims.ErrUnknown) {
			t.Errorf("got %v", err)
		}
		time.Sleep(50 * sec)
		undo.Remove()
		resolve.Remove()
		time.Sleep(10 * sec)
		if v := w.get("own/k"); v != "" {
			t.Errorf("held by nobody: %s", v)
		}
	})
}

// Acquisitions at the very moment at which the session ends succeed.
func TestAcquireAsTheSessionEnds(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		for i := -6; i <= 6; i++ {
			virtualCase(t, fmt.Sprint(lost, i), func(t *testing.T, w *world) {
				a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				host.Inject(claimtest.Fault{On: claimtest.Revoke, LoseReply: lost, DelayReply: 10 * time.Millisecond, Times: -1})
				host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 2 * time.Millisecond})
				release(t, tryClaim(t, a, "k"))
				time.Sleep(30*sec + time.Duration(i)*time.Millisecond)
				var wg sync.WaitGroup
				for j := range 20 {
					wg.Go(func() {
						cl := tryClaim(t, a, fmt.Sprint("k", j))
						time.Sleep(time.Minute)
						noErr(t, cl.Check())
						release(t, cl)
					})
				}
				wg.Wait()
			})
		}
	}
}

// What makes void the requests of callers that gave up counts to what a lease
// carries, so that none carries more than it should.
func TestVoidsFillASession(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: time.Hour})
		held := tryClaim(t, a, "warm")
		lose := host.Inject(claimtest.Fault{On: steps.Take, Times: -1, LoseRequest: true})
		const n = 8400
		for i := range n { // one after the other: those that share a round trip share a void
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			if _, err := a.TryAcquire(ctx, fmt.Sprint("k", i%3)); err == nil {
				t.Fatal("acquired")
			}
			cancel()
			time.Sleep(time.Millisecond)
		}
		lose.Remove()
		time.Sleep(10 * sec)
		most := 0
		leases, err := w.Raw.Leases(context.Background())
		noErr(t, err)
		for _, l := range leases.Leases {
			ttl, err := w.Raw.TimeToLive(context.Background(), l.ID, clientv3.WithAttachedKeys())
			noErr(t, err)
			most = max(most, len(ttl.Keys))
		}
		if s := a.Stats(); most > 8193+1 || s.Sessions != 2 {
			t.Errorf("%d keys on a lease, %d sessions", most, s.Sessions)
		}
		t.Logf("%d keys on a lease at most", most)
		time.Sleep(5 * time.Hour)
		if s := a.Stats(); s.Sessions != 1 {
			t.Errorf("%d sessions though one is not used", s.Sessions)
		}
		noErr(t, held.Check())
	})
}
