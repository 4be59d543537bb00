package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// The end of the acquiring context after success is nothing to the claim.
func TestAcquireContextDoesNotGovernTheClaim(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, other := w.peer(), w.peer()
		for name, acquire := range map[string]func(context.Context) (*etcdclaims.Claim, error){
			"try":  func(ctx context.Context) (*etcdclaims.Claim, error) { return c.TryAcquire(ctx, "try") },
			"wait": func(ctx context.Context) (*etcdclaims.Claim, error) { return c.Acquire(ctx, "wait") },
			"manual": func(ctx context.Context) (*etcdclaims.Claim, error) {
				return c.TryAcquire(ctx, "m", etcdclaims.Manual())
			},
			"handed": func(ctx context.Context) (*etcdclaims.Claim, error) {
				held := tryClaim(t, other, "handed")
				time.AfterFunc(sec, func() { _ = held.Release(context.Background()) })
				return c.Acquire(ctx, "handed")
			},
		} {
			ctx, cancel := context.WithCancel(context.Background())
			cl, err := acquire(ctx)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			cancel()
			wait := time.Minute
			if name == "manual" {
				wait = 9 * sec
			}
			time.Sleep(wait)
			if cl.Check() != nil || cl.Context().Err() != nil {
				t.Errorf("%s: %v, %v", name, cl.Check(), cl.Context().Err())
			}
			if _, err := cl.Txn(context.Background()).Commit(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.CloseClean(c, other)
	})
}

// Who gives up waiting is gone at once, and those behind move up.
func TestWaitIsCancelled(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{nil, errors.New("enough")} {
		virtualCase(t, fmt.Sprintf("cause %v", cause), func(t *testing.T, w *world) {
			a, b, c := w.peer(), w.peer(), w.peer()
			held := tryClaim(t, a, "k")
			ctx, cancel := context.WithCancelCause(context.Background())
			gaveUp := acquiring(ctx, b, "k")
			time.Sleep(sec)
			next := acquiring(context.Background(), c, "k")
			time.Sleep(sec)
			if n := w.places(); n != 2 {
				t.Fatalf("%d places in line, want 2", n)
			}
			begin := time.Now()
			cancel(cause)
			got := <-gaveUp
			if d := got.at.Sub(begin); d > time.Millisecond {
				t.Errorf("returned after %v", d)
			}
			if !errors.Is(got.err, context.Canceled) || cause != nil && !errors.Is(got.err, cause) {
				t.Errorf("got %v, want both the cause %v and context.Canceled", got.err, cause)
			}
			time.Sleep(100 * time.Millisecond)
			if n := w.places(); n != 1 {
				t.Errorf("%d places in line 100 ms later, want 1", n)
			}
			release(t, held)
			cl := w.within(100*time.Millisecond, next)
			if cl.Check() != nil || cl.Fence() <= held.Fence() {
				t.Errorf("%v, fences %d, %d", cl.Check(), held.Fence(), cl.Fence())
			}
			w.CloseClean(a, b, c)
			w.NoLeases()
		})
	}
}

// A deadline of the caller's shows too.
func TestWaitTimesOut(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		tryClaim(t, a, "k")
		tryClaim(t, b, "warm")
		for _, cut := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(context.Background(), 2*sec)
			begin := time.Now()
			if cut {
				host.Cut()
			}
			_, err := b.Acquire(ctx, "k")
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 2*sec+time.Millisecond {
				t.Errorf("cut %v: %v after %v", cut, err, time.Since(begin))
			}
			cancel()
		}
		host.Heal()
		time.Sleep(20 * sec)
		if n := w.places(); n != 0 {
			t.Errorf("%d places in line are left", n)
		}
		w.CloseClean(a, b)
	})
}

// A waiter that loses its session loses its place, and takes another at the end of
// the line as soon as it has a new session.
func TestWaitersSessionDies(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"revoked", "cut off"} {
		for _, follows := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("%s, follows %v", how, follows), func(t *testing.T, w *world) {
				a := w.peer()
				b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				holder := a
				if follows {
					holder = b
				}
				held := tryClaim(t, holder, "k")
				warm := tryClaim(t, b, "warm")
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				done := acquiring(ctx, b, "k")
				working := make(chan *work.Work, 1)
				go func() {
					work, err := works(b).Begin(ctx, "k")
					if err != nil {
						t.Errorf("beginning: %v", err)
					}
					working <- work
				}()
				time.Sleep(sec)
				other := w.peer()
				third := acquiring(ctx, other, "k") // behind them, for now
				time.Sleep(sec)
				if how == "revoked" {
					w.Server.Revoke(t, w.Own("warm"))
					time.Sleep(sec)
				} else {
					host.Cut()
					time.Sleep(30 * sec)
				}
				if warm.Check() == nil {
					t.Error("a claim of the dead session stays")
				}
				select {
				case r := <-done:
					t.Fatalf("it waits no more: %v, %v", r.cl, r.err)
				default:
				}
				host.Heal()
				if !follows {
					if err := held.Check(); err != nil {
						t.Errorf("the holder: %v", err)
					}
					time.Sleep(10 * sec)
					if n := w.places(); n != 3 {
						t.Errorf("%d in line, want 3: %v", n, w.All())
					}
					release(t, held)
				}
				first := w.within(sec, third)
				if first.Fence() <= held.Fence() {
					t.Errorf("fence %d after %d", first.Fence(), held.Fence())
				}
				time.Sleep(10 * sec)
				release(t, first)
				var last *etcdclaims.Claim
				for range 2 { // whichever came first
					select {
					case r := <-done:
						noErr(t, r.err)
						last = r.cl
					case work := <-working:
						last = work.Claim
					case <-time.After(10 * sec):
						t.Fatalf("not acquired; etcd has %v", w.All())
					}
					if last.Fence() <= first.Fence() {
						t.Errorf("fence %d after %d", last.Fence(), first.Fence())
					}
					release(t, last)
				}
				w.CloseClean(a, b, other)
			})
		}
	}
}

// A waiter whose context ends while it has no session hears of that, and not that
// it has lost anything.
func TestWaitEndsWithoutASession(t *testing.T) {
	t.Parallel()
	for _, patience := range []time.Duration{13500 * time.Millisecond, 20 * sec, 40 * sec} {
		virtualCase(t, patience.String(), func(t *testing.T, w *world) {
			a := w.peer()
			b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			tryClaim(t, a, "k")
			tryClaim(t, b, "warm")
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			begin, done := time.Now(), acquiring(ctx, b, "k")
			time.Sleep(time.Millisecond)
			host.Cut()
			r := <-done
			if d := r.at.Sub(begin); !errors.Is(r.err, context.DeadlineExceeded) || errors.Is(r.err, etcdclaims.ErrLost) || d > patience+10*time.Millisecond {
				t.Errorf("%v after %v", r.err, d)
			}
			if text := r.err.Error(); !strings.HasPrefix(text, `acquire "k": `) || strings.Contains(text, "\n") {
				t.Errorf("%q", text)
			}
			host.Heal()
			time.Sleep(16 * sec)
			if n := w.places(); n != 0 {
				t.Errorf("%d places in line are left", n)
			}
			w.CloseClean(a, b)
		})
	}
}

// While a Manual claim is waited for the client renews its lease: waiting is its own work.
// So the claim starts with its whole lease, whenever that is relative to a renewal.
func TestWaitManualLongerThanItsLease(t *testing.T) {
	t.Parallel()
	const interval, step = 5 * sec, 250 * time.Millisecond
	for offset := time.Duration(0); offset < interval; offset += step {
		virtualCase(t, offset.String(), func(t *testing.T, w *world) {
			a, b := w.peer(), w.peer()
			held := tryClaim(t, a, "k")
			waits := time.Minute + offset
			time.AfterFunc(waits, func() { _ = held.Release(context.Background()) })
			begin := time.Now()
			cl, err := b.Acquire(context.Background(), "k", etcdclaims.Manual())
			if err != nil {
				t.Fatalf("after %v: %v", time.Since(begin), err)
			}
			if d := time.Since(begin); d < waits {
				t.Errorf("got it after %v", d)
			}
			if r := cl.Remaining(); r < 12800*time.Millisecond {
				t.Errorf("remaining %v at the start", r)
			}
			time.Sleep(14 * sec)
			lossOf(t, cl.Check(), etcdclaims.ReasonExpired)
		})
	}
}

// First come, first served.
func TestWaitInOrder(t *testing.T) {
	t.Parallel()
	for _, mixed := range []bool{false, true} {
		virtualCase(t, fmt.Sprintf("mixed %v", mixed), func(t *testing.T, w *world) {
			var clients []*etcdclaims.Client
			for range 4 {
				c := w.peer()
				clients = append(clients, c)
			}
			held := tryClaim(t, clients[0], "k")
			var mu sync.Mutex
			var order []int
			var fences []int64
			inside := 0
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					var opts []etcdclaims.AcquireOption
					if mixed && i%3 == 0 { // these cannot be handed the key
						opts = append(opts, etcdclaims.Note([]byte("n")))
					}
					cl, err := clients[i%4].Acquire(context.Background(), "k", opts...)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, i)
					fences = append(fences, cl.Fence())
					if inside++; inside != 1 {
						t.Errorf("%d hold it at once", inside)
					}
					mu.Unlock()
					time.Sleep(3 * sec)
					if err := cl.Check(); err != nil {
						t.Error(err)
					}
					mu.Lock()
					inside--
					mu.Unlock()
					release(t, cl)
				})
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
			// Newcomers stand behind. Who came first follows its own client.
			newcomer := w.peer()
			i, err := newcomer.Lookup(context.Background(), "k")
			if err != nil || i.Waiting < 19 || i.Fence != held.Fence() {
				t.Errorf("looking up: %+v, %v", i, err)
			}
			release(t, held)
			wg.Wait()
			if !slices.IsSorted(order) || len(order) != 20 {
				t.Errorf("served in the order %v", order)
			}
			if !slices.IsSorted(fences) || len(slices.Compact(fences)) != 20 {
				t.Errorf("fences %v", fences)
			}
			w.CloseClean(append(clients, newcomer)...)
		})
	}
}

// A key that is free while others wait in line is not for newcomers.
func TestTryAcquireDoesNotJumpTheLine(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		b, hostB := w.client(etcdclaims.Config{TTL: 15 * sec})
		c := w.peer()
		held := tryClaim(t, a, "k")
		// With a note, so that it must come and take the key itself.
		got := acquiring(context.Background(), b, "k", etcdclaims.Note([]byte("n")))
		time.Sleep(sec)
		hostB.Inject(claimtest.Fault{On: steps.Advance, Times: -1, DelayRequest: 2 * sec})
		release(t, held)
		_, err := c.TryAcquire(context.Background(), "k")
		var h *etcdclaims.HeldError
		if !errors.As(err, &h) || h.Info.Held || h.Info.Waiting != 1 || !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("newcomer got %v (%+v)", err, h)
		}
		if all, errs := c.TryAcquireEach(context.Background(), []string{"k"}); all[0] != nil || !errors.Is(errs[0], etcdclaims.ErrHeld) {
			t.Errorf("newcomer in each got %v", errs)
		}
		if _, err := c.TryAcquireAll(context.Background(), []string{"j", "k"}); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("newcomer in all got %v", err)
		}
		w.within(5*sec, got)
		w.CloseClean(a, b, c)
	})
}

// Who dies is skipped: the holder, the first in line, both.
func TestWaitBehindTheDead(t *testing.T) {
	t.Parallel()
	for _, dead := range []string{"holder", "first", "holder and first", "first and second", "first, then released at once", "holder that waited before"} {
		virtualCase(t, dead, func(t *testing.T, w *world) {
			ctx := context.Background()
			var clients []*etcdclaims.Client
			var hosts []*claimtest.Host
			for range 4 {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				clients, hosts = append(clients, c), append(hosts, host)
			}
			held := tryClaim(t, clients[0], "k")
			if dead == "holder that waited before" {
				first := tryClaim(t, clients[3], "k2")
				go func() { time.Sleep(sec); _ = first.Release(ctx) }()
				cl, err := clients[0].Acquire(ctx, "k2")
				if err != nil {
					t.Fatal(err)
				}
				held = cl
			}
			key := held.Key()
			type won struct {
				n  int
				cl *etcdclaims.Claim
				at time.Time
			}
			wins := make(chan won, 4)
			for n := 1; n <= 3; n++ {
				go func() {
					cl, err := clients[n].Acquire(ctx, key)
					if err == nil {
						wins <- won{n, cl, time.Now()}
					} else if !errors.Is(err, etcdclaims.ErrLost) && !errors.Is(err, etcdclaims.ErrClosed) {
						t.Errorf("waiter %d: %v", n, err)
					}
				}()
				time.Sleep(100 * time.Millisecond)
			}
			want, within := 1, 16*sec
			begin := time.Now()
			switch dead {
			case "holder", "holder that waited before":
				hosts[0].Cut()
			case "first":
				hosts[1].Cut()
				time.Sleep(20 * sec)
				begin, want, within = time.Now(), 2, sec
				_ = held.Release(ctx)
			case "holder and first":
				hosts[0].Cut()
				hosts[1].Cut()
				want = 2
			case "first and second":
				hosts[1].Cut()
				hosts[2].Cut()
				time.Sleep(20 * sec)
				begin, want, within = time.Now(), 3, sec
				_ = held.Release(ctx)
			case "first, then released at once":
				hosts[1].Cut()
				time.Sleep(sec)
				want = 2 // the first is handed it, in vain, until its lease ends
				_ = held.Release(ctx)
			}
			win := <-wins
			if win.n != want {
				t.Fatalf("waiter %d got it, want %d", win.n, want)
			}
			if d := win.at.Sub(begin); d > within {
				t.Errorf("after %v, want at most %v", d, within)
			}
			if win.cl.Fence() <= held.Fence() || win.cl.Check() != nil {
				t.Errorf("fences %d, %d; %v", held.Fence(), win.cl.Fence(), win.cl.Check())
			}
			time.Sleep(30 * sec)
			if err := win.cl.Check(); err != nil {
				t.Errorf("30 s later: %v", err)
			}
			for _, host := range hosts {
				host.Heal()
			}
			w.CloseClean(clients...)
		})
	}
}

// A waiter that was handed the key while cut off does not believe it late.
func TestHandedOverToOneCutOff(t *testing.T) {
	t.Parallel()
	for _, outage := range []time.Duration{2 * sec, 9 * sec, 12 * sec, 14 * sec, 20 * sec} {
		virtualCase(t, outage.String(), func(t *testing.T, w *world) {
			ctx := context.Background()
			a := w.peer()
			b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			held := tryClaim(t, a, "k")
			done := acquiring(ctx, b, "k")
			time.Sleep(6 * sec) // the renewal was a second ago
			host.Cut()
			_ = held.Release(ctx)
			time.AfterFunc(outage, host.Heal)
			r := <-done
			if r.err != nil {
				t.Fatal(r.err)
			} else {
				if r.cl.Check() != nil || r.cl.Context().Err() != nil {
					t.Errorf("got a claim that is over: %v, %v", r.cl.Check(), r.cl.Context().Err())
				}
				if ok, err := r.cl.Owns(ctx); !ok || err != nil {
					t.Errorf("got a claim that is not its own: %v, %v", ok, err)
				}
			}
			t.Logf("outage %v: %v", outage, r.err)
			if outage < 9*sec && r.err != nil {
				t.Errorf("an outage of %v lost the place: %v", outage, r.err)
			}
			time.Sleep(20 * sec)
			if r.err != nil {
				w.Available("k", a)
			} else if err := r.cl.Check(); err != nil {
				t.Error(err)
			}
			w.CloseClean(a, b)
		})
	}
}

// A waiter that gives up at the very moment at which it is handed the key
// leaves it to the next.
func TestGivingUpMeetsHandOver(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{-10 * time.Millisecond, -time.Millisecond, 0, time.Millisecond, 10 * time.Millisecond, 60 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			for range testetcd.Fewer(5, 2) {
				virtually(t, func(t *testing.T, w *world) {
					ctx := context.Background()
					a, hostA := w.client(etcdclaims.Config{TTL: 15 * sec})
					b, hostB := w.client(etcdclaims.Config{TTL: 15 * sec})
					c := w.peer()
					held := tryClaim(t, a, "k")
					bctx, cancel := context.WithCancel(ctx)
					gave := acquiring(bctx, b, "k")
					time.Sleep(100 * time.Millisecond)
					next := acquiring(ctx, c, "k")
					time.Sleep(100 * time.Millisecond)
					slow := claimtest.Fault{On: claimtest.Every, Times: -1, DelayRequest: 5 * time.Millisecond, DelayReply: 5 * time.Millisecond}
					hostA.Inject(slow)
					hostB.Inject(slow)
					go func() {
						time.Sleep(20*time.Millisecond + delay)
						cancel()
					}()
					time.Sleep(20 * time.Millisecond)
					_ = held.Release(ctx)
					if got := <-gave; got.err == nil {
						if got.cl.Check() != nil {
							t.Errorf("got a claim with %v", got.cl.Check())
						}
						_ = got.cl.Release(ctx)
					} else if !errors.Is(got.err, context.Canceled) {
						t.Error(got.err)
					}
					w.within(sec, next)
					cancel()
					w.CloseClean(a, b, c)
				})
			}
		})
	}
}

// A hand-over costs the same however many wait.
func TestHandOverCost(t *testing.T) {
	t.Parallel()
	for _, waiters := range []int{4, 16, 64} {
		virtualCase(t, fmt.Sprint(waiters), func(t *testing.T, w *world) {
			ctx := context.Background()
			var clients []*etcdclaims.Client
			for range 4 {
				c, _ := w.client(etcdclaims.Config{TTL: time.Hour})
				clients = append(clients, c)
			}
			requests := func() (n int64) {
				for _, c := range clients {
					n += c.Stats().Requests
				}
				return n
			}
			held := tryClaim(t, clients[0], "k")
			begun := make(chan *etcdclaims.Claim, waiters)
			for i := range waiters {
				go func() {
					cl, err := clients[i%4].Acquire(ctx, "k")
					if err != nil {
						t.Error(err)
						close(begun)
						return
					}
					begun <- cl
				}()
				synctest.Wait()
			}
			time.Sleep(sec)
			before := requests()
			for range waiters {
				release(t, held)
				var ok bool
				if held, ok = <-begun; !ok {
					t.Fatal("a waiter failed")
				}
				synctest.Wait()
			}
			each := float64(requests()-before) / float64(waiters)
			t.Logf("%d waiters: %.2f requests for a hand-over", waiters, each)
			if each > 4 {
				t.Errorf("%d waiters: %.2f requests for a hand-over, want at most 4", waiters, each)
			}
			w.CloseClean(clients...)
		})
	}
}
