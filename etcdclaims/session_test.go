package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Each way to lose a claim: its reason, how soon it is noticed, and that
// claims beside it on the session stay.
func TestLossReasons(t *testing.T) {
	t.Parallel()
	const renew = 5 * sec
	cases := []struct {
		name   string
		spoil  func(w *world, c, other *etcdclaims.Client) error
		within time.Duration
		reason etcdclaims.Reason
		text   string
		alone  bool
	}{
		{"lease revoked", func(w *world, _, _ *etcdclaims.Client) error {
			w.Server.Revoke(w, w.Own("k"))
			return nil
		}, 250 * time.Millisecond, etcdclaims.ReasonRevoked, "", false},
		{"sentinel deleted", func(w *world, c, _ *etcdclaims.Client) error {
			w.Server.Delete(w, w.Prefix+"session/"+c.Instance()+"/live/1")
			return nil
		}, 250 * time.Millisecond, etcdclaims.ReasonRevoked, "", false},
		{"key deleted", func(w *world, _, _ *etcdclaims.Client) error {
			w.Server.Delete(w, w.Own("k"))
			return nil
		}, renew + sec, etcdclaims.ReasonDeleted, "", true},
		{"key overwritten", func(w *world, _, _ *etcdclaims.Client) error {
			w.Server.Overwrite(w, w.Own("k"), "mine now")
			return nil
		}, renew + sec, etcdclaims.ReasonSuperseded, "", true},
		{"key put again on the same lease", func(w *world, _, _ *etcdclaims.Client) error {
			_, err := w.Raw.Put(context.Background(), w.Own("k"), w.get("own/k"), clientv3.WithLease(w.Server.Lease(w, w.Own("k"))))
			return err
		}, renew + sec, etcdclaims.ReasonSuperseded, "", true},
		{"key put on another lease", func(w *world, _, _ *etcdclaims.Client) error {
			l, err := w.Raw.Grant(context.Background(), 10)
			if err == nil {
				_, err = w.Raw.Put(context.Background(), w.Own("k"), w.get("own/k"), clientv3.WithLease(l.ID))
			}
			return err
		}, renew + sec, etcdclaims.ReasonSuperseded, "", true},
		{"forced", func(_ *world, _, other *etcdclaims.Client) error {
			return admin.ForceRelease(context.Background(), other, "k", "it must go")
		}, sec, etcdclaims.ReasonDeleted, "it must go", true},
		{"forced by itself", func(_ *world, c, _ *etcdclaims.Client) error {
			return admin.ForceRelease(context.Background(), c, "k", "it must go")
		}, sec, etcdclaims.ReasonDeleted, "it must go", true},
		{"epoch raised", func(w *world, _, _ *etcdclaims.Client) error {
			w.Server.RaiseEpoch(w, w.Prefix)
			return nil
		}, renew + sec, etcdclaims.ReasonSuperseded, "epoch", false},
		{"closed", func(_ *world, c, _ *etcdclaims.Client) error {
			return c.Close(context.Background())
		}, 0, etcdclaims.ReasonShutdown, "", false},
	}
	for _, tc := range cases {
		virtualCase(t, tc.name, func(t *testing.T, w *world) {
			var mu sync.Mutex
			var hooked []*etcdclaims.LostError
			c, _ := w.client(etcdclaims.Config{TTL: 15 * sec, Hooks: onLoss(func(l *etcdclaims.LostError) {
				mu.Lock()
				defer mu.Unlock()
				hooked = append(hooked, l)
			})})
			other, _ := w.client(etcdclaims.Config{TTL: 15 * sec, Owner: "operator"})
			before := tryClaim(t, c, "a neighbour")
			cl := tryClaim(t, c, "k", etcdclaims.Note([]byte("n")))
			after := tryClaim(t, c, "z neighbour")
			time.Sleep(6 * sec)
			e := follow(cl)
			begin := time.Now()
			if err := tc.spoil(w, c, other); err != nil {
				t.Fatal(err)
			}
			done := <-e.done
			t.Logf("noticed after %v", done.Sub(begin))
			if d := done.Sub(begin); d > tc.within {
				t.Errorf("noticed after %v, want at most %v", d, tc.within)
			}
			if d := (<-e.soft).Sub(done); d > 0 {
				t.Errorf("the context ended %v after the claim", d)
			}
			lossOf(t, cl.Err(), tc.reason)
			lossOf(t, cl.Check(), tc.reason)
			lossOf(t, context.Cause(cl.Context()), tc.reason)
			if !strings.Contains(cl.Err().Error(), tc.text) {
				t.Errorf("%q does not say %q", cl.Err(), tc.text)
			}
			if _, err := cl.Txn(context.Background()).Then(clientv3.OpPut("/effect", "x")).Commit(); !errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("a write got %v", err)
			}
			if resp, err := w.Raw.Txn(context.Background()).If(cl.Guard()...).Then(clientv3.OpPut("/effect", "x")).Commit(); err != nil || resp.Succeeded && tc.name != "sentinel deleted" {
				t.Errorf("a raw guarded write succeeded (%v)", err)
			}
			time.Sleep(20 * sec)
			for _, n := range []*etcdclaims.Claim{before, after} {
				if err := n.Check(); (err == nil) != tc.alone {
					t.Errorf("neighbour: %v, lost alone %v", err, tc.alone)
				}
			}
			mu.Lock()
			want := 3
			if tc.alone {
				want = 1
			}
			if len(hooked) != want || c.Stats().Lost[tc.reason] != int64(want) {
				t.Errorf("hook told of %v, stats %v; want %d losses", hooked, c.Stats().Lost, want)
			}
			mu.Unlock()
			if strings.HasPrefix(tc.name, "key ") {
				w.Server.Delete(t, w.Own("k"))
			}
			for k := range w.All() {
				if strings.Contains(k, "/evict/") {
					t.Errorf("the notice %s was not removed", k)
				}
			}
			if tc.name != "closed" {
				// A new claim is a new term with a greater fence.
				again := tryClaim(t, c, "k")
				if again.Fence() <= cl.Fence() || cl.Check() == nil {
					t.Errorf("again: fence %d after %d, the lost claim's Check is %v", again.Fence(), cl.Fence(), cl.Check())
				}
			}
			w.CloseClean(c, other)
			w.NoLeases()
		})
	}
}

// What happened while there was no connection is noticed after it, though etcd
// has compacted it away.
func TestCompactionDuringDisconnect(t *testing.T) {
	t.Parallel()
	for _, compact := range []bool{false, true} {
		for _, what := range []string{"sentinel", "lease", "eviction"} {
			virtualCase(t, fmt.Sprintf("%s compacted %v", what, compact), func(t *testing.T, w *world) {
				ctx := context.Background()
				c, host := w.client(etcdclaims.Config{TTL: 60 * sec})
				other, _ := w.client(etcdclaims.Config{TTL: 15 * sec, Owner: "operator"})
				cl := tryClaim(t, c, "k")
				neighbour := tryClaim(t, c, "neighbour")
				time.Sleep(sec)
				host.Cut()
				host.Break()
				time.Sleep(sec)
				var err error
				reason := etcdclaims.ReasonRevoked
				switch what {
				case "sentinel":
					_, err = w.Raw.Delete(ctx, w.Prefix+"session/"+c.Instance()+"/live/1")
				case "lease":
					_, err = w.Raw.Revoke(ctx, w.Server.Lease(t, w.Own("k")))
				case "eviction":
					err = admin.ForceRelease(ctx, other, "k", "it must go")
					reason = etcdclaims.ReasonDeleted
				}
				if err != nil {
					t.Fatal(err)
				}
				var rev int64
				for range 3 {
					put, err := w.Raw.Put(ctx, "/noise", "x")
					if err != nil {
						t.Fatal(err)
					}
					rev = put.Header.Revision
				}
				if compact {
					if _, err := w.Raw.Compact(ctx, rev, clientv3.WithCompactPhysical()); err != nil {
						t.Fatal(err)
					}
				}
				if err := cl.Check(); err != nil {
					t.Fatalf("while disconnected: %v", err)
				}
				begin := time.Now()
				host.Heal()
				<-cl.Done()
				if d := time.Since(begin); d > 2*sec {
					t.Errorf("noticed %v after the connection came back", d)
				}
				lossOf(t, cl.Err(), reason)
				synctest.Wait() // the claims of a session end one after the other
				if err := neighbour.Check(); (err == nil) != (what == "eviction") {
					t.Errorf("neighbour: %v", err)
				}
				// And the watch goes on.
				again := tryClaim(t, c, "again")
				begin = time.Now()
				w.Server.Revoke(t, w.Own("again"))
				<-again.Done()
				if d := time.Since(begin); d > 250*time.Millisecond {
					t.Errorf("the next revocation was noticed after %v", d)
				}
			})
		}
	}
}

// A server that restarts on its data: within the deadline claims survive, and
// their watch goes on; beyond it they are lost, before the server could know.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	for _, down := range []time.Duration{0, sec, 3 * sec} {
		virtualCase(t, fmt.Sprintf("survives %v", down), func(t *testing.T, w *world) {
			c := w.peer()
			cl := tryClaim(t, c, "k")
			time.Sleep(7 * sec)
			w.Server.Stop(t)
			time.Sleep(down)
			w.Server.Restart(t)
			time.Sleep(30 * sec)
			if err := cl.Check(); err != nil {
				t.Fatalf("after the restart: %v", err)
			}
			if cl.Context().Err() != nil {
				t.Errorf("the context ended: %v", context.Cause(cl.Context()))
			}
			if ok, err := cl.Owns(context.Background()); !ok || err != nil {
				t.Errorf("owns: %v, %v", ok, err)
			}
			begin := time.Now()
			w.Server.Revoke(t, w.Own("k"))
			<-cl.Done()
			if d := time.Since(begin); d > 250*time.Millisecond {
				t.Errorf("a revocation after the restart was noticed after %v", d)
			}
			lossOf(t, cl.Err(), etcdclaims.ReasonRevoked)
		})
	}
	virtualCase(t, "expires", func(t *testing.T, w *world) {
		_, hard := timing(15 * sec)
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		cl := tryClaim(t, c, "k")
		time.Sleep(7 * sec)
		sent := host.Sent(claimtest.KeepAlive)
		w.Server.Stop(t)
		<-cl.Done()
		if d := time.Since(sent[len(sent)-1]); !near(d, hard, time.Millisecond) {
			t.Errorf("expired %v after the last renewal, want %v", d, hard)
		}
		lossOf(t, cl.Err(), etcdclaims.ReasonExpired)
		time.Sleep(10 * sec)
		w.Server.Restart(t) // it renews leases in full
		begin := time.Now()
		again, err := c.Acquire(context.Background(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d > 2*15*sec+4*sec {
			t.Errorf("taken over after %v", d)
		}
		if again.Fence() <= cl.Fence() {
			t.Errorf("fence went from %d to %d", cl.Fence(), again.Fence())
		}
		w.CloseClean(c)
	})
}

// lowered makes replies claim a revision from before.
func lowered(by int64) func(any) {
	return func(m any) {
		if r, ok := m.(interface{ GetHeader() *pb.ResponseHeader }); ok && r.GetHeader() != nil {
			r.GetHeader().Revision -= by
		}
	}
}

func (w *world) noise(n int) {
	for range n {
		if _, err := w.Raw.Put(context.Background(), "/noise", "x"); err != nil {
			w.Fatal(err)
		}
	}
}

// A revision that went back: claims end, none are made until the epoch is
// raised, and then fences are greater than all before.
func TestRewoundRevision(t *testing.T) {
	t.Parallel()
	for _, trigger := range []string{"renewal", "lookup", "acquire"} {
		virtualCase(t, trigger, func(t *testing.T, w *world) {
			ctx := context.Background()
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			w.noise(200)
			cl := tryClaim(t, c, "a")
			// Once it is told of a future, so that the present is a past.
			host.Inject(claimtest.Fault{On: claimtest.Verify, Edit: lowered(-100)})
			if _, err := c.Lookup(ctx, "a"); err != nil {
				t.Fatal(err)
			}
			ran := false
			switch trigger {
			case "renewal":
				time.Sleep(6 * sec)
			case "lookup":
				if _, err := c.Lookup(ctx, "a"); !errors.Is(err, etcdclaims.ErrRewound) {
					t.Errorf("looking up: %v", err)
				}
			case "acquire":
				err := c.TryRun(ctx, "b", func(context.Context) error { ran = true; return nil })
				if !errors.Is(err, etcdclaims.ErrRewound) {
					t.Errorf("running: %v", err)
				}
			}
			synctest.Wait()
			lossOf(t, cl.Check(), etcdclaims.ReasonSessionDead)
			if !errors.Is(cl.Check(), etcdclaims.ErrRewound) {
				t.Errorf("the loss says %v", cl.Check())
			}
			for range 3 {
				if err := c.TryRun(ctx, "b", func(context.Context) error { ran = true; return nil }); !errors.Is(err, etcdclaims.ErrRewound) || errors.Is(err, etcdclaims.ErrUnknown) {
					t.Errorf("running: %v", err)
				}
				wctx, cancel := context.WithTimeout(ctx, 20*sec)
				if err := c.Run(wctx, "c", func(context.Context) error { ran = true; return nil }); !errors.Is(err, etcdclaims.ErrRewound) {
					t.Errorf("running in line: %v", err)
				}
				cancel()
			}
			if ran {
				t.Error("a handler ran")
			}
			time.Sleep(16 * sec)
			w.NothingLeft()
			w.Server.RaiseEpoch(t, w.Prefix)
			again, err := c.TryAcquire(ctx, "a")
			if err != nil {
				t.Fatalf("after raising the epoch: %v", err)
			}
			if again.Fence() <= cl.Fence() || again.Fence()>>47 != 1 {
				t.Errorf("fence went from %d to %d", cl.Fence(), again.Fence())
			}
			time.Sleep(40 * sec)
			if err := again.Check(); err != nil {
				t.Error(err)
			}
			if _, err := again.Txn(ctx).Then(clientv3.OpPut("/effect", "x")).Commit(); err != nil {
				t.Error(err)
			}
			if ok, err := c.Owns(ctx, cl.Token()); ok {
				t.Errorf("the token from before owns (%v)", err)
			}
			w.noise(200) // going forward is nothing
			time.Sleep(40 * sec)
			if err := again.Check(); err != nil {
				t.Error(err)
			}
			w.CloseClean(c)
		})
	}
}

// The epoch to compare with is the one at the time of the rewind, whichever
// reply brings the raised one first.
func TestRewoundEpochLearntByAnotherWay(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		w.noise(100)
		tryClaim(t, c, "a")
		host.Inject(claimtest.Fault{On: claimtest.Verify, Edit: lowered(-50)})
		if _, err := c.Lookup(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.TryAcquire(ctx, "b"); !errors.Is(err, etcdclaims.ErrRewound) {
			t.Fatalf("acquiring: %v", err)
		}
		time.Sleep(16 * sec) // the lease of what was carried out all the same
		w.noise(100)         // writes bring the revision past what was seen
		if _, err := c.TryAcquire(ctx, "b"); !errors.Is(err, etcdclaims.ErrRewound) {
			t.Errorf("revisions that passed what was seen are no reason to go on: %v", err)
		}
		w.Server.RaiseEpoch(t, w.Prefix)
		if _, err := c.Lookup(ctx, "b"); err != nil {
			t.Errorf("looking up: %v", err)
		}
		if _, err := c.TryAcquire(ctx, "b"); err != nil {
			t.Errorf("after raising the epoch, and a Lookup: %v", err)
		}
	})
}

// The reply that shows the rewind may be that of a write that was carried out:
// its outcome is not a refusal.
func TestRewoundReplyToAWriteIsUnknown(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		w.noise(100)
		cl := tryClaim(t, c, "a")
		host.Inject(claimtest.Fault{On: claimtest.Verify, Edit: lowered(-50)})
		if _, err := c.Lookup(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		_, err := cl.Txn(ctx).Then(clientv3.OpPut("/effect", "x")).Commit()
		if !errors.Is(err, etcdclaims.ErrRewound) {
			t.Errorf("got %v, want ErrRewound", err)
		}
		got, gerr := w.Raw.Get(ctx, "/effect")
		if gerr != nil {
			t.Fatal(gerr)
		}
		if len(got.Kvs) == 1 && !errors.Is(err, etcdclaims.ErrUnknown) {
			t.Errorf("carried out, and reported as refused: %v", err)
		}
	})
}

// One answer from the past is not a rewind.
func TestStaleReadIsNoRewind(t *testing.T) {
	t.Parallel()
	for _, kind := range []claimtest.Kind{claimtest.Verify, steps.Take, steps.Enqueue, steps.Note, steps.Free} {
		virtualCase(t, string(kind), func(t *testing.T, w *world) {
			ctx := context.Background()
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			w.noise(100)
			cl := tryClaim(t, c, "a")
			w.Joined(c, "c")
			r := host.Inject(claimtest.Fault{On: kind, Edit: lowered(50)})
			second, err := c.TryAcquire(ctx, "b")
			if err != nil {
				t.Fatal(err)
			}
			third, err := c.Acquire(ctx, "c")
			if err != nil {
				t.Fatal(err)
			}
			if err := second.Note(ctx, []byte("n")); err != nil {
				t.Error(err)
			}
			release(t, second)
			time.Sleep(30 * sec)
			for _, cl := range []*etcdclaims.Claim{cl, third} {
				if err := cl.Check(); err != nil {
					t.Error(err)
				}
			}
			if r.Hits() != 1 {
				t.Errorf("met %d times", r.Hits())
			}
			w.CloseClean(c)
		})
	}
}

// A call that only reads says that a member is to blame, not that its outcome is unknown.
func TestStaleReadIsUnavailable(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		w.noise(100)
		cl := tryClaim(t, c, "a")
		stale := host.Inject(claimtest.Fault{On: claimtest.Verify, Edit: lowered(50), Times: -1})
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		if _, err := cl.Owns(ctx); status.Code(err) != codes.Unavailable || errors.Is(err, etcdclaims.ErrUnknown) {
			t.Errorf("%v (%v)", err, status.Code(err))
		}
		stale.Remove()
		if _, err := cl.Owns(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
		w.CloseClean(c)
	})
}

// After Close nothing is left: keys, leases, goroutines (the bubble waits for
// those).
func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, other := w.peer(), w.peer()
		blocked := tryClaim(t, other, "blocked")
		var claims []*etcdclaims.Claim
		for i := range 100 {
			claims = append(claims, tryClaim(t, c, fmt.Sprint(i), etcdclaims.Note([]byte("n"))))
		}
		claims = append(claims, tryClaim(t, c, "manual", etcdclaims.Manual()), tryClaim(t, c, "long", etcdclaims.TTL(60*sec)),
			tryClaim(t, c, "max", etcdclaims.MaxHold(60*sec)))
		wk := tryBegin(t, c, "work")
		claims = append(claims, wk.Claim)
		waited := make(chan error)
		go func() { _, err := c.Acquire(ctx, "blocked"); waited <- err }()
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		begin := time.Now()
		if err := c.Close(ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
		if err := <-waited; !errors.Is(err, etcdclaims.ErrClosed) {
			t.Errorf("waiting got %v, want ErrClosed", err)
		}
		if d := time.Since(begin); d > sec {
			t.Errorf("closing took %v", d)
		}
		for _, cl := range claims {
			lossOf(t, cl.Err(), etcdclaims.ReasonShutdown)
		}
		if s := c.Stats(); s.Held != 0 || s.Sessions != 0 {
			t.Errorf("stats %+v", s)
		}
		if err := c.Close(ctx); err != nil {
			t.Errorf("closing again: %v", err)
		}
		release(t, blocked)
		w.CloseClean(other)
		w.NoLeases()
	})
}

// Close may be called by several at once, and each waits no longer than its own
// context.
func TestCloseByManyAtOnce(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	c := newClient(t, etcd, etcdclaims.Config{Prefix: testetcd.Prefix(t), TTL: 120 * sec, Drain: 20 * sec})
	begun, stopping, second := make(chan struct{}), make(chan struct{}), make(chan struct{})
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = c.TryRun(context.Background(), "k", func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			close(stopping)
			<-second // both wait for the handler, however slow the machine is
			return nil
		})
	}()
	<-begun
	first := make(chan error)
	go func() { first <- c.Close(context.Background()) }()
	<-stopping
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	err := c.Close(ctx)
	if d := time.Since(begin); d > 10*sec || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second Close, given 200 ms, returned %v after %v", err, d)
	}
	close(second)
	if err := <-first; err != nil {
		t.Errorf("the first: %v", err)
	}
	<-ran
}

// A closed client takes no more calls, not even those that only read.
func TestEveryCallAfterCloseIsErrClosed(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		other := w.peer()
		theirs := tryClaim(t, other, "theirs")
		cl := tryClaim(t, c, "k")
		if err := c.Close(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // what had begun before is sent
		before := c.Stats().Requests
		watches := len(host.Sent(claimtest.Watch))
		calls := map[string]func() error{
			"TryAcquire":    func() error { _, err := c.TryAcquire(ctx, "x"); return err },
			"Acquire":       func() error { _, err := c.Acquire(ctx, "x"); return err },
			"TryBegin":      func() error { _, err := works(c).TryBegin(ctx, "x"); return err },
			"Begin":         func() error { _, err := works(c).Begin(ctx, "x"); return err },
			"TryRun":        func() error { return c.TryRun(ctx, "x", func(context.Context) error { t.Error("ran"); return nil }) },
			"Run":           func() error { return c.Run(ctx, "x", func(context.Context) error { t.Error("ran"); return nil }) },
			"TryAcquireAll": func() error { _, err := c.TryAcquireAll(ctx, []string{"x"}); return err },
			"TryAcquireEach": func() error {
				_, errs := c.TryAcquireEach(ctx, []string{"x"})
				return errs[0]
			},
			"Manual":       func() error { _, err := c.TryAcquire(ctx, "x", etcdclaims.Manual()); return err },
			"Lookup":       func() error { _, err := c.Lookup(ctx, "theirs"); return err },
			"Record":       func() error { _, _, err := works(c).Record(ctx, "theirs"); return err },
			"Orphans":      func() error { _, err := orphansOf(ctx, c, 0); return err },
			"Owns":         func() error { _, err := c.Owns(ctx, theirs.Token()); return err },
			"ForceRelease": func() error { return admin.ForceRelease(ctx, c, "theirs", "because") },
			"List": func() error {
				for _, err := range c.List(ctx, "") {
					return err
				}
				return nil
			},
			"Watch": func() error {
				for _, err := range c.Watch(ctx, "") {
					return err
				}
				return etcdclaims.ErrClosed // ends at once
			},
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, etcdclaims.ErrClosed) {
				t.Errorf("%s: %v, want ErrClosed", name, err)
			}
		}
		if n := c.Stats().Requests - before; n > 0 || len(host.Sent(claimtest.Watch)) > watches {
			t.Errorf("%d requests and %d watches were sent by a closed client", n, len(host.Sent(claimtest.Watch))-watches)
		}
		if theirs.Check() != nil {
			t.Error("a closed client ended another's claim")
		}
		for name, err := range map[string]error{"Check": cl.Check(), "Err": cl.Err(), "Note": cl.Note(ctx, nil), "Renew": cl.Renew(ctx), "Release": cl.Release(ctx)} {
			if !errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("a claim's %s: %v, want ErrLost", name, err)
			}
		}
	})
}

// Close without etcd ends in a time of its own, a third of the TTL, and locally all
// is over.
func TestCloseCutOff(t *testing.T) {
	t.Parallel()
	for _, given := range []time.Duration{0, sec, time.Minute} {
		virtualCase(t, given.String(), func(t *testing.T, w *world) {
			host := w.Server.Host(t)
			c, err := etcdclaims.New(host.Etcd(t), etcdclaims.Config{Prefix: w.Prefix, TTL: 15 * sec})
			if err != nil {
				t.Fatal(err)
			}
			cl := tryClaim(t, c, "k")
			tryClaim(t, c, "k2", etcdclaims.Manual())
			host.Cut()
			ctx, cancel := context.WithTimeout(context.Background(), given)
			defer cancel()
			begin := time.Now()
			err = c.Close(ctx)
			if d := time.Since(begin); d > 5*sec+10*time.Millisecond {
				t.Errorf("closing took %v of %v (%v)", d, given, err)
			}
			if err == nil {
				t.Error("closing succeeded without etcd")
			}
			if cl.Check() == nil {
				t.Error("still held")
			}
			host.Heal()
			time.Sleep(17 * sec)
			w.NothingLeft()
			w.NoLeases()
		})
	}
}

// Closing while much goes on.
func TestCloseInTheMidst(t *testing.T) {
	t.Parallel()
	for round := range 5 {
		virtually(t, func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			other := w.peer()
			tryClaim(t, other, "held")
			host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: time.Duration(round) * time.Millisecond})
			var wg sync.WaitGroup
			for i := range 30 {
				wg.Go(func() {
					for n := 0; ; n++ {
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+i*n%13)*time.Millisecond)
						var err error
						switch i % 5 {
						case 0:
							_, err = c.Acquire(ctx, "held")
						case 1:
							err = c.TryRun(ctx, fmt.Sprint("r", i), func(context.Context) error { return nil })
						case 2:
							_, err = c.TryAcquire(ctx, fmt.Sprint("t", i, n), etcdclaims.Manual())
						case 3:
							err = c.Run(ctx, "shared", func(context.Context) error { time.Sleep(time.Millisecond); return nil })
						case 4:
							_, err = c.TryAcquireAll(ctx, []string{fmt.Sprint("a", i, n), fmt.Sprint("b", i, n)})
						}
						cancel()
						if errors.Is(err, etcdclaims.ErrClosed) {
							return
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			time.Sleep(time.Duration(10+13*round) * time.Millisecond)
			ctx, cancel := context.WithTimeout(context.Background(), 20*sec)
			defer cancel()
			if err := c.Close(ctx); err != nil {
				t.Errorf("closing: %v", err)
			}
			wg.Wait()
			time.Sleep(16 * sec) // what was on its way
			w.CloseClean(other)
			w.NoLeases()
		})
	}
}
