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
	clientv3 "go.etcd.io/etcd/client/v3"
	original "go.etcd.io/etcd/client/v3/concurrency"
)

// unchanged returns a session of a program that has not been changed.
func unchanged(t *testing.T, w *testclaims.World) *original.Session {
	t.Helper()
	s, err := original.NewSession(w.Server.Host(t).Etcd(t))
	testclaims.NoErr(t, err)
	t.Cleanup(s.Orphan)
	return s
}

// mutex is what Mutexes of both packages are.
type mutex interface {
	TryLock(ctx context.Context) error
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
	IsOwner() clientv3.Cmp
}

// Mutexes of both packages have the lock one at a time, whoever comes first, and none waits for ever.
func TestMigratingMutexesExclude(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		var wg sync.WaitGroup
		var held atomic.Int32
		for i := range 8 {
			var m mutex
			if i%2 == 0 {
				m = concurrency.NewMutex(session(t, w, concurrency.WithMigration()), "/k")
			} else {
				m = original.NewMutex(unchanged(t, w), "/k")
			}
			wg.Go(func() {
				for range 3 {
					if err := m.Lock(ctx); err != nil {
						t.Errorf("%d: lock: %v", i, err)
						return
					}
					if n := held.Add(1); n != 1 {
						t.Errorf("%d have the lock", n)
					}
					if !succeeds(t, w, m.IsOwner()) {
						t.Errorf("%d is not the owner", i)
					}
					time.Sleep(time.Second)
					held.Add(-1)
					if err := m.Unlock(ctx); err != nil {
						t.Errorf("%d: unlock: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
		resp, err := w.Raw.Get(ctx, "/k/", clientv3.WithPrefix())
		testclaims.NoErr(t, err)
		if len(resp.Kvs) != 0 {
			t.Errorf("left over: %v", resp.Kvs)
		}
	})
}

// TryLock of one package is refused while the other has the lock, and leaves nothing.
func TestMigratingTryLock(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		s := session(t, w, concurrency.WithMigration())
		both := []mutex{concurrency.NewMutex(s, "/k"), original.NewMutex(unchanged(t, w), "/k")}
		for range 2 {
			testclaims.NoErr(t, both[0].TryLock(ctx))
			wantErrors(t, both[1].TryLock(ctx), concurrency.ErrLocked)
			testclaims.NoErr(t, both[0].Unlock(ctx))
			both[0], both[1] = both[1], both[0]
		}
		if testclaims.LookUp(t, s.Claims(), "/k").Held {
			t.Error("a claim is left")
		}
	})
}

// Without the option both have the lock: the keys are different ones.
func TestMutexWithoutMigration(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		testclaims.NoErr(t, original.NewMutex(unchanged(t, w), "/k").TryLock(t.Context()))
		testclaims.NoErr(t, concurrency.NewMutex(session(t, w), "/k").TryLock(t.Context()))
	})
}

// A wait for etcd's Mutex ends with the context, and with the session. Neither key is left then.
func TestMigratingWaitEnds(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		old := original.NewMutex(unchanged(t, w), "/k")
		testclaims.NoErr(t, old.Lock(context.Background()))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s := session(t, w, concurrency.WithMigration())
		m := concurrency.NewMutex(s, "/k")
		wantErrors(t, m.Lock(ctx), context.DeadlineExceeded)
		if resp, err := w.Raw.Get(context.Background(), "/k/", clientv3.WithPrefix()); err != nil || len(resp.Kvs) != 1 {
			t.Errorf("%v, %v", resp, err)
		}
		if testclaims.LookUp(t, s.Claims(), "/k").Held {
			t.Error("the claim is left")
		}
		waiting := began(func() error { return m.Lock(context.Background()) })
		waits(t, waiting)
		testclaims.NoErr(t, s.Close())
		wantErrors(t, within(t, 10*time.Second, waiting), concurrency.ErrSessionExpired)
		testclaims.NoErr(t, old.Unlock(context.Background()))
	})
}

// A session that is lost loses both keys, and etcd's Mutex has the lock after the local end.
func TestMigratingSessionLost(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		host := w.Server.Host(t)
		s := on(t, host, concurrency.WithMigration(), concurrency.WithTTL(15))
		m := concurrency.NewMutex(s, "/k")
		testclaims.NoErr(t, m.Lock(ctx))
		next := began(func() error { return original.NewMutex(unchanged(t, w), "/k").Lock(ctx) })
		waits(t, next)
		host.Cut()
		<-s.Done()
		wantErrors(t, m.Claim().Check(), etcdclaims.ErrLost)
		select {
		case err := <-next:
			t.Fatalf("it had the lock before: %v", err)
		default:
		}
		testclaims.NoErr(t, within(t, 10*time.Second, next))
		host.Heal()
	})
}

// Elections of both packages have one leader at a time, and observers of both see each leader and value.
func TestMigratingElection(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		older, newer := original.NewElection(unchanged(t, w), "/e"), concurrency.NewElection(session(t, w, concurrency.WithMigration()), "/e")
		watching := concurrency.NewElection(session(t, w, concurrency.WithMigration()), "/e")
		seen := []<-chan *clientv3.GetResponse{original.NewElection(unchanged(t, w), "/e").Observe(t.Context()), watching.Observe(t.Context())}
		see := func(value string) {
			t.Helper()
			for _, o := range seen {
				observed(t, o, value)
			}
			leads(t, watching, value)
		}
		testclaims.NoErr(t, older.Campaign(ctx, "old"))
		see("old")
		next := began(func() error { return newer.Campaign(ctx, "new") })
		waits(t, next)
		testclaims.NoErr(t, older.Resign(ctx))
		testclaims.NoErr(t, within(t, time.Second, next))
		see("new")
		testclaims.NoErr(t, newer.Proclaim(ctx, "newer"))
		see("newer")
		if !succeeds(t, w, clientv3.Compare(clientv3.CreateRevision(newer.Key()), "=", newer.Rev())) {
			t.Error("Key and Rev are no condition")
		}
		last := began(func() error { return older.Campaign(ctx, "last") })
		waits(t, last)
		testclaims.NoErr(t, newer.Resign(ctx))
		testclaims.NoErr(t, within(t, time.Second, last))
		see("last")
	})
}

// Unlock that cannot delete etcd's key leaves the Mutex locked, so that it can be called again.
func TestMigratingUnlockFails(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		host := w.Server.Host(t)
		m := concurrency.NewMutex(on(t, host, concurrency.WithMigration()), "/k")
		testclaims.NoErr(t, m.Lock(ctx))
		lost := host.Inject(claimtest.Fault{On: claimtest.Other, LoseRequest: true, Times: -1})
		if err := m.Unlock(ctx); err == nil {
			t.Error("no error")
		}
		lost.Remove()
		testclaims.NoErr(t, m.Claim().Check())
		testclaims.NoErr(t, m.Unlock(ctx))
		testclaims.NoErr(t, original.NewMutex(unchanged(t, w), "/k").TryLock(ctx))
	})
}

// etcd's RWMutex cannot be waited for with an end.
func TestMigrationHasNoRWMutex(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		m := concurrency.NewRWMutex(session(t, w, concurrency.WithMigration()), "/k")
		for _, lock := range []func() error{m.RLock, m.Lock} {
			if err := lock(); err == nil {
				t.Error("no error")
			}
		}
	})
}
