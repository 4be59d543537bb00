package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// counts are the Stats that only grow.
type counts struct{ attempts, acquired, contended, tookOver, released, completed, failed, zombies int64 }

func countsOf(c *etcdclaims.Client) counts {
	s, of := c.Stats(), works(c).Stats()
	return counts{s.Attempts, s.Acquired, s.Contended, of.TookOver, s.Released, of.Completed, of.Failed, s.Zombies}
}

func TestStats(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx, etcd := t.Context(), server.Etcd(t)
		a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
		var last counts
		lost := map[etcdclaims.Reason]int64{}
		// since wants what was counted since the last call.
		since := func(what string, held, sessions int, want counts) {
			t.Helper()
			s := a.Stats()
			now := countsOf(a)
			got := counts{
				now.attempts - last.attempts, now.acquired - last.acquired, now.contended - last.contended, now.tookOver - last.tookOver,
				now.released - last.released, now.completed - last.completed, now.failed - last.failed, now.zombies - last.zombies,
			}
			last = now
			if got != want || s.Held != held || s.Sessions != sessions || fmt.Sprint(s.Lost) != fmt.Sprint(lost) {
				t.Errorf("%s: %+v, held %d, sessions %d, lost %v; want %+v, %d, %d, %v", what, got, s.Held, s.Sessions, s.Lost, want, held, sessions, lost)
			}
		}
		since("nothing", 0, 0, counts{})
		one := tryClaim(t, a, "1")
		since("acquired", 1, 1, counts{attempts: 1, acquired: 1})
		_, err := a.TryAcquire(ctx, "1")
		wantIs(t, err, etcdclaims.ErrHeld)
		since("contended", 1, 1, counts{attempts: 1, contended: 1})
		again, err := a.TryAcquire(ctx, "1", etcdclaims.Reentrant())
		noErr(t, err)
		noErr(t, again.Release(ctx))
		since("shared", 1, 1, counts{attempts: 1})
		noErr(t, one.Release(ctx))
		noErr(t, one.Release(ctx))
		since("released", 0, 1, counts{released: 1})
		_, err = a.TryAcquire(ctx, "")
		wantIs(t, err, etcdclaims.ErrInvalidKey)
		since("not even tried", 0, 1, counts{})

		noErr(t, tryBegin(t, a, "w1").Complete(ctx))
		since("completed", 0, 1, counts{attempts: 1, acquired: 1, released: 1, completed: 1})
		_, err = works(a).TryBegin(ctx, "w1")
		wantIs(t, err, work.ErrDone)
		since("done", 0, 1, counts{attempts: 1})
		noErr(t, failing(ctx, tryBegin(t, a, "w2"), errors.New("x")))
		noErr(t, failing(ctx, tryBegin(t, a, "w3"), etcdclaims.Permanent(errors.New("x"))))
		since("failed", 0, 1, counts{attempts: 2, acquired: 2, released: 2, failed: 2})
		noErr(t, tryBegin(t, a, "w4").Release(ctx))
		since("given back", 0, 1, counts{attempts: 1, acquired: 1, released: 1})
		tryBegin(t, b, "w5")
		vanish(t, etcd, a, "w5")
		w5 := tryBegin(t, a, "w5")
		since("took over", 1, 1, counts{attempts: 1, acquired: 1, tookOver: 1})
		noErr(t, w5.Complete(ctx))
		since("completed", 0, 1, counts{released: 1, completed: 1})

		claimMany(t, a, numbered("e%d", 10))
		_, err = a.TryAcquireAll(ctx, []string{"e1", "e11"})
		wantIs(t, err, etcdclaims.ErrHeld)
		since("many", 10, 1, counts{attempts: 12, acquired: 10, contended: 1})
		n, err := a.ReleaseAll(ctx)
		if n != 10 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		since("released all", 0, 1, counts{released: 10})

		cl := tryClaim(t, a, "l1")
		_, err = etcd.Delete(ctx, prefix+"own/l1")
		noErr(t, err)
		if ok, _ := cl.Owns(ctx); ok {
			t.Error("it owns")
		}
		lost[etcdclaims.ReasonDeleted]++
		since("deleted", 0, 1, counts{attempts: 1, acquired: 1})
		cl = tryClaim(t, a, "l2")
		next, err := a.TryAcquire(ctx, "l2", etcdclaims.Supersede())
		noErr(t, err)
		lost[etcdclaims.ReasonSuperseded]++
		since("superseded", 1, 1, counts{attempts: 2, acquired: 2})
		wantIs(t, cl.Release(ctx), etcdclaims.ErrLost)
		noErr(t, next.Release(ctx))
		since("released", 0, 1, counts{released: 1})

		tryClaim(t, a, "l3")
		vanish(t, etcd, b, "l3")
		time.Sleep(time.Second)
		lost[etcdclaims.ReasonRevoked]++
		since("revoked", 0, 0, counts{attempts: 1, acquired: 1})

		manual := tryClaim(t, a, "m", etcdclaims.Manual())
		since("manual", 1, 1, counts{attempts: 1, acquired: 1})
		time.Sleep(14 * time.Second)
		wantIs(t, manual.Err(), etcdclaims.ErrLost)
		lost[etcdclaims.ReasonExpired]++
		since("expired", 0, 0, counts{})

		tryClaim(t, a, "h", etcdclaims.MaxHold(4*time.Second))
		time.Sleep(5 * time.Second)
		lost[etcdclaims.ReasonMaxHold]++
		since("held too long", 0, 1, counts{attempts: 1, acquired: 1})

		wantIs(t, a.TryRun(ctx, "z", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(10 * time.Second) // longer than the drain
			return nil
		}, etcdclaims.MaxHold(time.Minute)), etcdclaims.ErrLost)
		lost[etcdclaims.ReasonMaxHold]++
		since("a zombie", 0, 1, counts{attempts: 1, acquired: 1, zombies: 1})

		tryClaim(t, a, "s")
		noErr(t, a.Close(ctx))
		lost[etcdclaims.ReasonShutdown]++
		since("shut down", 0, 0, counts{attempts: 1, acquired: 1})
		_, err = a.TryAcquire(ctx, "s")
		wantIs(t, err, etcdclaims.ErrClosed)
	})
}

func TestStatsRequests(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	// Renewals count too: with this TTL none comes during the test.
	a, b, _ := twoOwners(t, etcd, etcdclaims.Config{TTL: time.Hour})
	cost := func(c *etcdclaims.Client, f func()) int64 {
		before := c.Stats().Requests
		f()
		return c.Stats().Requests - before
	}
	if n := cost(a, func() { tryClaim(t, a, "first") }); n != 3 { // lease, sentinel, claim
		t.Errorf("the first claim takes %d requests", n)
	}
	var cl *etcdclaims.Claim
	var w *work.Work
	for _, tt := range []struct {
		what string
		want int64
		f    func()
	}{
		{"a claim", 1, func() { cl = tryClaim(t, a, "k") }},
		{"finding it held", 1, func() { _, err := a.TryAcquire(ctx, "k"); wantIs(t, err, etcdclaims.ErrHeld) }},
		{"checking it", 0, func() { noErr(t, cl.Check()) }},
		{"asking for its owner", 1, func() { _, err := cl.Owns(ctx); noErr(t, err) }},
		{"a note", 1, func() { noErr(t, cl.Note(ctx, []byte("x"))) }},
		{"a write", 1, func() { _, err := cl.Txn(ctx).Commit(); noErr(t, err) }},
		{"releasing it", 1, func() { noErr(t, cl.Release(ctx)) }},
		{"releasing it again", 0, func() { noErr(t, cl.Release(ctx)) }},
		{"the first work", 2, func() { w = tryBegin(t, a, "w1") }},        // the lease for records
		{"the first completion", 2, func() { noErr(t, w.Complete(ctx)) }}, // the lease for done work
		{"more work", 1, func() { w = tryBegin(t, a, "w2") }},
		{"the next completion", 1, func() { noErr(t, w.Complete(ctx)) }},
		{"work that is done", 1, func() { _, err := works(a).TryBegin(ctx, "w2"); wantIs(t, err, work.ErrDone) }},
		{"looking up", 1, func() { lookUp(t, a, "k") }},
		{"a record", 1, func() { _, _, err := works(a).Record(ctx, "w2"); noErr(t, err) }},
	} {
		if n := cost(a, tt.f); n != tt.want {
			t.Errorf("%s takes %d requests, want %d", tt.what, n, tt.want)
		}
	}
	_ = b
}

// countingWatcher counts the watches that are opened.
type countingWatcher struct {
	clientv3.Watcher
	n atomic.Int64
}

func (w *countingWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	w.n.Add(1)
	return w.Watcher.Watch(ctx, key, opts...)
}

// Many held claims are cheap. Not parallel: it measures this process, so that
// etcd is another one.
func TestManyClaimsAreCheap(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process")
	}
	etcd := testetcd.StartProcess(t, testetcd.NoSync()).Client(t)
	watcher := &countingWatcher{Watcher: etcd.Watcher}
	etcd.Watcher = watcher
	c := newClient(t, etcd, etcdclaims.Config{Prefix: testetcd.Prefix(t)})
	noErr(t, tryClaim(t, c, "warm").Release(t.Context()))
	const n = 10_000
	keys := numbered("orders/2026/%010d", n)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, requests := heap(), c.Stats().Requests
	goroutines := runtime.NumGoroutine()
	claims := claimMany(t, c, keys)
	for _, cl := range claims {
		if cl.Context().Err() != nil {
			t.Fatal(cl.Err())
		}
	}
	perClaim := (int64(heap()) - int64(before)) / n
	t.Logf("%d B a claim, %d requests", perClaim, c.Stats().Requests-requests)
	if perClaim > 2048 {
		t.Errorf("a held claim takes %d B of heap, want at most 2048", perClaim)
	}
	if got := watcher.n.Load(); got != 1 {
		t.Errorf("%d watches, want 1", got)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 10 {
		t.Errorf("%d goroutines more", more)
	}
	if s := c.Stats(); s.Held != n || s.Sessions != 2 {
		t.Errorf("held %d, sessions %d", s.Held, s.Sessions)
	}
	noErr(t, claims[0].Renew(t.Context()))
	released, err := c.ReleaseAll(t.Context())
	if released != n || err != nil {
		t.Errorf("released %d, %v", released, err)
	}
	runtime.KeepAlive(claims)
	runtime.KeepAlive(keys)
}

// A handler is overdue from the end of its drain until it returns.
func TestStatsOverdue(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		ctx, cancel := context.WithCancel(t.Context())
		began, end, returned := make(chan bool), make(chan bool), make(chan bool)
		go func() {
			defer close(returned)
			_ = c.TryRun(ctx, "k", func(context.Context) error { close(began); <-end; return nil })
		}()
		<-began
		cancel()
		time.Sleep(2 * sec)
		if n := c.Stats().Overdue; n != 0 {
			t.Errorf("%d overdue within their drain", n)
		}
		time.Sleep(4 * sec)
		if n := c.Stats().Overdue; n != 1 {
			t.Errorf("%d overdue, want 1", n)
		}
		close(end)
		<-returned
		if st := c.Stats(); st.Overdue != 0 || st.Zombies != 1 {
			t.Errorf("%d overdue after it has returned, %d zombies", st.Overdue, st.Zombies)
		}
	})
}
