package locks_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/concurrency"
	"github.com/etcdclaims/claims/internal/testclaims"
	original "go.etcd.io/etcd/client/v3/concurrency"
)

// Sessions, and goroutines of one session, have the lock one at a time, each with a greater fence.
func TestMutexExcludes(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"a session each": false, "one session": true} {
		testclaims.Case(t, name, func(t *testing.T, w *testclaims.World) {
			ctx := context.Background()
			s := session(t, w)
			var wg sync.WaitGroup
			var held atomic.Int32
			var last int64
			for range 5 {
				wg.Go(func() {
					s := s
					if !shared {
						s = session(t, w)
					}
					m := concurrency.NewMutex(s, "k")
					if err := m.Lock(ctx); err != nil {
						t.Errorf("lock: %v", err)
						return
					}
					if n := held.Add(1); n != 1 {
						t.Errorf("%d have the lock", n)
					}
					time.Sleep(time.Second)
					if fence := m.Token().Fence; fence <= last || m.Header().Revision != m.Claim().Revision() {
						t.Errorf("fence %d after %d", fence, last)
					} else {
						last = fence
					}
					held.Add(-1)
					if err := m.Unlock(ctx); err != nil {
						t.Errorf("unlock: %v", err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// Of several that try at once one has the lock. The others get ErrLocked, of both packages, and the
// holder. So does a second try of the session that has it.
func TestMutexTryLock(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		var got []*concurrency.Mutex
		results := make(chan error, 5)
		for range cap(results) {
			m := concurrency.NewMutex(session(t, w), "k")
			got = append(got, m)
			go func() { results <- m.TryLock(ctx) }()
		}
		locked := 0
		for range cap(results) {
			err := <-results
			if err == nil {
				locked++
				continue
			}
			wantErrors(t, err, concurrency.ErrLocked, original.ErrLocked, etcdclaims.ErrHeld)
		}
		if locked != 1 {
			t.Errorf("%d have the lock", locked)
		}
		for _, m := range got {
			if m.Claim() != nil {
				wantErrors(t, m.TryLock(ctx), concurrency.ErrLocked)
				testclaims.NoErr(t, m.Unlock(ctx))
			}
		}
		testclaims.NoErr(t, got[0].TryLock(ctx))
		testclaims.NoErr(t, got[0].Unlock(ctx))
	})
}

// Unlock of what is not locked is an error, before and after.
func TestMutexUnlock(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		m := concurrency.NewMutex(session(t, w), "k")
		for range 2 {
			wantErrors(t, m.Unlock(ctx), concurrency.ErrLockReleased, original.ErrLockReleased)
			<-m.Context().Done()
			if m.Key() != "" || m.Token().Fence != 0 || m.Header() != nil || succeeds(t, w, m.IsOwner()) {
				t.Errorf("it is locked: %q", m.Key())
			}
			testclaims.NoErr(t, m.Lock(ctx))
			if !succeeds(t, w, m.IsOwner()) || testclaims.RawKV(t, w.Raw, m.Key()) == nil {
				t.Error("it is not the owner")
			}
			testclaims.NoErr(t, m.Unlock(ctx))
		}
	})
}

// A lock that was lost is not the owner in etcd, from the moment of the loss on. Unlock returns that,
// and does not unlock the next holder.
func TestMutexLost(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		host := w.Server.Host(t)
		m := concurrency.NewMutex(on(t, host), "k")
		testclaims.NoErr(t, m.Lock(ctx))
		mine := m.IsOwner()
		host.Cut() // it does not learn of the loss
		w.Server.Delete(t, m.Key())
		if succeeds(t, w, mine) {
			t.Error("it is the owner of nothing")
		}
		next := concurrency.NewMutex(session(t, w), "k")
		testclaims.NoErr(t, next.Lock(ctx))
		if succeeds(t, w, mine) || !succeeds(t, w, next.IsOwner()) {
			t.Error("the old one is the owner")
		}
		host.Heal()
		<-m.Context().Done()
		wantErrors(t, m.Unlock(ctx), etcdclaims.ErrLost)
		wantErrors(t, m.Unlock(ctx), concurrency.ErrLockReleased)
		testclaims.NoErr(t, next.Claim().Check())
		if !succeeds(t, w, next.IsOwner()) {
			t.Error("unlocked by the old holder")
		}
	})
}

// A key that is handed over has a new owner for IsOwner, though etcd's key was not created anew.
func TestMutexIsOwnerAfterAHandOver(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		a, b := concurrency.NewMutex(session(t, w), "k"), concurrency.NewMutex(session(t, w), "k")
		testclaims.NoErr(t, a.Lock(ctx))
		former := a.IsOwner()
		next := began(func() error { return b.Lock(ctx) })
		waits(t, next)
		testclaims.NoErr(t, a.Unlock(ctx))
		testclaims.NoErr(t, within(t, time.Second, next))
		if kv := testclaims.RawKV(t, w.Raw, b.Key()); kv.CreateRevision == kv.ModRevision {
			t.Error("the key was not handed over: the test shows nothing")
		}
		if succeeds(t, w, former) || !succeeds(t, w, b.IsOwner()) || !succeeds(t, w, b.Claim().Guard()...) {
			t.Error("the former holder is the owner")
		}
	})
}

// A waiter whose session ends leaves the line: the one behind it has the lock when the holder unlocks it, and
// not before.
func TestMutexWaitsForTheHolder(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		holder := concurrency.NewMutex(session(t, w), "k")
		testclaims.NoErr(t, holder.Lock(ctx))
		victim := session(t, w)
		second := began(func() error { return concurrency.NewMutex(victim, "k").Lock(ctx) })
		waits(t, second)
		third := began(func() error { return concurrency.NewMutex(session(t, w), "k").Lock(ctx) })
		waits(t, third)
		testclaims.NoErr(t, victim.Close())
		wantErrors(t, within(t, time.Second, second), concurrency.ErrSessionExpired, original.ErrSessionExpired)
		waits(t, third)
		testclaims.NoErr(t, holder.Unlock(ctx))
		testclaims.NoErr(t, within(t, time.Second, third))
	})
}

// The end of the context ends the wait, and leaves no place in line.
func TestMutexLockCancelled(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		holder := concurrency.NewMutex(session(t, w), "k")
		testclaims.NoErr(t, holder.Lock(context.Background()))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		m := concurrency.NewMutex(session(t, w), "k")
		wantErrors(t, m.Lock(ctx), context.DeadlineExceeded)
		time.Sleep(time.Second) // the place is given up in the background
		testclaims.NoErr(t, holder.Unlock(context.Background()))
		testclaims.NoErr(t, m.TryLock(context.Background()))
	})
}

// A lock whose request has lost its reply is had, and a lock with an unlock whose request has is free.
func TestMutexWithLostReplies(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		host := w.Server.Host(t)
		m := concurrency.NewMutex(on(t, host), "k")
		for _, on := range []claimtest.Kind{claimtest.Acquire, claimtest.Release} {
			host.Inject(claimtest.Fault{On: on, Key: "k", LoseReply: true})
			testclaims.NoErr(t, m.Lock(ctx))
			if !succeeds(t, w, m.IsOwner()) {
				t.Error("it is not the owner")
			}
			testclaims.NoErr(t, m.Unlock(ctx))
		}
		if testclaims.LookUp(t, session(t, w).Claims(), "k").Held {
			t.Error("held")
		}
	})
}

// Keys that claims cannot have are refused before any request.
func TestMutexKeys(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		s := session(t, w)
		for _, key := range append(testclaims.BadKeys, "sched/x") {
			wantErrors(t, concurrency.NewMutex(s, key).Lock(ctx), etcdclaims.ErrInvalidKey)
			wantErrors(t, concurrency.NewElection(s, key).Campaign(ctx, ""), etcdclaims.ErrInvalidKey)
			wantErrors(t, concurrency.NewRWMutex(s, key).RLock(), etcdclaims.ErrInvalidKey)
		}
		for _, key := range []string{"/my-lock", "/my-lock/"} { // two locks, as with etcd's package
			testclaims.NoErr(t, concurrency.NewMutex(s, key).TryLock(ctx))
		}
		_, err := s.Claims().TryAcquire(ctx, "/my-lock")
		wantErrors(t, err, etcdclaims.ErrHeld)
	})
}

// A Locker panics if its session has ended.
func TestLocker(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		s := session(t, w)
		l := concurrency.NewLocker(s, "k")
		var wg sync.WaitGroup
		n := 0
		for range 4 {
			wg.Go(func() {
				l.Lock()
				defer l.Unlock()
				was := n
				time.Sleep(time.Second)
				n = was + 1
			})
		}
		wg.Wait()
		if n != 4 {
			t.Errorf("counted %d", n)
		}
		testclaims.NoErr(t, s.Close())
		for what, f := range map[string]func(){"Lock": l.Lock, "Unlock": l.Unlock} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s did not panic", what)
					}
				}()
				f()
			}()
		}
	})
}

// Readers have the lock together, and a writer alone. A reader behind a writer waits for it.
func TestRWMutex(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		one, two := concurrency.NewRWMutex(session(t, w), "k"), concurrency.NewRWMutex(session(t, w), "k")
		testclaims.NoErr(t, one.RLock())
		testclaims.NoErr(t, one.RLock()) // of one session, too
		testclaims.NoErr(t, two.RLock())
		reading := one.Token()
		if reading.Fence == 0 || two.Token() != reading {
			t.Errorf("tokens %v and %v", reading, two.Token())
		}
		writer, late := concurrency.NewRWMutex(session(t, w), "k"), concurrency.NewRWMutex(session(t, w), "k")
		writing := began(writer.Lock)
		waits(t, writing)
		behind := began(late.RLock)
		waits(t, behind)
		testclaims.NoErr(t, one.RUnlock())
		testclaims.NoErr(t, two.RUnlock())
		waits(t, writing)
		testclaims.NoErr(t, one.RUnlock())
		testclaims.NoErr(t, within(t, time.Second, writing))
		if writer.Token().Fence <= reading.Fence || writer.Context().Err() != nil {
			t.Errorf("fence %d after %d; context: %v", writer.Token().Fence, reading.Fence, writer.Context().Err())
		}
		waits(t, behind)
		testclaims.NoErr(t, writer.Unlock())
		testclaims.NoErr(t, within(t, time.Second, behind))
		testclaims.NoErr(t, late.RUnlock())
		wantErrors(t, late.RUnlock(), concurrency.ErrLockReleased)
		wantErrors(t, writer.Unlock(), concurrency.ErrLockReleased)
	})
}

// Whatever the order in which readers and writers come, no writer has the lock beside another.
func TestRWMutexExcludes(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		var wg sync.WaitGroup
		var readers, writers atomic.Int32
		for i := range 10 {
			m := concurrency.NewRWMutex(session(t, w), "k")
			lock, unlock, count, name := m.RLock, m.RUnlock, &readers, "reader"
			if i%3 == 1 {
				lock, unlock, count, name = m.Lock, m.Unlock, &writers, "writer"
			}
			wg.Go(func() {
				if err := lock(); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				count.Add(1)
				if r, w := readers.Load(), writers.Load(); w > 1 || w == 1 && r > 0 {
					t.Errorf("%d readers and %d writers", r, w)
				}
				time.Sleep(time.Second)
				count.Add(-1)
				if err := unlock(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		wg.Wait()
	})
}

// RLock and Lock have no context: the end of the session ends their wait.
func TestRWMutexSessionEnds(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		testclaims.NoErr(t, concurrency.NewRWMutex(session(t, w), "k").Lock())
		s := session(t, w)
		waiting := began(concurrency.NewRWMutex(s, "k").RLock)
		waits(t, waiting)
		s.Orphan()
		wantErrors(t, within(t, time.Second, waiting), concurrency.ErrSessionExpired)
	})
}
