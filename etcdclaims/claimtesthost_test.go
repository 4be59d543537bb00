package etcdclaims_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// everywhere runs a test in virtual time and in real time, with and without
// authentication.
func everywhere(t *testing.T, f func(t *testing.T, server *claimtest.Server), opts ...claimtest.Option) {
	t.Helper()
	t.Parallel()
	t.Run("virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, claimtest.Start(t, opts...)) })
	})
	t.Run("real", func(t *testing.T) { f(t, claimtest.Start(t, opts...)) })
	t.Run("auth", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, claimtest.Start(t, append(opts, claimtest.Auth())...)) })
	})
}

var short = etcdclaims.Config{TTL: 2 * time.Second, AllowShortTTL: true}

// Acquire and Release stand for all steps of the protocol that acquire or give up a key.
func TestKindsOfWaitersAndHandOvers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		first, second := server.Host(t), server.Host(t)
		holder, waiter := claimtest.NewClient(t, first, short), claimtest.NewClient(t, second, short)
		claim := tryClaim(t, holder, "a")
		inLine, granted := make(chan struct{}, 1), make(chan error)
		second.Inject(claimtest.Fault{On: claimtest.Acquire, Edit: func(any) { inLine <- struct{}{} }})
		go func() {
			_, err := waiter.Acquire(t.Context(), "a")
			granted <- err
		}()
		<-inLine
		time.Sleep(time.Second) // the holder learns of the line
		released := first.Inject(claimtest.Fault{On: claimtest.Release, DelayReply: time.Millisecond, Times: -1})
		_ = claim.Release(t.Context())
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
		if n := len(second.Sent(steps.Enqueue)); n == 0 || len(second.Sent(claimtest.Acquire)) < n {
			t.Errorf("%d requests joined the line, %d in all to acquire", n, len(second.Sent(claimtest.Acquire)))
		}
		if released.Hits() == 0 || len(first.Sent(steps.HandOver)) == 0 {
			t.Errorf("%d replies delayed, %d hand-overs", released.Hits(), len(first.Sent(steps.HandOver)))
		}
	})
}

// A renewal is a stream: what is sent on it is told as a request is.
func TestRenewalIsSeen(t *testing.T) {
	everywhere(t, func(t *testing.T, server *claimtest.Server) {
		host := server.Host(t)
		c := claimtest.NewClient(t, host, etcdclaims.Config{})
		claim := tryClaim(t, c, "a")
		seen := make(chan int64, 1)
		host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Saw: func(req any) { seen <- req.(*pb.LeaseKeepAliveRequest).ID }})
		if err := claim.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if id, want := <-seen, server.Lease(t, c.OwnKey("a")); id != int64(want) {
			t.Errorf("lease %x was renewed, want %x", id, want)
		}
	})
}

// A watch that is open when its fault is removed is as good as any from then on,
// whatever the fault did to it.
func TestRemovedFromOpenWatch(t *testing.T) {
	t.Parallel()
	const late = 10 * time.Second
	for name, fault := range map[string]claimtest.Fault{
		"opened late": {DelayRequest: time.Hour},
		"behind":      {DelayReply: late},
		"edited":      {Edit: func(reply any) { reply.(*pb.WatchResponse).Events = nil }},
		"not told":    {LoseReply: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := claimtest.Start(t)
				host := server.Host(t)
				put := func(n int) {
					for range n {
						if _, err := server.Admin().Put(t.Context(), "k", ""); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Second)
					}
				}
				put(1)
				fault.On = claimtest.Watch
				i := host.Inject(fault)
				var news clientv3.WatchChan
				opened := make(chan struct{})
				etcd := host.Etcd(t)
				go func() {
					news = etcd.Watch(t.Context(), "k", clientv3.WithRev(1))
					close(opened)
				}()
				time.Sleep(time.Second)
				if i.Hits() != 1 {
					t.Fatalf("it happened to %d watches", i.Hits())
				}
				put(10)
				i.Remove()
				time.Sleep(time.Second)
				<-opened
				hear := func() (version int64) {
					for {
						synctest.Wait() // for what is passed on one by one
						select {
						case resp := <-news:
							if err := resp.Err(); err != nil {
								t.Fatal(err)
							}
							for _, ev := range resp.Events {
								version = ev.Kv.Version
							}
						default:
							return version
						}
					}
				}
				if v := hear(); v != 11 && name != "edited" {
					t.Errorf("told of version %d, which is not the 11th", v)
				}
				put(1)
				if v := hear(); v != 12 {
					t.Errorf("told of version %d, which is not the 12th", v)
				}
			})
		})
	}
}

func TestOperator(t *testing.T) {
	everywhere(t, func(t *testing.T, server *claimtest.Server) {
		c := claimtest.NewClient(t, server, short)
		ended := func(what string, want etcdclaims.Reason, do func()) {
			t.Helper()
			claim := tryClaim(t, c, "a")
			do()
			<-claim.Done()
			var lost *etcdclaims.LostError
			if !errors.As(claim.Err(), &lost) || lost.Reason != want {
				t.Errorf("%s: %v", what, claim.Err())
			}
		}
		key := c.OwnKey("a")
		ended("revoking", etcdclaims.ReasonRevoked, func() { server.Revoke(t, key) })
		ended("deleting", etcdclaims.ReasonDeleted, func() { server.Delete(t, key) })
		ended("overwriting", etcdclaims.ReasonSuperseded, func() { server.Overwrite(t, key, "x") })
		server.Delete(t, key)
		ended("raising the epoch", etcdclaims.ReasonSuperseded, func() { server.RaiseEpoch(t, "") })
		claim := tryClaim(t, c, "b")
		server.Compact(t)
		server.FillQuota(t)
		if _, err := c.TryAcquire(t.Context(), "c"); err == nil {
			t.Error("acquired without space")
		}
		if err := claim.Release(t.Context()); err != nil {
			t.Errorf("releasing without space: %v", err)
		}
		server.FreeQuota(t)
		tryClaim(t, c, "c")
	})
}

func TestRestart(t *testing.T) {
	everywhere(t, func(t *testing.T, server *claimtest.Server) {
		c := claimtest.NewClient(t, server, etcdclaims.Config{})
		claim := tryClaim(t, c, "a")
		server.Stop(t)
		server.Restart(t)
		if ok, err := claim.Owns(t.Context()); err != nil || !ok {
			t.Errorf("after a restart: %v, %v", ok, err)
		}
	})
}

// However long the server was stopped, the test sees a change when its clients do.
func TestAdminSeesWhatFollowsARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		news := server.Admin().Watch(t.Context(), "a")
		server.Stop(t)
		time.Sleep(8 * time.Second) // gRPC would pause for longer than a second by now
		server.Restart(t)
		etcd, began := server.Etcd(t), time.Now()
		if _, err := etcd.Put(t.Context(), "a", ""); err != nil {
			t.Fatal(err)
		}
		resp, open := <-news
		if took := time.Since(began); !open || len(resp.Events) != 1 || took > 200*time.Millisecond {
			t.Errorf("after %v: %+v", took, resp)
		}
	})
}

func TestRestore(t *testing.T) {
	everywhere(t, func(t *testing.T, server *claimtest.Server) {
		c := claimtest.NewClient(t, server, etcdclaims.Config{})
		backup := server.Snapshot(t)
		claim := tryClaim(t, c, "a")
		server.Restore(t, backup, 0)
		if authenticated(t, server) {
			return // its client hangs, as documented
		}
		if err := claim.Renew(t.Context()); !errors.Is(err, etcdclaims.ErrLost) {
			t.Errorf("after a restore: %v", err)
		}
		if _, err := c.TryAcquire(t.Context(), "a"); !errors.Is(err, etcdclaims.ErrRewound) {
			t.Errorf("after a restore: %v", err)
		}
		server.RaiseEpoch(t, "")
		again := tryClaim(t, c, "a")
		if again.Fence() <= claim.Fence() {
			t.Errorf("fence %d after %d", again.Fence(), claim.Fence())
		}
		if n := server.Lease(t, c.OwnKey("a")); n == 0 {
			t.Error("a claim without a lease")
		}
		before := server.Snapshot(t)
		server.Restore(t, before, 1_000_000)
		if _, err := c.TryAcquire(t.Context(), "b"); err != nil {
			t.Errorf("after a restore with a bump: %v", err)
		}
	})
}

func authenticated(t *testing.T, server *claimtest.Server) bool {
	t.Helper()
	resp, err := server.Admin().AuthStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return resp.Enabled
}

func TestTokensExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t, claimtest.Auth())
		c := claimtest.NewClient(t, server, etcdclaims.Config{})
		claim := tryClaim(t, c, "a")
		for range 20 {
			server.ExpireTokens(t)
			time.Sleep(5 * time.Second)
		}
		if err := claim.Check(); err != nil {
			t.Error(err)
		}
	})
}

// Only an administrator may move the leader.
func TestMoveLeaderWithAuthentication(t *testing.T) {
	t.Parallel()
	members := claimtest.Cluster(t, 3, claimtest.Auth())
	for try := 1; ; try++ { // on a busy machine another may be elected at once
		to := (members.Leader(t) + 1) % members.Len()
		members.MoveLeader(t, to)
		now := members.Leader(t)
		if now == to {
			return
		}
		if try == 5 {
			t.Fatalf("member %d leads, not %d", now, to)
		}
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, int, ...claimtest.Option) *claimtest.Members{
		"cluster": claimtest.Cluster, "processes": claimtest.Processes,
	} {
		t.Run(name, func(t *testing.T) {
			if name == "processes" {
				testetcd.SkipUnlessLong(t, "builds etcd")
			}
			members := start(t, 3)
			host := members.Host(t)
			// A busy machine may take seconds for an election, which this is not about.
			c := claimtest.NewClient(t, host, etcdclaims.Config{TTL: 20 * time.Second})
			claim := tryClaim(t, c, "a")
			to := (members.Leader(t) + 1) % members.Len()
			members.MoveLeader(t, to)
			host.Hang(members.Endpoints()[to])
			if err := claim.Renew(t.Context()); err != nil {
				t.Errorf("with one member hanging: %v", err)
			}
			host.Heal()
			if name == "processes" {
				members.Pause(t, to)
				if err := claim.Renew(t.Context()); err != nil {
					t.Errorf("with the leader stopped: %v", err)
				}
				members.Resume(t, to)
				members.Kill(t, to)
			} else {
				members.Stop(t, to)
			}
			if err := claim.Renew(t.Context()); err != nil {
				t.Errorf("with one member down: %v", err)
			}
			members.Restart(t, to)
		})
	}
}

// Every request is counted once as one of all, whatever its kinds.
func TestSentEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := claimtest.Start(t).Host(t)
		if n := len(host.Sent(claimtest.Every)); n != 0 {
			t.Errorf("%d requests before the first", n)
		}
		etcd, sent := host.Etcd(t), 0
		host.Inject(claimtest.Fault{On: claimtest.Other, DelayReply: time.Second})
		for _, request := range []func() error{
			func() error { _, err := etcd.Get(t.Context(), "k"); return err },
			func() error { _, err := etcd.Put(t.Context(), "k", ""); return err },
			func() error { _, err := etcd.Txn(t.Context()).Then(clientv3.OpPut("k", "")).Commit(); return err },
			func() error { _, err := etcd.Grant(t.Context(), 10); return err },
		} {
			if err := request(); err != nil {
				t.Fatal(err)
			}
			if sent++; len(host.Sent(claimtest.Every)) != sent {
				t.Errorf("%d requests, want %d", len(host.Sent(claimtest.Every)), sent)
			}
		}
		if n := host.MostInFlight(claimtest.Every); n != 1 {
			t.Errorf("%d requests at the same time, want 1", n)
		}
	})
}
