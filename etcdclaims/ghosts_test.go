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
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/clock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// claimed is what became of an Acquire on a goroutine of its own.
type claimed struct {
	cl  *etcdclaims.Claim
	err error
	at  time.Time
}

func acquiring(ctx context.Context, c *etcdclaims.Client, key string, opts ...etcdclaims.AcquireOption) <-chan claimed {
	done := make(chan claimed, 1)
	go func() {
		cl, err := c.Acquire(ctx, key, opts...)
		done <- claimed{cl, err, time.Now()}
	}()
	return done
}

// within returns what became of an Acquire, which it may take so long for.
func (w *world) within(d time.Duration, done <-chan claimed) *etcdclaims.Claim {
	w.Helper()
	select {
	case r := <-done:
		if r.err != nil {
			w.Fatalf("acquiring: %v; etcd has %v", r.err, w.all())
		}
		return r.cl
	case <-time.After(d):
		w.Fatalf("not acquired within %v; etcd has %v", d, w.all())
		return nil
	}
}

// ours checks that the claim is what etcd has.
func (w *world) ours(cl *etcdclaims.Claim) {
	w.Helper()
	resp, err := w.raw.Get(context.Background(), w.prefix+"own/"+cl.Key())
	if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != cl.Fence()&(1<<47-1) {
		w.Errorf("fence %d: etcd has %v, %v", cl.Fence(), resp, err)
	}
	if err := cl.Check(); err != nil {
		w.Error(err)
	}
}

// A release of a key that others wait for, which does not come through for as
// long as its caller waits, is carried out in the background: no claim that
// nobody has stays on the living lease.
func TestGhostAfterTimedOutRelease(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*world, *etcdclaims.Client) func(){
		"Release": func(w *world, c *etcdclaims.Client) func() {
			held := mustTry(w, c, "k")
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
		for _, lost := range []string{"release", "handover"} {
			for _, change := range []string{"nothing", "the first leaves", "the epoch is raised", "the first leaves, the epoch is raised"} {
				for _, opts := range [][]etcdclaims.AcquireOption{nil, {etcdclaims.Note([]byte("n"))}} {
					if opts != nil && lost == "handover" && !strings.Contains(change, "leaves") {
						continue // nobody to hand it over to
					}
					t.Run(fmt.Sprintf("%s, %s lost, %s, note %v", name, lost, change, opts != nil), func(t *testing.T) {
						t.Parallel()
						virtually(t, func(w *world) {
							a, f := w.client(etcdclaims.Config{TTL: 15 * sec})
							b, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
							c, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
							end := hold(w, a)
							lease := w.leaseOf("own/k")
							var first <-chan claimed
							bctx, leave := context.WithCancel(context.Background())
							defer leave()
							if strings.Contains(change, "leaves") {
								first = acquiring(bctx, b, "k")
								time.Sleep(sec)
							}
							second := acquiring(context.Background(), c, "k", opts...)
							time.Sleep(sec)
							f.add(&rule{kind: lost, n: -1, dropped: true})
							end()
							if first != nil {
								leave()
								<-first
							}
							if strings.Contains(change, "epoch") {
								if _, err := w.raw.Put(context.Background(), w.prefix+"epoch", "1"); err != nil {
									w.Fatal(err)
								}
							}
							time.Sleep(100 * time.Millisecond)
							f.clear()
							cl := w.within(5*sec, second)
							w.ours(cl)
							if w.leaseOf("own/k") == lease {
								t.Error("the key is on the lease of who released it")
							}
							if s := a.Stats(); s.Sessions != 1 || s.Held != 0 {
								t.Errorf("who released has %d sessions and %d claims", s.Sessions, s.Held)
							}
							time.Sleep(20 * sec)
							w.ours(cl)
							w.closeClean(a, b, c)
						})
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
	for _, late := range []bool{false, true} {
		for _, note := range []bool{false, true} {
			t.Run(fmt.Sprintf("late %v, note %v", late, note), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
					other, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					warm := mustTry(t, c, "warm")
					r := &rule{kind: "acquire", lost: true}
					if late {
						r = &rule{kind: "acquire", hold: make(chan struct{}), arrived: make(chan struct{})}
					}
					f.add(r)
					// So that the call cannot settle it itself.
					f.add(&rule{kind: "resolve", n: -1, dropped: true})
					ctx, cancel := context.WithTimeout(context.Background(), sec)
					defer cancel()
					var opts []etcdclaims.AcquireOption
					if note {
						opts = append(opts, etcdclaims.Note([]byte("n")))
					}
					keys := []string{"a", "b", "c"}
					_, err := c.TryAcquireAll(ctx, keys, opts...)
					if !errors.Is(err, etcdclaims.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v, want ErrUnknown and DeadlineExceeded", err)
					}
					if late {
						time.Sleep(3 * sec)
						close(r.hold)
						<-r.arrived
					}
					time.Sleep(3 * sec)
					for _, key := range keys {
						for _, k := range []string{"own/" + key, "note/" + key} {
							if v := w.get(k); v != "" {
								t.Errorf("left: %s = %s", k, v)
							}
						}
						w.free(key, other)
					}
					w.ours(warm)
					w.closeClean(c, other)
				})
			})
		}
	}
}

// Whoever comes to share a claim while it is given up has either that claim, for
// as long as it keeps its handle, or none of that fence.
func TestReentrantMeetsRelease(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		ctx := context.Background()
		c, _ := w.client(etcdclaims.Config{TTL: time.Hour})
		var shared atomic.Int64
		standing := func(cl *etcdclaims.Claim, how string) {
			resp, err := w.raw.Get(ctx, w.prefix+"own/k")
			if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != cl.Fence() {
				w.Errorf("%s: a claim with fence %d, etcd has %v, %v", how, cl.Fence(), resp, err)
			}
			if err := cl.Check(); err != nil {
				w.Errorf("%s: %v", how, err)
			}
		}
		for range 1000 {
			first := mustTry(t, c, "k")
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
					resp, err := w.raw.Get(context.Background(), w.prefix+"own/k")
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
		w.closeClean(c)
	})
}

// Who came through the line and lost the key leaves no place behind when it
// releases, MinHold or not.
func TestLostKeyLeavesTheLine(t *testing.T) {
	t.Parallel()
	for _, min := range []time.Duration{0, 10 * sec} {
		for _, how := range []string{"released", "found by renewal", "asked"} {
			t.Run(fmt.Sprintf("MinHold %v, %s", min, how), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					ctx := context.Background()
					a, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					b, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					c, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					held := mustTry(t, a, "k")
					next := acquiring(ctx, b, "k", etcdclaims.MinHold(min))
					time.Sleep(sec)
					if err := held.Release(ctx); err != nil {
						w.Fatal(err)
					}
					cl := w.within(sec, next)
					if n := w.places("k"); n != 1 {
						w.Fatalf("%d places in line, want that of the holder", n)
					}
					if _, err := w.raw.Delete(ctx, w.prefix+"own/k"); err != nil {
						w.Fatal(err)
					}
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
					if n := w.places("k"); n != 0 {
						t.Errorf("%d places in line are left: %v", n, w.all())
					}
					w.free("k", c)
					w.closeClean(a, b, c)
				})
			})
		}
	}
}

// refusal makes an etcd client whose watches can be refused.
type refusal struct {
	mu      sync.Mutex
	err     error               // of new streams; nil: none
	streams map[*refused]func() // open ones
}

type refused struct {
	grpc.ClientStream
	by *refusal
}

// set breaks all watches and refuses new ones with the error, nil for none.
func (r *refusal) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	for s, cut := range r.streams {
		cut()
		delete(r.streams, s)
	}
}

func (r *refusal) reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *refusal) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if !strings.HasSuffix(method, "Watch/Watch") {
		return open(ctx, desc, cc, method, opts...)
	}
	if err := r.reason(); err != nil {
		if nerr := nap(ctx, time.Millisecond); nerr != nil {
			return nil, nerr
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		cancel()
		return nil, err
	}
	rs := &refused{s, r}
	r.mu.Lock()
	r.streams[rs] = cancel
	r.mu.Unlock()
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		delete(r.streams, rs)
		r.mu.Unlock()
	})
	return rs, nil
}

func (s *refused) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if reason := s.by.reason(); err != nil && reason != nil {
		return reason
	}
	return err
}

func (w *world) refusing(cfg etcdclaims.Config) (*etcdclaims.Client, *faults, *refusal) {
	w.Helper()
	f, r := newFaults(), &refusal{streams: map[*refused]func(){}}
	etcd := w.v.ClientVia(w.T, w.v.Dial, grpc.WithChainUnaryInterceptor(f.unary), grpc.WithChainStreamInterceptor(r.stream, f.stream))
	w.Cleanup(clock.Attach(etcd, w.clock()))
	cfg.Prefix = w.prefix
	c := newClient(w.T, etcd, cfg)
	w.Cleanup(func() { f.clear(); f.heal(); r.set(nil) })
	return c, f, r
}

var refusals = map[string]error{
	"no leader":   status.Error(codes.Unavailable, "etcdserver: no leader"),
	"unavailable": status.Error(codes.Unavailable, "injected"),
	"internal":    status.Error(codes.Internal, "injected"),
}

// An etcd that refuses watches for a while does not end an Acquire.
func TestAcquireWhileWatchesAreRefused(t *testing.T) {
	t.Parallel()
	for name, reason := range refusals {
		for _, free := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, free %v", name, free), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					ctx := context.Background()
					a, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					b, _, r := w.refusing(etcdclaims.Config{TTL: 15 * sec})
					w.joined(b, "k")
					var held *etcdclaims.Claim
					if !free {
						held = mustTry(t, a, "k")
					}
					r.set(reason)
					time.AfterFunc(2*sec, func() { r.set(nil) })
					done := acquiring(ctx, b, "k")
					if !free {
						time.Sleep(4 * sec)
						if n := w.places("k"); n != 1 {
							t.Errorf("%d places in line 2 s after watches began, want 1", n)
						}
						if err := held.Release(ctx); err != nil {
							t.Error(err)
						}
					}
					w.ours(w.within(4*sec, done))
					w.closeClean(a, b)
				})
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
				t.Run(fmt.Sprintf("%s, released after %v, note %v", name, released, opts != nil), func(t *testing.T) {
					t.Parallel()
					virtually(t, func(w *world) {
						ctx := context.Background()
						a, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
						held := mustTry(t, a, "k")
						clients := []*etcdclaims.Client{a}
						var broken []*refusal
						var order []int
						var fences []int64
						var mu sync.Mutex
						var wg sync.WaitGroup
						for i := range 3 {
							c, _, r := w.refusing(etcdclaims.Config{TTL: 15 * sec})
							clients, broken = append(clients, c), append(broken, r)
							wg.Go(func() {
								cl, err := c.Acquire(ctx, "k", opts...)
								if err != nil {
									t.Errorf("waiter %d: %v", i, err)
									return
								}
								mu.Lock()
								order, fences = append(order, i), append(fences, cl.Fence())
								mu.Unlock()
								w.ours(cl)
								time.Sleep(100 * time.Millisecond)
								if err := cl.Release(ctx); err != nil {
									t.Error(err)
								}
							})
							time.Sleep(sec)
						}
						if n := w.places("k"); n != 3 {
							w.Fatalf("%d places in line, want 3", n)
						}
						for _, r := range broken {
							r.set(reason)
						}
						time.AfterFunc(5*sec, func() {
							for _, r := range broken {
								r.set(nil)
							}
						})
						begin := time.Now()
						time.Sleep(released)
						if n := w.places("k"); n != 3 {
							t.Errorf("%d places in line while watches are refused, want 3", n)
						}
						if err := held.Release(ctx); err != nil {
							t.Error(err)
						}
						wg.Wait()
						if d := time.Since(begin); d > 9*sec {
							t.Errorf("all served after %v", d)
						}
						if fmt.Sprint(order) != "[0 1 2]" || len(fences) == 3 && (fences[0] >= fences[1] || fences[1] >= fences[2]) {
							t.Errorf("served in the order %v with fences %v", order, fences)
						}
						w.closeClean(clients...)
					})
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				ctx := context.Background()
				a, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
				b, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
				held := mustTry(t, a, "k")
				done := acquiring(ctx, b, "k", append(opts, etcdclaims.MinHold(time.Minute))...)
				time.Sleep(2 * time.Minute)
				begin := time.Now()
				if err := held.Release(ctx); err != nil {
					w.Fatal(err)
				}
				cl := w.within(sec, done)
				time.Sleep(time.Until(begin.Add(10 * sec)))
				if err := cl.Release(ctx); err != nil {
					t.Error(err)
				}
				if i, err := a.Lookup(ctx, "k"); err != nil || i.Kind != "resting" {
					t.Errorf("after the release: %+v, %v", i, err)
				}
				time.Sleep(time.Until(begin.Add(60*sec - 10*time.Millisecond)))
				if _, err := a.TryAcquire(ctx, "k"); !errors.Is(err, etcdclaims.ErrHeld) {
					t.Errorf("before MinHold: %v", err)
				}
				time.Sleep(2500 * time.Millisecond)
				w.free("k", a)
				w.closeClean(a, b)
			})
		})
	}
}

// A failure that was recorded, of which the reply was lost and from which
// another went on: nobody can say that nothing was carried out.
func TestFailThatAnotherWentOnFrom(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.OK, codes.Unavailable} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				ctx := context.Background()
				a, f := w.client(etcdclaims.Config{TTL: 15 * sec})
				b, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
				wk, err := a.TryBegin(ctx, "k")
				if err != nil {
					w.Fatal(err)
				}
				f.add(&rule{kind: "ending", after: 2 * sec, lost: true, code: code})
				failed := make(chan error, 1)
				go func() {
					failed <- wk.Fail(ctx, etcdclaims.RetryAfter(errors.New("oops"), 0), clientv3.OpPut("/effect", "x"))
				}()
				time.Sleep(sec)
				next, err := b.TryBegin(ctx, "k")
				if err != nil || next.Attempt() != 2 {
					w.Fatalf("the next attempt: %v, %v", next, err)
				}
				if err := <-failed; !errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, etcdclaims.ErrLost) {
					t.Errorf("failing: %v, want ErrUnknown and not ErrLost", err)
				}
				time.Sleep(5 * sec)
				w.ours(next.Claim)
				if got, err := w.raw.Get(ctx, "/effect"); err != nil || len(got.Kvs) != 1 || got.Kvs[0].Version != 1 {
					t.Errorf("the effect: %v, %v", got, err)
				}
				if err := next.Complete(ctx); err != nil {
					t.Error(err)
				}
				w.closeClean(a, b)
			})
		})
	}
}

// Who supersedes a claim of its own that is gone from etcd already gets the key.
func TestSupersedeWhatIsGone(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"Acquire", "TryAcquire"} {
		for _, first := range []string{"free", "manual", "line"} {
			t.Run(fmt.Sprintf("%s, %s", call, first), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					ctx, cancel := context.WithTimeout(context.Background(), 20*sec)
					defer cancel()
					c, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					other, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					var old *etcdclaims.Claim
					switch first {
					case "line":
						held := mustTry(t, other, "k")
						done := acquiring(ctx, c, "k")
						time.Sleep(sec)
						if err := held.Release(ctx); err != nil {
							w.Fatal(err)
						}
						old = w.within(sec, done)
					case "manual":
						old = mustTry(t, c, "k", etcdclaims.Manual())
					default:
						old = mustTry(t, c, "k")
					}
					if _, err := w.raw.Delete(ctx, w.prefix+"own/k"); err != nil {
						w.Fatal(err)
					}
					begin := time.Now()
					var cl *etcdclaims.Claim
					var err error
					if call == "Acquire" {
						cl, err = c.Acquire(ctx, "k", etcdclaims.Supersede())
					} else {
						cl, err = c.TryAcquire(ctx, "k", etcdclaims.Supersede())
					}
					if err != nil {
						w.Fatalf("after %v: %v; etcd has %v", time.Since(begin), err, w.all())
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
					w.ours(cl)
					if err := cl.Release(context.Background()); err != nil {
						t.Error(err)
					}
					w.free("k", other)
					w.closeClean(c, other)
				})
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
			t.Run(fmt.Sprintf("%s, manual %v", why, manual), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					ctx := context.Background()
					c, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					other, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					var first []etcdclaims.AcquireOption
					if manual {
						first = append(first, etcdclaims.Manual())
					}
					old := mustTry(t, c, "k", first...)
					opts := []etcdclaims.AcquireOption{etcdclaims.Supersede()}
					want := etcdclaims.ErrHeld
					switch why {
					case "condition":
						opts = append(opts, etcdclaims.If(clientv3.Compare(clientv3.CreateRevision("/nothing"), ">", 0)))
						want = etcdclaims.ErrRefused
					case "another has the key":
						if _, err := w.raw.Delete(ctx, w.prefix+"own/k"); err != nil {
							w.Fatal(err)
						}
						mustTry(t, other, "k")
					case "the epoch is raised":
						if _, err := w.raw.Put(ctx, w.prefix+"epoch", "1"); err != nil {
							w.Fatal(err)
						}
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
			})
		}
	}
}

// The lease of a rest can be over before the key is on it.
func TestRestLongerInComingThanItsLease(t *testing.T) {
	t.Parallel()
	for _, rest := range []time.Duration{500 * time.Millisecond, sec, 2 * sec} {
		for _, dropped := range []bool{true, false} {
			t.Run(fmt.Sprintf("rest %v, dropped %v", rest, dropped), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					ctx := context.Background()
					c, f := w.client(etcdclaims.Config{TTL: 30 * sec}) // requests end after 5 s
					other, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					cl := mustTry(t, c, "k", etcdclaims.MinHold(3*sec))
					time.Sleep(3*sec - rest)
					r := f.add(&rule{kind: "rehome", dropped: dropped, lost: !dropped})
					begin := time.Now()
					if err := cl.Release(ctx); err != nil {
						t.Errorf("releasing: %v", err)
					}
					if d := time.Since(begin); d < 4*sec || d > 8*sec {
						t.Errorf("it took %v", d)
					}
					if n := r.hit.Load(); n != 1 {
						t.Errorf("the fault was met %d times", n)
					}
					if err := cl.Err(); !errors.Is(err, etcdclaims.ErrReleased) {
						t.Errorf("the claim ended with %v", err)
					}
					time.Sleep(5 * sec)
					w.free("k", other)
					w.closeClean(c, other)
					time.Sleep(5 * sec)
					w.noLeases()
				})
			})
		}
	}
}

// MaxHold that comes while work is being ended ends the claim if that fails.
func TestMaxHoldMeetsRefusedEnding(t *testing.T) {
	t.Parallel()
	bad := []clientv3.Op{clientv3.OpPut("/x", "1"), clientv3.OpPut("/x", "2")} // etcd refuses a key put twice
	for _, delay := range []time.Duration{0, 2 * sec} {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				ctx := context.Background()
				c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
				other, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
				begin := time.Now()
				wk, err := c.TryBegin(ctx, "k", etcdclaims.MaxHold(10*sec))
				if err != nil {
					w.Fatal(err)
				}
				time.Sleep(9 * sec)
				f.add(&rule{kind: "ending", before: delay})
				err = wk.Complete(ctx, bad...)
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
				next, err := other.TryBegin(ctx, "k")
				if err != nil {
					w.Fatalf("beginning again: %v", err)
				}
				if err := next.Complete(ctx); err != nil {
					t.Error(err)
				}
				w.closeClean(c, other)
			})
		})
	}
}

// A lock whose reply was lost is the owner's, once, and for all of its time.
func TestLossyLock(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{10 * sec, 60 * sec} {
		t.Run(ttl.String(), func(t *testing.T) {
			t.Parallel()
			lossy(t, "acquire", etcdclaims.Config{}, func(w *world, m mode, c, other *etcdclaims.Client, f *faults, r *rule) {
				ctx := context.Background()
				f.add(r)
				revoked := f.add(&rule{kind: "revoke", n: -1, hold: make(chan struct{})})
				time.AfterFunc(8*sec, func() { close(revoked.hold) })
				fence, ok, err := c.Locks().TryAcquire(ctx, "k", "me", ttl)
				if err != nil || !ok {
					w.Errorf("locking: %v, %v", ok, err)
					return
				}
				locked := time.Now()
				resp, err := w.raw.Get(ctx, w.prefix+"own/k")
				if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != fence {
					w.Errorf("fence %d, etcd has %v, %v", fence, resp, err)
				}
				for time.Since(locked) < ttl-sec {
					time.Sleep(sec / 2)
					if owner, ok, err := other.Locks().Owner(ctx, "k"); !ok || owner != "me" || err != nil {
						w.Fatalf("%v later: owner %q, %v, %v", time.Since(locked), owner, ok, err)
					}
					if _, ok, err := other.Locks().TryAcquire(ctx, "k", "you", ttl); ok || err != nil {
						w.Fatalf("%v later: another got %v, %v", time.Since(locked), ok, err)
					}
				}
				time.Sleep(3 * sec)
				w.free("k", other)
				time.Sleep(ttl)
			})
		})
	}
}

// Requests that hang keep none of other keys waiting for long.
func TestHungRoundTripsHoldUpNobody(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		ctx := context.Background()
		c, f := w.client(etcdclaims.Config{TTL: 30 * sec}) // requests end after 5 s
		mustTry(t, c, "warm")
		r := f.add(&rule{kind: "acquire", n: 2, dropped: true})
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
		if n := r.hit.Load(); n != 2 {
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
				if err := cl.Release(ctx); err != nil {
					t.Error(err)
				}
				if d := time.Since(begin); d > sec {
					t.Errorf("another key took %v", d)
				}
			})
			time.Sleep(20 * time.Millisecond)
		}
		wg.Wait()
		hung.Wait()
		w.closeClean(c)
	})
}

// A forced release is of who holds the key when it is asked for, and not of who
// comes next.
func TestForceReleaseMeetsSuccessor(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.OK, codes.Unavailable} {
		for _, waiting := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, successor in line %v", code, waiting), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					ctx := context.Background()
					a, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					b, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
					operator, f := w.client(etcdclaims.Config{TTL: 15 * sec})
					held := mustTry(t, a, "k")
					var next <-chan claimed
					if waiting {
						next = acquiring(ctx, b, "k")
						time.Sleep(sec)
					}
					f.add(&rule{kind: "mail", after: 2 * sec, lost: true, code: code})
					forced := make(chan error, 1)
					go func() { forced <- operator.ForceRelease(ctx, "k", "test") }()
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
					w.closeClean(a, b, operator)
				})
			})
		}
	}
}

// Who gives up waiting for a Manual claim is gone at once, whatever its renewal
// does.
func TestManualWaitIsCancelledWhileRenewing(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		a, _ := w.client(etcdclaims.Config{TTL: 30 * sec})
		b, f := w.client(etcdclaims.Config{TTL: 30 * sec})
		held := mustTry(t, a, "k")
		ctx, cancel := context.WithCancel(context.Background())
		done := acquiring(ctx, b, "k", etcdclaims.Manual())
		time.Sleep(sec)
		r := f.add(&rule{kind: "keepalive", n: -1, dropped: true})
		time.Sleep(10 * sec)
		if r.hit.Load() == 0 {
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
		f.clear()
		time.Sleep(sec)
		if n := w.places("k"); n != 0 {
			t.Errorf("%d places in line are left", n)
		}
		if n := b.Stats().Sessions; n != 0 {
			t.Errorf("%d sessions are left", n)
		}
		w.ours(held)
		w.closeClean(a, b)
	})
}

// Keys that are claimed together need a lease with room for all of them.
func TestTryAcquireAllWithoutRoom(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
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
			if w.leaseOf("own/a") == w.leaseOf("own/k00000") {
				t.Error("it found room where there is none")
			}
			for _, cl := range all {
				w.ours(cl)
			}
			if n := c.Stats().Sessions; n != 2 {
				t.Errorf("%d sessions", n)
			}
			for _, cl := range all {
				if err := cl.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		}
		var wg sync.WaitGroup
		few := make(chan struct{}, 200)
		for _, cl := range many {
			few <- struct{}{}
			wg.Go(func() {
				defer func() { <-few }()
				if err := cl.Release(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		time.Sleep(sec)
		if s := c.Stats(); s.Sessions > 1 || s.Held != 0 {
			t.Errorf("%d sessions and %d claims are left", s.Sessions, s.Held)
		}
		w.closeClean(c)
		w.noLeases()
	})
}
