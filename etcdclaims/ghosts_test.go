package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/steps"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A release of a key that others wait for, which does not come through for as
// long as its caller waits, is carried out in the background: no claim that
// nobody has stays on the living lease.
func TestGhostAfterTimedOutRelease(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*world, *etcdclaims.Client) func(){
		"Release": func(w *world, c *etcdclaims.Client) func() {
			held := tryClaim(w, c, "k")
			return func() {
				ctx, cancel := context.WithTimeout(context.Background(), 2*sec)
				defer cancel()
				if err := held.Release(ctx); !errors.Is(err, etcdclaims.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					w.Errorf("releasing: %v, want ErrUnknown and DeadlineExceeded", err)
				}
			}
		},
		"Run": func(w *world, c *etcdclaims.Client) func() {
			end, done := make(chan struct{}), make(chan error, 1)
			go func() {
				done <- c.Run(context.Background(), "k", func(context.Context) error { <-end; return nil })
			}()
			time.Sleep(100 * time.Millisecond)
			return func() {
				close(end)
				if err := <-done; err != nil {
					w.Errorf("running: %v", err)
				}
			}
		},
	}
	for name, hold := range ends {
		for _, lost := range []claimtest.Kind{steps.Free, steps.HandOver} {
			for _, change := range []string{"nothing", "the first leaves", "the epoch is raised", "the first leaves, the epoch is raised"} {
				for _, opts := range [][]etcdclaims.AcquireOption{nil, {etcdclaims.Note([]byte("n"))}} {
					if opts != nil && lost == steps.HandOver && !strings.Contains(change, "leaves") {
						continue // nobody to hand it over to
					}
					virtualCase(t, fmt.Sprintf("%s, %s lost, %s, note %v", name, lost, change, opts != nil), func(t *testing.T, w *world) {
						a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
						b, c := w.peer(), w.peer()
						end := hold(w, a)
						lease := w.Server.Lease(t, w.Own("k"))
						var first <-chan claimed
						bctx, leave := context.WithCancel(context.Background())
						defer leave()
						if strings.Contains(change, "leaves") {
							first = acquiring(bctx, b, "k")
							time.Sleep(sec)
						}
						second := acquiring(context.Background(), c, "k", opts...)
						time.Sleep(sec)
						host.Inject(claimtest.Fault{On: lost, Times: -1, LoseRequest: true})
						ended := make(chan struct{})
						go func() { end(); close(ended) }()
						if lost == steps.HandOver {
							// What follows when the caller has given up is not lost: it
							// would come first, or last, or in between.
							time.Sleep(sec)
						} else {
							<-ended
						}
						if first != nil {
							leave()
							<-first
						}
						if strings.Contains(change, "epoch") {
							w.Server.RaiseEpoch(t, w.Prefix)
						}
						<-ended
						time.Sleep(100 * time.Millisecond)
						host.RemoveFaults()
						cl := w.within(5*sec, second)
						w.Ours(cl)
						if w.Server.Lease(t, w.Own("k")) == lease {
							t.Error("the key is on the lease of who released it")
						}
						if s := a.Stats(); s.Sessions != 1 || s.Held != 0 {
							t.Errorf("who released has %d sessions and %d claims", s.Sessions, s.Held)
						}
						time.Sleep(20 * sec)
						w.Ours(cl)
						w.CloseClean(a, b, c)
					})
				}
			}
		}
	}
}

// Of keys that were claimed together for a caller who never heard of it, none
// stays held.
func TestGhostsOfTryAcquireAll(t *testing.T) {
	t.Parallel()
	for _, isLate := range []bool{false, true} {
		for _, note := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("late %v, note %v", isLate, note), func(t *testing.T, w *world) {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				other := w.peer()
				warm := tryClaim(t, c, "warm")
				var request *late
				if isLate {
					request = delayed(host, steps.Take)
				} else {
					host.Inject(claimtest.Fault{On: steps.Take, LoseReply: true})
				}
				// So that the call cannot settle it itself.
				host.Inject(claimtest.Fault{On: steps.Resolve, Times: -1, LoseRequest: true})
				ctx, cancel := context.WithTimeout(context.Background(), sec)
				defer cancel()
				var opts []etcdclaims.AllOption
				if note {
					opts = append(opts, etcdclaims.Note([]byte("n")))
				}
				keys := []string{"a", "b", "c"}
				_, err := c.TryAcquireAll(ctx, keys, opts...)
				if !errors.Is(err, etcdclaims.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want ErrUnknown and DeadlineExceeded", err)
				}
				if isLate {
					time.Sleep(3 * sec)
					request.arrive()
				}
				time.Sleep(3 * sec)
				for _, key := range keys {
					for _, k := range []string{"own/" + key, "note/" + key} {
						if v := w.get(k); v != "" {
							t.Errorf("left: %s = %s", k, v)
						}
					}
					w.Available(key, other)
				}
				w.Ours(warm)
				w.CloseClean(c, other)
			})
		}
	}
}

// The first of several keys that were claimed together, with their reply lost, is
// taken away before anybody asks what became of them. The others do not stay.
func TestGhostsOfTryAcquireAllBesideOneTaken(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		other := w.peer()
		warm := tryClaim(t, c, "warm")
		host.Inject(claimtest.Fault{On: steps.Take, LoseReply: true})
		host.Inject(claimtest.Fault{On: steps.Resolve, DelayRequest: sec})
		keys := []string{"a", "b", "c"}
		err := make(chan error, 1)
		go func() {
			_, failed := c.TryAcquireAll(context.Background(), keys, etcdclaims.Note([]byte("n")))
			err <- failed
		}()
		for w.get("own/a") == "" {
			time.Sleep(sec / 100)
		}
		w.rawPut("a", "somebody's")
		wantIs(t, <-err, etcdclaims.ErrHeld)
		for _, key := range []string{"own/b", "own/c", "note/a", "note/b", "note/c"} {
			if v := w.get(key); v != "" {
				t.Errorf("left: %s = %s", key, v)
			}
		}
		w.Available("b", other)
		w.Ours(warm)
		w.Server.Delete(t, w.Own("a"))
		w.CloseClean(c, other)
	})
}

// Whoever comes to share a claim while it is given up has either that claim, for
// as long as it keeps its handle, or none of that fence.
func TestReentrantMeetsRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, _ := w.client(etcdclaims.Config{TTL: time.Hour})
		var shared atomic.Int64
		standing := func(cl *etcdclaims.Claim, how string) {
			resp, err := w.Raw.Get(ctx, w.Own("k"))
			if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != cl.Fence() {
				w.Errorf("%s: a claim with fence %d, etcd has %v, %v", how, cl.Fence(), resp, err)
			}
			if err := cl.Check(); err != nil {
				w.Errorf("%s: %v", how, err)
			}
		}
		for range 300 {
			first := tryClaim(t, c, "k")
			var wg sync.WaitGroup
			start := make(chan struct{})
			wg.Go(func() {
				<-start
				if err := first.Release(ctx); err != nil {
					t.Errorf("releasing: %v", err)
				}
			})
			for range 4 {
				wg.Go(func() {
					<-start
					for n := range 40 { // sharing costs no request, so that these meet often
						cl, err := c.TryAcquire(ctx, "k", etcdclaims.Reentrant())
						if err != nil {
							if !errors.Is(err, etcdclaims.ErrHeld) {
								t.Errorf("sharing: %v", err)
							}
							return
						}
						if cl.Fence() == first.Fence() {
							shared.Add(1)
						}
						if n%8 == 7 || cl.Fence() != first.Fence() {
							standing(cl, "TryAcquire")
						}
						if err := cl.Release(ctx); err != nil {
							t.Errorf("releasing a share: %v", err)
						}
						if cl.Fence() != first.Fence() {
							return
						}
					}
				})
			}
			wg.Go(func() {
				<-start
				err := c.TryRun(ctx, "k", func(ctx context.Context) error {
					tok, _ := fencing.FromContext(ctx)
					resp, err := w.Raw.Get(context.Background(), w.Own("k"))
					if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != tok.Fence || ctx.Err() != nil {
						t.Errorf("running with fence %d, etcd has %v, %v", tok.Fence, resp, err)
					}
					return nil
				}, etcdclaims.Reentrant())
				if err != nil && !errors.Is(err, etcdclaims.ErrHeld) {
					t.Errorf("running: %v", err)
				}
			})
			close(start)
			wg.Wait()
			if v := w.get("own/k"); v != "" {
				w.Fatalf("all have released, etcd has %s", v)
			}
		}
		t.Logf("%d shared the claim that was being released", shared.Load())
		w.CloseClean(c)
	})
}

// Who came through the line and lost the key leaves no notice behind when it
// releases, MinHold or not.
func TestLostKeyLeavesTheLine(t *testing.T) {
	t.Parallel()
	for _, min := range []time.Duration{0, 10 * sec} {
		for _, how := range []string{"released", "found by renewal", "asked"} {
			virtualCase(t, fmt.Sprintf("MinHold %v, %s", min, how), func(t *testing.T, w *world) {
				ctx := context.Background()
				a, b, c := w.peer(), w.peer(), w.peer()
				held := tryClaim(t, a, "k")
				next := acquiring(ctx, b, "k", etcdclaims.MinHold(min))
				time.Sleep(sec)
				release(t, held)
				cl := w.within(sec, next)
				if n := w.places() + w.notices(); n != 1 {
					w.Fatalf("%d places in line and notices, want the holder's notice", n)
				}
				w.Server.Delete(t, w.Own("k"))
				switch how {
				case "released":
					if err := cl.Release(ctx); !errors.Is(err, etcdclaims.ErrLost) {
						t.Errorf("releasing what was lost: %v", err)
					}
				case "found by renewal":
					time.Sleep(6 * sec)
				case "asked":
					if ok, err := cl.Owns(ctx); ok || err != nil {
						t.Errorf("owns: %v, %v", ok, err)
					}
				}
				if cl.Check() == nil {
					t.Error("still held by its own account")
				}
				time.Sleep(sec)
				if n := w.places() + w.notices(); n != 0 {
					t.Errorf("%d places in line and notices are left: %v", n, w.All())
				}
				w.Available("k", c)
				w.CloseClean(a, b, c)
			})
		}
	}
}

// What was noted under a claim goes with it when the key is found to be gone.
func TestLostKeyLeavesNoNote(t *testing.T) {
	t.Parallel()
	for _, with := range []string{"acquired with it", "noted later"} {
		for _, how := range []string{"released", "found by renewal", "released in the background", "all released in the background"} {
			virtualCase(t, with+", "+how, func(t *testing.T, w *world) {
				ctx := context.Background()
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				other := w.peer()
				var cl *etcdclaims.Claim
				if with == "noted later" {
					cl = tryClaim(t, c, "k")
					if err := cl.Note(ctx, []byte("n")); err != nil {
						t.Fatal(err)
					}
				} else {
					cl = tryClaim(t, c, "k", etcdclaims.Note([]byte("n")))
				}
				w.Server.Delete(t, w.Own("k"))
				if how == "released" {
					if err := cl.Release(ctx); !errors.Is(err, etcdclaims.ErrLost) {
						t.Errorf("releasing what was lost: %v", err)
					}
				}
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				host.Inject(claimtest.Fault{On: steps.Free, LoseRequest: true})
				switch how {
				case "released in the background":
					wantIs(t, cl.Release(short), etcdclaims.ErrUnknown)
				case "all released in the background":
					_, err := c.ReleaseAll(short)
					wantIs(t, err, etcdclaims.ErrUnknown)
				}
				time.Sleep(6 * sec)
				if v := w.get("note/k"); v != "" {
					t.Errorf("left: a note, %s", v)
				}
				w.Available("k", other)
				w.CloseClean(c, other)
			})
		}
	}
}

// A waiter that took the key itself is not handed it once more, when it has lost
// it and does not know yet.
func TestNoHandOverToWhoTookTheKey(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]etcdclaims.AcquireOption{
		"could be handed it": nil,
		"serves itself":      {etcdclaims.Note([]byte("n"))},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			ctx := context.Background()
			a, b, other := w.peer(), w.peer(), w.peer()
			tryClaim(t, a, "k")
			done := acquiring(ctx, b, "k", opts...)
			time.Sleep(sec)
			w.Server.Delete(t, w.Own("k"))
			cl := w.within(sec, done)
			w.Server.Delete(t, w.Own("k"))
			release(t, tryClaim(t, other, "k"))
			if v := w.get("own/k"); v != "" {
				t.Errorf("handed over: %s", v)
			}
			time.Sleep(6 * sec)
			lossOf(t, cl.Err(), etcdclaims.ReasonDeleted)
			w.Available("k", other)
			w.CloseClean(a, b, other)
		})
	}
}

// refuseWatches ends the watches of the host, and refuses new ones until end is
// called.
func refuseWatches(host *claimtest.Host, reason error) (end func()) {
	refused := host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, Err: reason})
	host.Break()
	return refused.Remove
}

var refusals = map[string]error{
	"no leader":   rpctypes.ErrGRPCNoLeader,
	"unavailable": status.Error(codes.Unavailable, "injected"),
	"internal":    status.Error(codes.Internal, "injected"),
}

// An etcd that refuses watches for a while does not end an Acquire.
func TestAcquireWhileWatchesAreRefused(t *testing.T) {
	t.Parallel()
	for name, reason := range refusals {
		for _, free := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("%s, free %v", name, free), func(t *testing.T, w *world) {
				ctx := context.Background()
				a := w.peer()
				b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				w.Joined(b, "k")
				var held *etcdclaims.Claim
				if !free {
					held = tryClaim(t, a, "k")
				}
				time.AfterFunc(2*sec, refuseWatches(host, reason))
				done := acquiring(ctx, b, "k")
				if !free {
					time.Sleep(4 * sec)
					if n := w.places(); n != 1 {
						t.Errorf("%d places in line 2 s after watches began, want 1", n)
					}
					release(t, held)
				}
				w.Ours(w.within(4*sec, done))
				w.CloseClean(a, b)
			})
		}
	}
}

// Those in line stay in it while watches break and are refused, and get the key
// in order.
func TestWaitWhileWatchesAreRefused(t *testing.T) {
	t.Parallel()
	for name, reason := range refusals {
		for _, released := range []time.Duration{2 * sec, 7 * sec} {
			for _, opts := range [][]etcdclaims.AcquireOption{nil, {etcdclaims.Note([]byte("n"))}} {
				virtualCase(t, fmt.Sprintf("%s, released after %v, note %v", name, released, opts != nil), func(t *testing.T, w *world) {
					ctx := context.Background()
					a := w.peer()
					held := tryClaim(t, a, "k")
					clients := []*etcdclaims.Client{a}
					var hosts []*claimtest.Host
					var order []int
					var fences []int64
					var mu sync.Mutex
					var wg sync.WaitGroup
					for i := range 3 {
						c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
						clients, hosts = append(clients, c), append(hosts, host)
						wg.Go(func() {
							cl, err := c.Acquire(ctx, "k", opts...)
							if err != nil {
								t.Errorf("waiter %d: %v", i, err)
								return
							}
							mu.Lock()
							order, fences = append(order, i), append(fences, cl.Fence())
							mu.Unlock()
							w.Ours(cl)
							time.Sleep(100 * time.Millisecond)
							release(t, cl)
						})
						time.Sleep(sec)
					}
					if n := w.places(); n != 3 {
						w.Fatalf("%d places in line, want 3", n)
					}
					for _, host := range hosts {
						time.AfterFunc(5*sec, refuseWatches(host, reason))
					}
					begin := time.Now()
					time.Sleep(released)
					if n := w.places(); n != 3 {
						t.Errorf("%d places in line while watches are refused, want 3", n)
					}
					release(t, held)
					wg.Wait()
					if d := time.Since(begin); d > 9*sec {
						t.Errorf("all served after %v", d)
					}
					if fmt.Sprint(order) != "[0 1 2]" || len(fences) == 3 && (fences[0] >= fences[1] || fences[1] >= fences[2]) {
						t.Errorf("served in the order %v with fences %v", order, fences)
					}
					w.CloseClean(clients...)
				})
			}
		}
	}
}

// MinHold counts from when the key was got, not from when it was asked for.
func TestMinHoldCountsFromTheGrant(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]etcdclaims.AcquireOption{
		"handed over": nil,
		"served":      {etcdclaims.Note([]byte("n"))},
		"manual":      {etcdclaims.Manual()},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			ctx := context.Background()
			a, b := w.peer(), w.peer()
			held := tryClaim(t, a, "k")
			done := acquiring(ctx, b, "k", append(opts, etcdclaims.MinHold(time.Minute))...)
			time.Sleep(2 * time.Minute)
			begin := time.Now()
			release(t, held)
			cl := w.within(sec, done)
			time.Sleep(time.Until(begin.Add(10 * sec)))
			release(t, cl)
			if i, err := a.Lookup(ctx, "k"); err != nil || i.Kind != "resting" {
				t.Errorf("after the release: %+v, %v", i, err)
			}
			time.Sleep(time.Until(begin.Add(60*sec - 10*time.Millisecond)))
			if _, err := a.TryAcquire(ctx, "k"); !errors.Is(err, etcdclaims.ErrHeld) {
				t.Errorf("before MinHold: %v", err)
			}
			time.Sleep(2500 * time.Millisecond)
			w.Available("k", a)
			w.CloseClean(a, b)
		})
	}
}

// A failure that was recorded, of which the reply was lost and from which
// another went on: nobody can say that nothing was carried out.
func TestFailThatAnotherWentOnFrom(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.OK, codes.Unavailable} {
		virtualCase(t, code.String(), func(t *testing.T, w *world) {
			ctx := context.Background()
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			b := w.peer()
			wk := tryBegin(t, a, "k")
			host.Inject(claimtest.Fault{On: claimtest.Ending, DelayReply: 2 * sec, LoseReply: true, Code: code})
			failed := make(chan error, 1)
			go func() {
				failed <- failing(ctx, wk, etcdclaims.RetryAfter(errors.New("oops"), 0), clientv3.OpPut("/effect", "x"))
			}()
			time.Sleep(sec)
			next, err := works(b).TryBegin(ctx, "k")
			if err != nil || next.Attempt() != 2 {
				w.Fatalf("the next attempt: %v, %v", next, err)
			}
			if err := <-failed; !errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("failing: %v, want ErrUnknown and not ErrLost", err)
			}
			time.Sleep(5 * sec)
			w.Ours(next.Claim)
			if got, err := w.Raw.Get(ctx, "/effect"); err != nil || len(got.Kvs) != 1 || got.Kvs[0].Version != 1 {
				t.Errorf("the effect: %v, %v", got, err)
			}
			if err := next.Complete(ctx); err != nil {
				t.Error(err)
			}
			w.CloseClean(a, b)
		})
	}
}

// Who supersedes a claim of its own that is gone from etcd already gets the key.
func TestSupersedeWhatIsGone(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"Acquire", "TryAcquire"} {
		for _, first := range []string{"free", "manual", "line"} {
			virtualCase(t, fmt.Sprintf("%s, %s", call, first), func(t *testing.T, w *world) {
				ctx, cancel := context.WithTimeout(context.Background(), 20*sec)
				defer cancel()
				c, other := w.peer(), w.peer()
				var old *etcdclaims.Claim
				switch first {
				case "line":
					held := tryClaim(t, other, "k")
					done := acquiring(ctx, c, "k")
					time.Sleep(sec)
					release(t, held)
					old = w.within(sec, done)
				case "manual":
					old = tryClaim(t, c, "k", etcdclaims.Manual())
				default:
					old = tryClaim(t, c, "k")
				}
				w.Server.Delete(t, w.Own("k"))
				begin := time.Now()
				var cl *etcdclaims.Claim
				var err error
				if call == "Acquire" {
					cl, err = c.Acquire(ctx, "k", etcdclaims.Supersede())
				} else {
					cl, err = c.TryAcquire(ctx, "k", etcdclaims.Supersede())
				}
				if err != nil {
					w.Fatalf("after %v: %v; etcd has %v", time.Since(begin), err, w.All())
				}
				t.Logf("got it after %v", time.Since(begin))
				if d := time.Since(begin); d > 6*sec {
					t.Errorf("got it after %v", d)
				}
				if cl.Fence() <= old.Fence() {
					t.Errorf("fences %d, %d", old.Fence(), cl.Fence())
				}
				time.Sleep(20 * sec)
				if old.Check() == nil {
					t.Error("the old claim is held by its own account")
				}
				w.Ours(cl)
				release(t, cl)
				w.Available("k", other)
				w.CloseClean(c, other)
			})
		}
	}
}

// Whoever supersedes under a condition that does not hold, or after its claim is
// another's, hears of it at once.
func TestSupersedeIsRefused(t *testing.T) {
	t.Parallel()
	for _, why := range []string{"condition", "another has the key", "the epoch is raised"} {
		for _, manual := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("%s, manual %v", why, manual), func(t *testing.T, w *world) {
				ctx := context.Background()
				c, other := w.peer(), w.peer()
				var first []etcdclaims.AcquireOption
				if manual {
					first = append(first, etcdclaims.Manual())
				}
				old := tryClaim(t, c, "k", first...)
				opts := []etcdclaims.AcquireOption{etcdclaims.Supersede()}
				want := etcdclaims.ErrHeld
				switch why {
				case "condition":
					opts = append(opts, etcdclaims.If(clientv3.Compare(clientv3.CreateRevision("/nothing"), ">", 0)))
					want = etcdclaims.ErrRefused
				case "another has the key":
					w.Server.Delete(t, w.Own("k"))
					tryClaim(t, other, "k")
				case "the epoch is raised":
					w.Server.RaiseEpoch(t, w.Prefix)
				}
				begin := time.Now()
				_, err := c.TryAcquire(ctx, "k", opts...)
				if !errors.Is(err, want) || time.Since(begin) > sec {
					t.Errorf("got %v after %v, want %v", err, time.Since(begin), want)
				}
				if kept := old.Check() == nil; kept != (why == "condition") {
					t.Errorf("the old claim: %v", old.Check())
				}
			})
		}
	}
}

// The lease of a rest can be over before the key is on it.
func TestRestLongerInComingThanItsLease(t *testing.T) {
	t.Parallel()
	for _, rest := range []time.Duration{500 * time.Millisecond, sec, 2 * sec} {
		for _, dropped := range []bool{true, false} {
			virtualCase(t, fmt.Sprintf("rest %v, dropped %v", rest, dropped), func(t *testing.T, w *world) {
				ctx := context.Background()
				c, host := w.client(etcdclaims.Config{TTL: 30 * sec}) // requests end after 5 s
				other := w.peer()
				cl := tryClaim(t, c, "k", etcdclaims.MinHold(3*sec))
				time.Sleep(3*sec - rest)
				r := host.Inject(claimtest.Fault{On: steps.Rehome, LoseRequest: dropped, LoseReply: !dropped})
				begin := time.Now()
				if err := cl.Release(ctx); err != nil {
					t.Errorf("releasing: %v", err)
				}
				if d := time.Since(begin); d < 4*sec || d > 8*sec {
					t.Errorf("it took %v", d)
				}
				if n := r.Hits(); n != 1 {
					t.Errorf("the fault was met %d times", n)
				}
				if err := cl.Err(); !errors.Is(err, etcdclaims.ErrReleased) {
					t.Errorf("the claim ended with %v", err)
				}
				time.Sleep(5 * sec)
				w.Available("k", other)
				w.CloseClean(c, other)
				time.Sleep(5 * sec)
				w.NoLeases()
			})
		}
	}
}

// MaxHold that comes while work is being ended ends the claim if that fails.
func TestMaxHoldMeetsRefusedEnding(t *testing.T) {
	t.Parallel()
	bad := []clientv3.Op{clientv3.OpPut("/x", "1"), clientv3.OpPut("/x", "2")} // etcd refuses a key put twice
	for _, delay := range []time.Duration{0, 2 * sec} {
		virtualCase(t, delay.String(), func(t *testing.T, w *world) {
			ctx := context.Background()
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			other := w.peer()
			begin := time.Now()
			wk := tryBegin(t, c, "k", etcdclaims.MaxHold(10*sec))
			time.Sleep(9 * sec)
			host.Inject(claimtest.Fault{On: claimtest.Ending, DelayRequest: delay})
			err := wk.Complete(ctx, bad...)
			if err == nil || errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("completing: %v, want a refusal", err)
			}
			time.Sleep(time.Until(begin.Add(11*sec + 100*time.Millisecond)))
			select {
			case <-wk.Done():
			default:
				t.Error("held past MaxHold")
			}
			lossOf(t, wk.Check(), etcdclaims.ReasonMaxHold)
			if n := c.Stats().Lost[etcdclaims.ReasonMaxHold]; n != 1 {
				t.Errorf("%d lost by MaxHold", n)
			}
			time.Sleep(20 * sec)
			next, err := works(other).TryBegin(ctx, "k")
			if err != nil {
				w.Fatalf("beginning again: %v", err)
			}
			if err := next.Complete(ctx); err != nil {
				t.Error(err)
			}
			w.CloseClean(c, other)
		})
	}
}

// A lock whose reply was lost is the owner's, once, and for all of its time.
func TestLossyLock(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{10 * sec, 60 * sec} {
		t.Run(ttl.String(), func(t *testing.T) {
			t.Parallel()
			lossy(t, steps.Take, func(t *testing.T, l *loss) {
				ctx := context.Background()
				l.strike()
				hold := make(chan struct{})
				l.host.Inject(claimtest.Fault{On: claimtest.Revoke, Times: -1, Hold: hold})
				time.AfterFunc(8*sec, func() { close(hold) })
				fence, ok, err := locks.New(l.c).TryAcquire(ctx, "k", "me", ttl)
				if err != nil || !ok {
					t.Errorf("locking: %v, %v", ok, err)
					return
				}
				locked := time.Now()
				resp, err := l.Raw.Get(ctx, l.Own("k"))
				if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != fence {
					t.Errorf("fence %d, etcd has %v, %v", fence, resp, err)
				}
				for time.Since(locked) < ttl-sec {
					time.Sleep(sec / 2)
					if owner, ok, err := locks.New(l.other).Owner(ctx, "k"); !ok || owner != "me" || err != nil {
						t.Fatalf("%v later: owner %q, %v, %v", time.Since(locked), owner, ok, err)
					}
					if _, ok, err := locks.New(l.other).TryAcquire(ctx, "k", "you", ttl); ok || err != nil {
						t.Fatalf("%v later: another got %v, %v", time.Since(locked), ok, err)
					}
				}
				time.Sleep(3 * sec)
				l.Available("k", l.other)
				time.Sleep(ttl)
			})
		})
	}
}

// Requests that hang keep none of other keys waiting for long.
func TestHungRoundTripsHoldUpNobody(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, host := w.client(etcdclaims.Config{TTL: 30 * sec}) // requests end after 5 s
		tryClaim(t, c, "warm")
		r := host.Inject(claimtest.Fault{On: steps.Take, Times: 2, LoseRequest: true})
		var hung, wg sync.WaitGroup
		for i := range 2 {
			hung.Go(func() {
				begin := time.Now()
				if _, err := c.TryAcquire(ctx, fmt.Sprintf("hung%d", i)); err != nil {
					t.Errorf("what hung: %v", err)
				}
				if d := time.Since(begin); d < 4*sec {
					t.Errorf("hung for %v only", d)
				}
			})
		}
		synctest.Wait()
		if n := r.Hits(); n != 2 {
			w.Fatalf("%d hang", n)
		}
		for i := range 60 {
			wg.Go(func() {
				begin := time.Now()
				cl, err := c.TryAcquire(ctx, fmt.Sprintf("k%d", i))
				if err != nil {
					t.Error(err)
					return
				}
				release(t, cl)
				if d := time.Since(begin); d > sec {
					t.Errorf("another key took %v", d)
				}
			})
			time.Sleep(20 * time.Millisecond)
		}
		wg.Wait()
		hung.Wait()
		w.CloseClean(c)
	})
}

// A forced release is of who holds the key when it is asked for, and not of who
// comes next.
func TestForceReleaseMeetsSuccessor(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.OK, codes.Unavailable} {
		for _, waiting := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("%v, successor in line %v", code, waiting), func(t *testing.T, w *world) {
				ctx := context.Background()
				a, b := w.peer(), w.peer()
				operator, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				held := tryClaim(t, a, "k")
				var next <-chan claimed
				if waiting {
					next = acquiring(ctx, b, "k")
					time.Sleep(sec)
				}
				host.Inject(claimtest.Fault{On: steps.Notify, DelayReply: 2 * sec, LoseReply: true, Code: code})
				forced := make(chan error, 1)
				go func() { forced <- admin.ForceRelease(ctx, operator, "k", "test") }()
				time.Sleep(sec)
				if !waiting {
					next = acquiring(ctx, b, "k")
				}
				cl := w.within(sec, next)
				if err := <-forced; err != nil {
					t.Errorf("forcing: %v", err)
				}
				lossOf(t, held.Check(), etcdclaims.ReasonDeleted)
				w.owned(cl, a)
				w.CloseClean(a, b, operator)
			})
		}
	}
}

// Who gives up waiting for a Manual claim is gone at once, whatever its renewal
// does.
func TestManualWaitIsCancelledWhileRenewing(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, _ := w.client(etcdclaims.Config{TTL: 30 * sec})
		b, host := w.client(etcdclaims.Config{TTL: 30 * sec})
		held := tryClaim(t, a, "k")
		ctx, cancel := context.WithCancel(context.Background())
		done := acquiring(ctx, b, "k", etcdclaims.Manual())
		time.Sleep(sec)
		r := host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, LoseRequest: true})
		time.Sleep(10 * sec)
		if r.Hits() == 0 {
			w.Fatal("no renewal")
		}
		begin := time.Now()
		cancel()
		got := <-done
		if d := got.at.Sub(begin); d > 10*time.Millisecond {
			t.Errorf("returned after %v", d)
		}
		if !errors.Is(got.err, context.Canceled) {
			t.Errorf("got %v", got.err)
		}
		host.RemoveFaults()
		time.Sleep(sec)
		if n := w.places(); n != 0 {
			t.Errorf("%d places in line are left", n)
		}
		if n := b.Stats().Sessions; n != 0 {
			t.Errorf("%d sessions are left", n)
		}
		w.Ours(held)
		w.CloseClean(a, b)
	})
}

// Keys that are claimed together need a lease with room for all of them.
func TestTryAcquireAllWithoutRoom(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, _ := w.client(etcdclaims.Config{TTL: time.Hour})
		keys := numbered("k%05d", 8190)
		many, errs := c.TryAcquireEach(ctx, keys)
		if err := errors.Join(errs...); err != nil {
			w.Fatal(err)
		}
		if n := c.Stats().Sessions; n != 1 {
			w.Fatalf("%d sessions for %d claims", n, len(many))
		}
		for range 10 {
			begin := time.Now()
			all, err := c.TryAcquireAll(ctx, []string{"a", "b", "c", "d", "e"})
			if err != nil {
				w.Fatalf("after %v: %v", time.Since(begin), err)
			}
			if d := time.Since(begin); d > sec {
				t.Errorf("it took %v", d)
			}
			if w.Server.Lease(t, w.Own("a")) == w.Server.Lease(t, w.Own("k00000")) {
				t.Error("it found room where there is none")
			}
			for _, cl := range all {
				w.Ours(cl)
			}
			if n := c.Stats().Sessions; n != 2 {
				t.Errorf("%d sessions", n)
			}
			for _, cl := range all {
				release(t, cl)
			}
		}
		var wg sync.WaitGroup
		few := make(chan struct{}, 200)
		for _, cl := range many {
			few <- struct{}{}
			wg.Go(func() {
				defer func() { <-few }()
				release(t, cl)
			})
		}
		wg.Wait()
		time.Sleep(sec)
		if s := c.Stats(); s.Sessions > 1 || s.Held != 0 {
			t.Errorf("%d sessions and %d claims are left", s.Sessions, s.Held)
		}
		w.CloseClean(c)
		w.NoLeases()
	})
}
