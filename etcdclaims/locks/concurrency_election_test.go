package locks_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/concurrency"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
	original "go.etcd.io/etcd/client/v3/concurrency"
)

// observed returns what an observation delivers next.
func observed(t *testing.T, leaders <-chan *clientv3.GetResponse, want string) *clientv3.GetResponse {
	t.Helper()
	select {
	case resp, ok := <-leaders:
		if !ok || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != want {
			t.Fatalf("observed %v, want %q", resp, want)
		}
		return resp
	case <-time.After(time.Minute):
		t.Fatalf("%q was not observed", want)
		return nil
	}
}

// leads wants a leader with the value, as another session sees it.
func leads(t *testing.T, e *concurrency.Election, value string) {
	t.Helper()
	resp, err := e.Leader(context.Background())
	testclaims.NoErr(t, err)
	if len(resp.Kvs) != 1 || resp.Count != 1 || string(resp.Kvs[0].Value) != value {
		t.Fatalf("the leader is %v, want %q", resp.Kvs, value)
	}
}

// One candidate leads after the other, and all observers see each of them.
func TestElectionWait(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var observers []<-chan *clientv3.GetResponse
		for range 3 {
			observers = append(observers, concurrency.NewElection(session(t, w), "e").Observe(ctx))
		}
		candidates := map[string]*concurrency.Election{}
		led := make(chan string, 3)
		for _, name := range []string{"a", "b", "c"} {
			e := concurrency.NewElection(session(t, w), "e")
			candidates[name] = e
			go func() {
				if err := e.Campaign(ctx, name); err != nil {
					t.Errorf("campaign of %s: %v", name, err)
				}
				led <- name
			}()
		}
		last := int64(0)
		for range 3 {
			leader := <-led
			for _, o := range observers {
				observed(t, o, leader)
			}
			e := candidates[leader]
			if e.Token().Fence <= last || e.Header().Revision != e.Rev() {
				t.Errorf("fence %d after %d", e.Token().Fence, last)
			}
			last = e.Token().Fence
			testclaims.NoErr(t, e.Resign(ctx))
			wantErrors(t, e.Context().Err(), context.Canceled)
		}
		cancel()
		for _, o := range observers {
			if resp, ok := <-o; ok {
				t.Errorf("observed %v", resp)
			}
		}
	})
}

// When the session of the leader is closed, or dies, another candidate leads.
func TestElectionFailover(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"closed": false, "dead": true} {
		testclaims.Case(t, name, func(t *testing.T, w *testclaims.World) {
			ctx := context.Background()
			host := w.Server.Host(t)
			first := on(t, host, concurrency.WithTTL(15))
			testclaims.NoErr(t, concurrency.NewElection(first, "e").Campaign(ctx, "foo"))
			leaders := concurrency.NewElection(session(t, w), "e").Observe(t.Context())
			observed(t, leaders, "foo")
			second := concurrency.NewElection(session(t, w), "e")
			next := began(func() error { return second.Campaign(ctx, "bar") })
			waits(t, next)
			if dies {
				host.Kill()
			} else {
				testclaims.NoErr(t, first.Close())
			}
			testclaims.NoErr(t, within(t, 16*time.Second, next))
			observed(t, leaders, "bar")
			leads(t, second, "bar")
		})
	}
}

// A session that leads proclaims by a further campaign, also of another Election.
func TestElectionCampaignAgain(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		s := session(t, w)
		one, two := concurrency.NewElection(s, "e"), concurrency.NewElection(s, "e")
		testclaims.NoErr(t, one.Campaign(ctx, "abc"))
		wantErrors(t, two.Proclaim(ctx, "x"), concurrency.ErrElectionNotLeader) // it has not campaigned
		testclaims.NoErr(t, two.Resign(ctx))
		testclaims.NoErr(t, two.Campaign(ctx, "def"))
		if one.Token() != two.Token() || one.Key() != two.Key() || one.Key() == "" {
			t.Errorf("they lead as %v and %v", one.Token(), two.Token())
		}
		leads(t, one, "def")
		testclaims.NoErr(t, two.Resign(ctx))
		wantErrors(t, one.Proclaim(ctx, "x"), concurrency.ErrElectionNotLeader)
		testclaims.NoErr(t, one.Resign(ctx))
		_, err := one.Leader(ctx)
		wantErrors(t, err, concurrency.ErrElectionNoLeader, original.ErrElectionNoLeader)
		testclaims.NoErr(t, one.Campaign(ctx, "")) // which is a value as well
		leads(t, two, "")
	})
}

// Only the session that leads can resume. A later session of the same program cannot.
func TestResumeElection(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		s := session(t, w)
		first := concurrency.NewElection(s, "e")
		testclaims.NoErr(t, first.Campaign(ctx, "candidate1"))
		leader, err := first.Leader(ctx)
		testclaims.NoErr(t, err)
		key, rev := string(leader.Kvs[0].Key), leader.Kvs[0].CreateRevision
		if key != first.Key() || rev != first.Rev() {
			t.Errorf("the leader is %s at %d, and calls itself %s at %d", key, rev, first.Key(), first.Rev())
		}
		for name, e := range map[string]*concurrency.Election{
			"of another session": concurrency.ResumeElection(session(t, w), "e", key, rev),
			"at another time":    concurrency.ResumeElection(s, "e", key, rev-1),
		} {
			if err := e.Proclaim(ctx, "x"); e.Key() != "" || err == nil {
				t.Errorf("%s: it leads", name)
			}
			testclaims.NoErr(t, e.Resign(ctx))
		}
		leads(t, first, "candidate1")
		leaders := first.Observe(t.Context())
		observed(t, leaders, "candidate1")
		e := concurrency.ResumeElection(s, "e", key, rev)
		testclaims.NoErr(t, e.Proclaim(ctx, "resumed"))
		observed(t, leaders, "resumed")
		testclaims.NoErr(t, e.Resign(ctx))
		if succeeds(t, w, clientv3.Compare(clientv3.CreateRevision(key), "=", rev)) {
			t.Error("it leads after Resign")
		}
		testclaims.NoErr(t, e.Campaign(ctx, "candidate2"))
		observed(t, leaders, "candidate2")
	})
}

// The value of a leader that a newer version wrote is not guessed at.
func TestLeaderOfANewerVersion(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		e := concurrency.NewElection(session(t, w), "e")
		testclaims.NoErr(t, e.Campaign(ctx, "one"))
		leader, err := e.Leader(ctx)
		testclaims.NoErr(t, err)
		_, err = w.Raw.Put(ctx, keyspace.DefaultPrefix+"note/e", `{"v":99,"text":"two"}`, clientv3.WithLease(clientv3.LeaseID(leader.Kvs[0].Lease)))
		testclaims.NoErr(t, err)
		if resp, err := e.Leader(ctx); !keyspace.IsNewer(err) {
			t.Errorf("Leader returns %v, %v", resp, err)
		}
	})
}

// A leader that etcd does not have any more is refused by a condition in etcd, though it does not know.
func TestProclaimByAFormerLeader(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		host := w.Server.Host(t)
		old := concurrency.NewElection(on(t, host), "e")
		testclaims.NoErr(t, old.Campaign(ctx, "old"))
		mine := clientv3.Compare(clientv3.CreateRevision(old.Key()), "=", old.Rev())
		if !succeeds(t, w, mine) {
			t.Error("Key and Rev are no condition")
		}
		host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, LoseReply: true}) // it is deaf
		w.Server.Delete(t, old.Key())
		next := concurrency.NewElection(session(t, w), "e")
		testclaims.NoErr(t, next.Campaign(ctx, "new"))
		err := old.Proclaim(ctx, "zombie")
		wantErrors(t, err, concurrency.ErrElectionNotLeader, original.ErrElectionNotLeader)
		leads(t, next, "new")
		if succeeds(t, w, mine) || old.Key() != "" {
			t.Error("the former leader leads")
		}
		testclaims.NoErr(t, old.Resign(ctx))
		leads(t, next, "new")
		testclaims.NoErr(t, next.Proclaim(ctx, "newer"))
		leads(t, next, "newer")
	})
}

// The key of a leader that has waited for another one is created anew, so that conditions by Key and
// Rev hold.
func TestElectionKeyAfterAResignation(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		a, b := concurrency.NewElection(session(t, w), "e"), concurrency.NewElection(session(t, w), "e")
		testclaims.NoErr(t, a.Campaign(ctx, "a"))
		next := began(func() error { return b.Campaign(ctx, "b") })
		waits(t, next)
		former := clientv3.Compare(clientv3.CreateRevision(a.Key()), "=", a.Rev())
		testclaims.NoErr(t, a.Resign(ctx))
		testclaims.NoErr(t, within(t, time.Second, next))
		if succeeds(t, w, former) || !succeeds(t, w, clientv3.Compare(clientv3.CreateRevision(b.Key()), "=", b.Rev())) {
			t.Error("the former leader leads")
		}
	})
}

// Each proclamation is a response of its own, with versions and revisions that rise. A receiver that is
// late gets the newest value alone.
func TestElectionObserve(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		e := concurrency.NewElection(session(t, w), "e")
		testclaims.NoErr(t, e.Campaign(ctx, "abc"))
		w.Server.Compact(t)
		leaders := e.Observe(t.Context())
		var got []*clientv3.GetResponse
		for i, value := range []string{"abc", "def", "ghi"} {
			if i > 0 {
				testclaims.NoErr(t, e.Proclaim(ctx, value))
			}
			resp := observed(t, leaders, value)
			got = append(got, resp)
			if kv := resp.Kvs[0]; kv.Version != int64(i+1) || string(kv.Key) != e.Key() {
				t.Errorf("%q: version %d of %s", value, kv.Version, kv.Key)
			}
			if i > 0 && resp.Header.Revision <= got[i-1].Header.Revision {
				t.Errorf("%q: observed at %d after %d", value, resp.Header.Revision, got[i-1].Header.Revision)
			}
		}
		if string(got[0].Kvs[0].Value) != "abc" {
			t.Error("a response was used again")
		}
		for _, value := range []string{"1", "2", "3"} {
			testclaims.NoErr(t, e.Proclaim(ctx, value))
		}
		time.Sleep(time.Second)
		observed(t, leaders, "3")
	})
}

// An observation whose watch is deaf sees a new value a third of the TTL later, and one whose watch breaks
// or whose host is cut off goes on.
func TestElectionObserveWithFaults(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		e := concurrency.NewElection(session(t, w), "e")
		host := w.Server.Host(t)
		leaders := concurrency.NewElection(on(t, host), "e").Observe(t.Context())
		testclaims.NoErr(t, e.Campaign(ctx, "a"))
		observed(t, leaders, "a")
		deaf := host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, LoseReply: true})
		at := time.Now()
		testclaims.NoErr(t, e.Proclaim(ctx, "b"))
		observed(t, leaders, "b")
		if d := time.Since(at); d > 21*time.Second {
			t.Errorf("observed after %v", d)
		}
		deaf.Remove()
		host.Break()
		testclaims.NoErr(t, e.Proclaim(ctx, "c"))
		observed(t, leaders, "c")
		host.Cut()
		testclaims.NoErr(t, e.Proclaim(ctx, "d"))
		time.Sleep(10 * time.Second)
		host.Heal()
		observed(t, leaders, "d")
	})
}

// An observation ends with its context, with its session, and at once in a session that has ended, also if nothing
// receives from it.
func TestElectionObserveEnds(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx, cancel := context.WithCancel(context.Background())
		s := session(t, w)
		e := concurrency.NewElection(s, "e")
		testclaims.NoErr(t, e.Campaign(ctx, "a"))
		byContext, bySession := e.Observe(ctx), e.Observe(context.Background())
		observed(t, bySession, "a")
		time.Sleep(time.Second)
		cancel()
		time.Sleep(time.Second)
		if resp, ok := <-byContext; ok {
			t.Errorf("observed %v", resp)
		}
		testclaims.NoErr(t, s.Close())
		if resp, ok := <-bySession; ok {
			t.Errorf("observed %v", resp)
		}
		if resp, ok := <-e.Observe(context.Background()); ok {
			t.Errorf("observed %v", resp)
		}
		_, err := e.Leader(context.Background())
		wantErrors(t, err, concurrency.ErrSessionExpired)
		wantErrors(t, e.Campaign(context.Background(), "b"), concurrency.ErrSessionExpired)
		wantErrors(t, e.Proclaim(context.Background(), "b"), concurrency.ErrElectionNotLeader)
	})
}

// A claim on the key that has proclaimed nothing is no leader, and a key that begins with the election's is
// none of its keys.
func TestElectionBesideOtherKeys(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		s := session(t, w)
		_, err := s.Client().Put(ctx, "testa", "value")
		testclaims.NoErr(t, err)
		_, err = s.Claims().TryAcquire(ctx, "testb", etcdclaims.Note([]byte("x")))
		testclaims.NoErr(t, err)
		e := concurrency.NewElection(s, "test")
		_, err = e.Leader(ctx)
		wantErrors(t, err, concurrency.ErrElectionNoLeader)
		testclaims.NoErr(t, e.Campaign(ctx, "abc"))
		testclaims.NoErr(t, e.Resign(ctx))
		m := concurrency.NewMutex(s, "test")
		testclaims.NoErr(t, m.TryLock(ctx))
		_, err = e.Leader(ctx)
		wantErrors(t, err, concurrency.ErrElectionNoLeader)
	})
}
