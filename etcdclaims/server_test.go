package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// everything does with two clients whatever there is to do.
func everything(t *testing.T, a, b *etcdclaims.Client) {
	t.Helper()
	ctx := t.Context()
	cl := tryClaim(t, a, "k", etcdclaims.Note([]byte("x")))
	_, err := b.TryAcquire(ctx, "k")
	wantIs(t, err, etcdclaims.ErrHeld)
	noErr(t, cl.Note(ctx, []byte("y")))
	noErr(t, cl.Renew(ctx))
	if ok, err := b.Owns(ctx, cl.Token()); !ok || err != nil {
		t.Errorf("Owns: %v, %v", ok, err)
	}
	_, err = cl.Txn(ctx).Then(clientv3.OpGet("x")).Commit()
	if err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Error(err)
	}
	if i := lookUp(t, b, "k"); i.TTL <= 0 || string(i.Note) != "y" {
		t.Errorf("%+v", i)
	}
	waited := make(chan *etcdclaims.Claim, 1)
	go func() {
		cl, err := b.Acquire(ctx, "k")
		if err != nil {
			t.Error(err)
		}
		waited <- cl
	}()
	eventually(t, "a waiter", func() bool { return lookUp(t, a, "k").Waiting == 1 })
	noErr(t, cl.Release(ctx))
	if cl = <-waited; cl == nil {
		t.Fatal("not acquired")
	}
	noErr(t, cl.Release(ctx))
	w := startWatch(t, b, "watched")
	w.next(t, etcdclaims.Synced, "")
	tryClaim(t, a, "watched")
	w.next(t, etcdclaims.Claimed, "watched")
	noErr(t, admin.ForceRelease(ctx, b, "watched", "test"))
	w.next(t, etcdclaims.Freed, "watched")
	noErr(t, tryBegin(t, a, "w1").Complete(ctx))
	noErr(t, failing(ctx, tryBegin(t, a, "w2"), errors.New("x")))
	noErr(t, tryBegin(t, a, "w3").Release(ctx))
	tryBegin(t, a, "w4", work.AtMostOnce())
	noErr(t, admin.ForceRelease(ctx, b, "w4", "test"))
	if o, err := orphansOf(ctx, b, 0); err != nil || len(o) != 1 {
		t.Errorf("%v, %v", o, err)
	}
	_, err = works(b).TryBegin(ctx, "w4")
	wantIs(t, err, work.ErrDead)
	_, err = works(b).TryBegin(ctx, "w1")
	wantIs(t, err, work.ErrDone)
	if _, ok, err := works(b).Record(ctx, "w2"); !ok || err != nil {
		t.Error(err)
	}
	k := locks.New(b)
	testclaims.Locked(t, k, "lock", "me", time.Minute, true)
	testclaims.Renewed(t, k, "lock", "me", 2*time.Minute, true)
	testclaims.Unlocked(t, k, "lock", "me", true)
	testclaims.Locked(t, k, "lock", "me", time.Minute, true)
	if n, err := k.ReleaseAll(ctx, "me"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	noErr(t, tryClaim(t, a, "resting", etcdclaims.MinHold(time.Hour)).Release(ctx))
	if i := lookUp(t, b, "resting"); !i.Held || i.Kind != "resting" {
		t.Errorf("%+v", i)
	}
	noErr(t, admin.ForceRelease(ctx, b, "resting", ""))
	noErr(t, tryClaim(t, a, "manual", etcdclaims.Manual()).Release(ctx))
	noErr(t, a.TryRun(ctx, "run", func(context.Context) error { return nil }))
	noErr(t, a.Run(ctx, "run", func(context.Context) error { return nil }))
	claimMany(t, a, numbered("many/%d", 200))
	_, err = b.TryAcquireAll(ctx, []string{"all/1", "all/2"})
	noErr(t, err)
	if got := listed(t, b, "many/", nil); len(got) != 200 {
		t.Errorf("listed %d", len(got))
	}
	if n, err := a.ReleaseAll(ctx); n != 200 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// authServer returns a server with authentication, and a client as root.
func authServer(t *testing.T) (s *testetcd.Server, root *clientv3.Client) {
	t.Helper()
	s = testetcd.Start(t, testetcd.NoSync())
	plain, ctx := s.Client(t), t.Context()
	_, err := plain.UserAdd(ctx, "root", "secret")
	noErr(t, err)
	_, err = plain.UserGrantRole(ctx, "root", "root")
	noErr(t, err)
	_, err = plain.AuthEnable(ctx)
	noErr(t, err)
	return s, clientAs(t, s, "root")
}

func clientAs(t *testing.T, s *testetcd.Server, user string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), Username: user, Password: "secret", Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
	noErr(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// addUser adds a user with a role of the permission on a prefix.
func addUser(t *testing.T, root *clientv3.Client, user, prefix string, perm clientv3.PermissionType) {
	t.Helper()
	ctx := t.Context()
	_, err := root.UserAdd(ctx, user, "secret")
	noErr(t, err)
	_, err = root.RoleAdd(ctx, user)
	noErr(t, err)
	_, err = root.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix), perm)
	noErr(t, err)
	_, err = root.UserGrantRole(ctx, user, user)
	noErr(t, err)
}

// A role limited to the prefix is enough for everything.
func TestAuthLimitedRole(t *testing.T) {
	t.Parallel()
	s, root := authServer(t)
	prefix := testetcd.Prefix(t)
	addUser(t, root, "worker", prefix, clientv3.PermissionType(clientv3.PermReadWrite))
	worker := clientAs(t, s, "worker")
	a, b, _ := twoOwners(t, worker, etcdclaims.Config{Prefix: prefix})
	everything(t, a, b)
	// What it may not write stops the work it would complete, and loses nothing.
	ctx := t.Context()
	w := tryBegin(t, a, "work")
	wantIs(t, w.Complete(ctx, clientv3.OpPut("/elsewhere", "")), rpctypes.ErrPermissionDenied)
	noErr(t, w.Check())
	noErr(t, w.Complete(ctx))
	noErr(t, a.Close(ctx))
	resp, err := root.Get(ctx, "/", clientv3.WithPrefix())
	noErr(t, err)
	for _, kv := range resp.Kvs {
		if !strings.HasPrefix(string(kv.Key), prefix) {
			t.Errorf("%s is outside of the prefix", kv.Key)
		}
	}
}

// A role without permission fails at once and clearly, and changes nothing.
func TestAuthDenied(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	s, root := authServer(t)
	prefix, ctx := testetcd.Prefix(t), t.Context()
	addUser(t, root, "outsider", "/elsewhere/", clientv3.PermissionType(clientv3.PermReadWrite))
	owner := newClient(t, root, etcdclaims.Config{Prefix: prefix, Owner: "root"})
	cl := tryClaim(t, owner, "held")
	w := tryBegin(t, owner, "work")
	testclaims.Locked(t, locks.New(owner), "lock", "me", time.Minute, true)
	before := snapshot(t, root, "/")
	c := newClient(t, clientAs(t, s, "outsider"), etcdclaims.Config{Prefix: prefix, Owner: "outsider"})
	handler := func(context.Context) error { t.Error("a handler ran"); return nil }
	for name, call := range map[string]func() error{
		"TryAcquire":      func() error { _, err := c.TryAcquire(ctx, "k"); return err },
		"TryAcquire held": func() error { _, err := c.TryAcquire(ctx, "held"); return err },
		"Acquire":         func() error { _, err := c.Acquire(ctx, "k"); return err },
		"Manual":          func() error { _, err := c.TryAcquire(ctx, "k", etcdclaims.Manual()); return err },
		"TryBegin":        func() error { _, err := works(c).TryBegin(ctx, "k"); return err },
		"Begin":           func() error { _, err := works(c).Begin(ctx, "k"); return err },
		"TryRun":          func() error { return c.TryRun(ctx, "k", handler) },
		"Run":             func() error { return c.Run(ctx, "k", handler) },
		"TryAcquireAll":   func() error { _, err := c.TryAcquireAll(ctx, []string{"k", "l"}); return err },
		"TryAcquireEach": func() error {
			_, errs := c.TryAcquireEach(ctx, []string{"k", "l"})
			if !errors.Is(errs[1], rpctypes.ErrPermissionDenied) {
				return errs[1]
			}
			return errs[0]
		},
		"Lookup":       func() error { _, err := c.Lookup(ctx, "held"); return err },
		"Record":       func() error { _, _, err := works(c).Record(ctx, "work"); return err },
		"Orphans":      func() error { _, err := orphansOf(ctx, c, 0); return err },
		"Owns":         func() error { _, err := c.Owns(ctx, cl.Token()); return err },
		"ForceRelease": func() error { return admin.ForceRelease(ctx, c, "held", "mine") },
		"List": func() (last error) {
			for _, err := range c.List(ctx, "") {
				last = err
			}
			return last
		},
		"Watch": func() (last error) {
			n := 0
			for _, err := range c.Watch(ctx, "") {
				last = err
				n++
			}
			if n != 1 {
				return fmt.Errorf("%d events", n)
			}
			return last
		},
		"Locks.TryAcquire": func() error { _, _, err := locks.New(c).TryAcquire(ctx, "k", "me", time.Minute); return err },
		"Locks.Renew":      func() error { _, _, err := locks.New(c).Renew(ctx, "lock", "me", time.Minute); return err },
		"Locks.Release":    func() error { _, err := locks.New(c).Release(ctx, "lock", "me"); return err },
		"Locks.IsLocked":   func() error { _, err := locks.New(c).IsLocked(ctx, "lock"); return err },
		"Locks.ReleaseAll": func() error { _, err := locks.New(c).ReleaseAll(ctx, "me"); return err },
	} {
		begin := time.Now()
		err := call()
		if !errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
	if after := snapshot(t, root, "/"); after != before {
		t.Errorf("changed from %s to %s", before, after)
	}
	if s := c.Stats(); s.Held != 0 || s.Sessions != 0 || s.Acquired != 0 {
		t.Errorf("stats %+v", s)
	}
	noErr(t, cl.Check())
	noErr(t, w.Complete(ctx))
	// The permission is given, and it goes on without a restart.
	_, err := root.RoleGrantPermission(ctx, "outsider", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	noErr(t, err)
	noErr(t, tryClaim(t, c, "k").Release(ctx))
}

// One who may read may look, and no more.
func TestAuthReadOnly(t *testing.T) {
	t.Parallel()
	s, root := authServer(t)
	prefix, ctx := testetcd.Prefix(t), t.Context()
	addUser(t, root, "reader", prefix, clientv3.PermissionType(clientv3.PermRead))
	owner := newClient(t, root, etcdclaims.Config{Prefix: prefix, Owner: "root"})
	cl := tryBegin(t, owner, "held")
	c := newClient(t, clientAs(t, s, "reader"), etcdclaims.Config{Prefix: prefix})
	if i := lookUp(t, c, "held"); !i.Held || i.Fence != cl.Fence() || i.TTL <= 0 {
		t.Errorf("%+v", i)
	}
	if got := listed(t, c, "", nil); len(got) != 1 {
		t.Errorf("listed %v", got)
	}
	if ok, err := c.Owns(ctx, cl.Token()); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	if _, ok, err := works(c).Record(ctx, "held"); !ok || err != nil {
		t.Error(err)
	}
	w := startWatch(t, c, "")
	w.next(t, etcdclaims.Claimed, "held")
	w.next(t, etcdclaims.Synced, "")
	_, err := c.TryAcquire(ctx, "k")
	wantIs(t, err, rpctypes.ErrPermissionDenied)
	wantIs(t, admin.ForceRelease(ctx, c, "held", ""), rpctypes.ErrPermissionDenied)
	noErr(t, cl.Check())
	noErr(t, cl.Complete(ctx))
	w.next(t, etcdclaims.Freed, "held")
}

func TestNoSpace(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx, etcd := t.Context(), server.Etcd(t)
		a, b, prefix := twoOwners(t, etcd, etcdclaims.Config{})
		cl := tryClaim(t, a, "claim")
		w := tryBegin(t, a, "work")
		noted := tryClaim(t, a, "noted", etcdclaims.Note([]byte("x")))
		testclaims.Locked(t, locks.New(a), "lock", "me", time.Minute, true)
		waiting := make(chan error, 1)
		go func() { _, err := b.Acquire(ctx, "claim"); waiting <- err }()
		eventually(t, "a waiter", func() bool { return lookUp(t, a, "claim").Waiting == 1 })

		for i := 0; ; i++ {
			if _, err := etcd.Put(ctx, fmt.Sprint("/fill/", i), strings.Repeat("x", 200<<10)); err != nil {
				wantIs(t, err, rpctypes.ErrNoSpace)
				break
			}
			time.Sleep(time.Second) // the size is as of the last commit
		}
		before := snapshot(t, etcd, prefix)
		fresh := newClient(t, server.Etcd(t), etcdclaims.Config{Prefix: prefix})
		for name, err := range map[string]error{
			"TryAcquire":  func() error { _, err := a.TryAcquire(ctx, "k"); return err }(),
			"Acquire":     func() error { _, err := a.Acquire(ctx, "k"); return err }(),
			"TryBegin":    func() error { _, err := works(a).TryBegin(ctx, "k"); return err }(),
			"new session": func() error { _, err := fresh.TryAcquire(ctx, "k"); return err }(),
			"all":         func() error { _, err := a.TryAcquireAll(ctx, []string{"k", "l"}); return err }(),
			"each":        func() error { _, errs := a.TryAcquireEach(ctx, []string{"k", "l"}); return errs[1] }(),
			"Complete":    w.Complete(ctx),
			"Fail":        failing(ctx, w, errors.New("x")),
			"Note":        noted.Note(ctx, []byte("y")),
			"Txn":         func() error { _, err := cl.Txn(ctx).Then(clientv3.OpPut("/x", "")).Commit(); return err }(),
			"lock":        func() error { _, _, err := locks.New(a).TryAcquire(ctx, "k", "me", time.Minute); return err }(),
		} {
			// What a caller's own transaction did cannot be told from its conditions.
			unknown := name == "Txn"
			if !errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, etcdclaims.ErrUnknown) != unknown || errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if after := snapshot(t, etcd, prefix); after != before {
			t.Errorf("changed from %s to %s", before, after)
		}
		testclaims.Renewed(t, locks.New(a), "lock", "me", time.Minute, true)
		time.Sleep(2 * time.Minute) // held claims are renewed
		for _, held := range []*etcdclaims.Claim{cl, w.Claim, noted} {
			noErr(t, held.Check())
			if ok, err := held.Owns(ctx); !ok || err != nil {
				t.Errorf("%q: %v, %v", held.Key(), ok, err)
			}
		}
		_, err := cl.Txn(ctx).Then(clientv3.OpDelete("/fill/0")).Commit()
		noErr(t, err)
		noErr(t, noted.Release(ctx))
		if i := lookUp(t, b, "noted"); i.Held || i.Note != nil {
			t.Errorf("%+v", i)
		}
		// Where somebody waits, too, though handing over takes space.
		noErr(t, cl.Release(ctx))
		if i := lookUp(t, b, "claim"); i.Held && i.Claim == cl.ID() {
			t.Errorf("%+v", i)
		}
		if s := a.Stats(); len(s.Lost) != 0 || s.Held != 1 {
			t.Errorf("stats %+v", s)
		}

		// Space is made, and it goes on.
		resp, err := etcd.Delete(ctx, "/fill/", clientv3.WithPrefix())
		noErr(t, err)
		_, err = etcd.Compact(ctx, resp.Header.Revision)
		noErr(t, err)
		time.Sleep(5 * time.Second)
		_, err = etcd.Defragment(ctx, etcd.Endpoints()[0])
		noErr(t, err)
		_, err = etcd.AlarmDisarm(ctx, &clientv3.AlarmMember{})
		noErr(t, err)
		noErr(t, w.Complete(ctx))
		tryClaim(t, a, "k")
		select {
		case err := <-waiting:
			t.Logf("the waiter: %v", err)
		case <-time.After(30 * time.Second):
			t.Error("the waiter waits on")
		}
	}, testclaims.Quota(3<<20))
}

// The request by which etcd runs out of space is carried out, and answered as
// those that are refused after it. Many come at that moment: no claim is left of
// one that failed, and none that was made was told to have failed.
func TestSpaceRunsOut(t *testing.T) {
	t.Parallel()
	server := testetcd.Start(t, testetcd.Quota(24<<20), testetcd.NoSync())
	etcd, filler := server.Client(t), server.Client(t)
	const prefix = "/claims/"
	c := newClient(t, etcd, etcdclaims.Config{Prefix: prefix})
	tryClaim(t, c, "warm")
	full := make(chan struct{})
	go func() {
		defer close(full)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := 0; ; n++ {
					if _, err := filler.Put(context.Background(), fmt.Sprint("/fill/", i, "/", n), strings.Repeat("v", 300<<10)); err != nil {
						return
					}
				}
			})
		}
		wg.Wait()
	}()
	var mu sync.Mutex
	outcomes := map[string]error{}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n, failed := 0, 0; failed < 3; n++ {
				key := fmt.Sprint("k", i, "-", n)
				cl, err := c.TryAcquire(t.Context(), key)
				if err == nil && n%2 == 0 {
					err = cl.Release(t.Context())
					key = "" // it may be there or not
				}
				if err != nil {
					failed++
				}
				if key != "" {
					mu.Lock()
					outcomes[key] = err
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	<-full
	for key, err := range outcomes {
		there := rawKV(t, etcd, prefix+"own/"+key) != nil
		late := errors.Is(err, context.DeadlineExceeded) // the machine is busy
		unknown := errors.Is(err, etcdclaims.ErrUnknown)
		if late && unknown {
			continue
		}
		if unknown || err != nil && !late && !errors.Is(err, rpctypes.ErrNoSpace) || there != (err == nil) {
			t.Errorf("%s: %v, and it is there: %v", key, err, there)
		}
	}
	_, err := etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	noErr(t, err)
}

// A call to a server that is away ends within its bound, and knows that nothing
// was done.
func TestServerStopped(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx, etcd := t.Context(), server.Etcd(t)
		a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
		cl := tryClaim(t, a, "held")
		server.Stop(t)
		for name, call := range map[string]func() error{
			"TryAcquire":             func() error { _, err := a.TryAcquire(ctx, "k"); return err },
			"TryBegin":               func() error { _, err := works(a).TryBegin(ctx, "k"); return err },
			"TryAcquire in the cold": func() error { _, err := b.TryAcquire(ctx, "k"); return err },
			"TryAcquireAll":          func() error { _, err := b.TryAcquireAll(ctx, []string{"k"}); return err },
			"TryAcquireEach":         func() error { _, errs := b.TryAcquireEach(ctx, []string{"k"}); return errs[0] },
			"Lookup":                 func() error { _, err := b.Lookup(ctx, "k"); return err },
			"Locks":                  func() error { _, _, err := locks.New(b).TryAcquire(ctx, "k", "me", time.Minute); return err },
			"ForceRelease":           func() error { return admin.ForceRelease(ctx, b, "k", "") },
			"with a short context": func() error {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err := b.TryAcquire(ctx, "k")
				if !errors.Is(err, context.DeadlineExceeded) {
					return fmt.Errorf("not the context's end: %w", err)
				}
				return err
			},
		} {
			begin := time.Now()
			err := call()
			if err == nil || errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, etcdclaims.ErrHeld) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(begin); took > 8*time.Second || name == "with a short context" && took > 1200*time.Millisecond {
				t.Errorf("%s took %v: %v", name, took, err)
			}
		}
		begin := time.Now()
		for {
			if _, err := a.TryAcquire(ctx, "k"); err == nil {
				t.Fatal("acquired without a server")
			}
			if cl.Err() != nil {
				break
			}
			if time.Since(begin) > time.Minute {
				t.Fatal("the claim outlives its server")
			}
		}
		wantIs(t, cl.Err(), etcdclaims.ErrLost)
		server.Restart(t)
		eventuallyClaims(t, a, "k")
	})
}

func eventuallyClaims(t *testing.T, c *etcdclaims.Client, key string) *etcdclaims.Claim {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		cl, err := c.TryAcquire(t.Context(), key)
		if err == nil {
			return cl
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// patiently makes a call up to five times until it returns in time and its outcome is known,
// and returns its error and how long it took. A request that is under way when the time is up
// is rightly unknown, and a busy machine is slow now and then: neither happens each time.
func patiently(most time.Duration, call func() error) (took time.Duration, err error) {
	for range 5 {
		begin := time.Now()
		err = call()
		if took = time.Since(begin); took <= most && !errors.Is(err, etcdclaims.ErrUnknown) {
			break
		}
	}
	return took, err
}

func TestNoLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for elections")
	}
	t.Parallel()
	cluster := testetcd.StartCluster(t, 3, testetcd.NoSync())
	ctx, prefix := t.Context(), testetcd.Prefix(t)
	a := newClient(t, cluster.Client(t), etcdclaims.Config{Prefix: prefix, Owner: "a"})
	b := newClient(t, cluster.Client(t), etcdclaims.Config{Prefix: prefix, Owner: "b"})
	tryClaim(t, a, "held")
	noErr(t, tryClaim(t, b, "warm").Release(ctx))
	stays := (cluster.Leader(t) + 1) % 3
	for i := range 3 {
		if i != stays {
			cluster.Stop(t, i)
		}
	}
	last := cluster.Member(stays)
	for status := last.Client(t); ; { // until the last one notices
		resp, err := status.Status(ctx, last.Endpoints()[0])
		noErr(t, err)
		if resp.Leader == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	for name, call := range map[string]func(context.Context) error{
		"TryAcquire": func(ctx context.Context) error { _, err := b.TryAcquire(ctx, "k"); return err },
		"Acquire":    func(ctx context.Context) error { _, err := b.Acquire(ctx, "k"); return err },
		"TryBegin":   func(ctx context.Context) error { _, err := works(b).TryBegin(ctx, "k"); return err },
		"Lookup":     func(ctx context.Context) error { _, err := b.Lookup(ctx, "k"); return err },
		"each":       func(ctx context.Context) error { _, errs := b.TryAcquireEach(ctx, []string{"k"}); return errs[0] },
		"Locks": func(ctx context.Context) error {
			_, _, err := locks.New(b).TryAcquire(ctx, "k", "me", time.Minute)
			return err
		},
	} {
		took, err := patiently(2*time.Second, func() error {
			short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			return call(short)
		})
		if err == nil || errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, etcdclaims.ErrUnknown) {
			t.Errorf("%s: nothing can have been done, but: %v", name, err)
		}
		if took > 2*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
	if testetcd.Long() {
		const most = 20 * time.Second // its own bound is 7.5 s
		took, err := patiently(most, func() error { _, err := b.TryAcquire(ctx, "k"); return err })
		if err == nil || errors.Is(err, etcdclaims.ErrUnknown) {
			t.Errorf("TryAcquire: %v", err)
		}
		if took > most {
			t.Errorf("TryAcquire took %v", took)
		}
	}
	for i := range 3 {
		if i != stays {
			cluster.Restart(t, i)
		}
	}
	cl := eventuallyClaims(t, b, "k")
	if ok, err := b.Owns(ctx, cl.Token()); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	eventuallyClaims(t, a, "other")
}

func TestLeaderMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for elections")
	}
	t.Parallel()
	cluster := testetcd.StartCluster(t, 3, testetcd.NoSync())
	ctx, prefix := t.Context(), testetcd.Prefix(t)
	renewals := make(chan etcdclaims.Renewal, 1000)
	a := newClient(t, cluster.Client(t), etcdclaims.Config{
		Prefix: prefix, TTL: 15 * time.Second, // elections take seconds on a busy machine
		Hooks: etcdclaims.Hooks{Renewed: func(r etcdclaims.Renewal) { renewals <- r }},
	})
	claims := claimMany(t, a, numbered("%d", 50))
	data := testetcd.Prefix(t)
	// The leader moves until the session was renewed twice: before, nothing is shown.
	for round := 0; round < 4 || len(renewals) < 2 && round < len(claims); round++ {
		cluster.MoveLeader(t, (cluster.Leader(t)+1)%3)
		noErr(t, tryClaim(t, a, fmt.Sprint("moved/", round)).Release(ctx))
		_, err := claims[round].Txn(ctx).Then(clientv3.OpPut(data+"x", fmt.Sprint(round))).Commit()
		if err != nil && !errors.Is(err, etcdclaims.ErrUnknown) {
			t.Error(err)
		}
		time.Sleep(time.Second)
	}
	for _, cl := range claims {
		noErr(t, cl.Check())
		if ok, err := cl.Owns(ctx); !ok || err != nil {
			t.Errorf("%q: %v, %v", cl.Key(), ok, err)
		}
	}
	if s := a.Stats(); len(s.Lost) != 0 || s.Held != 50 || s.Sessions != 1 {
		t.Errorf("stats %+v", s)
	}
	if len(renewals) < 2 {
		t.Errorf("%d renewals", len(renewals))
	}
}
