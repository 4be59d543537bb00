package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Many callers of one client want one key. The round trip takes 20 ms, so that
// what waits for others shows in virtual time.

const (
	rtt   = 20 * time.Millisecond
	crowd = 4000
)

// far puts the host a round trip away from etcd.
func far(host *claimtest.Host) *claimtest.Injection {
	return host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: rtt})
}

// polling calls again and again, a second apart, on n goroutines that began spread
// over a second, until the returned function is called.
func polling(n int, call func(ctx context.Context, i int) (*etcdclaims.Claim, error)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for pause := sec / time.Duration(n) * time.Duration(i); ; pause = sec {
				select {
				case <-time.After(pause):
				case <-ctx.Done():
					return
				}
				if cl, err := call(ctx, i); err == nil {
					time.Sleep(100 * time.Millisecond)
					_ = cl.Release(context.Background())
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// A key that all callers want is refused to them in the time that it takes to
// refuse each a key of its own, by few requests.
func TestHotKeyIsRefusedToAllAtOnce(t *testing.T) {
	t.Parallel()
	for _, holder := range []string{"another client", "the same client", "nobody", "work", "whatever the lease"} {
		virtualCase(t, holder, func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			release(t, tryClaim(t, c, "warm"))
			owner := map[string]string{}
			call := func(i int) error { _, err := c.TryAcquire(context.Background(), "k"); return err }
			switch holder {
			case "another client":
				tryClaim(t, w.peer(), "k")
			case "the same client":
				tryClaim(t, c, "k")
			case "whatever the lease":
				tryClaim(t, w.peer(), "k")
				call = func(i int) error {
					if i%2 == 0 {
						_, errs := c.TryAcquireEach(context.Background(), []string{"k"})
						return errs[0]
					}
					_, err := c.TryAcquire(context.Background(), "k", etcdclaims.TTL(15*sec+time.Duration(i)*time.Millisecond))
					return err
				}
			case "work":
				tryBegin(t, c, "k")
				call = func(i int) error { _, err := works(c).TryBegin(context.Background(), "k"); return err }
			}
			far(host)
			before := len(host.Sent(claimtest.Acquire))
			errs, last := atOnce(crowd, call)
			won := 0
			for _, err := range errs {
				var held *etcdclaims.HeldError
				switch {
				case err == nil:
					won++
				case !errors.As(err, &held) || !held.Info.Held || held.Info.Claim == "" || held.Info.Fence == 0:
					t.Fatalf("%+v", err)
				default:
					owner[held.Info.Claim] = held.Info.Instance
				}
			}
			if want := map[bool]int{true: 1}[holder == "nobody"]; won != want || len(owner) != 1 {
				t.Errorf("%d callers have the key, and the others name %d owners", won, len(owner))
			}
			if n := len(host.Sent(claimtest.Acquire)) - before; n == 0 || n > 3 {
				t.Errorf("%d requests", n)
			}
			if last > 3*rtt {
				t.Errorf("the last was answered after %v", last)
			}
			if holder != "another client" {
				return
			}
			errs, distinct := atOnce(crowd, func(i int) error { _, err := c.TryAcquire(context.Background(), key(i)); return err })
			for _, err := range errs {
				noErr(t, err)
			}
			if last > distinct {
				t.Errorf("one key took %v, as many keys %v", last, distinct)
			}
		})
	}
}

// Work that is done is refused to all at once too.
func TestDoneWorkIsRefusedToAllAtOnce(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		noErr(t, tryBegin(t, w.peer(), "k").Complete(context.Background()))
		release(t, tryClaim(t, c, "warm"))
		far(host)
		before := len(host.Sent(claimtest.Acquire))
		errs, last := atOnce(crowd, func(int) error { _, err := works(c).TryBegin(context.Background(), "k"); return err })
		for _, err := range errs {
			wantIs(t, err, work.ErrDone)
		}
		if n := len(host.Sent(claimtest.Acquire)) - before; n == 0 || n > 3 || last > 3*rtt {
			t.Errorf("%d requests, %v", n, last)
		}
	})
}

// So is a free key that somebody of another client is first in line for.
func TestLineIsRefusedToAllAtOnce(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		b, bhost := w.client(etcdclaims.Config{TTL: 15 * sec})
		holder := tryBegin(t, w.peer(), "k")
		ctx, cancel := context.WithCancel(context.Background())
		var waiting sync.WaitGroup
		waiting.Go(func() { _, _ = works(b).Begin(ctx, "k") })
		time.Sleep(sec)
		bhost.Cut()
		_, err := holder.Fail(context.Background(), errors.New("no"))
		noErr(t, err)
		release(t, tryClaim(t, c, "warm"))
		far(host)
		errs, last := atOnce(crowd, func(int) error { _, err := c.TryAcquire(context.Background(), "k"); return err })
		for _, err := range errs {
			var held *etcdclaims.HeldError
			if !errors.As(err, &held) || held.Info.Held || held.Info.Waiting != 1 {
				t.Fatal(err)
			}
		}
		if last > 5*rtt {
			t.Errorf("the last was answered after %v", last)
		}
		bhost.Heal()
		cancel()
		waiting.Wait()
	})
}

// Whoever gives a key up does not wait behind those who want keys, be it one key
// or many.
func TestGivingUpDoesNotWaitForCallers(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"one key", "many keys"} {
		for _, end := range []string{"Complete", "Fail", "Release", "ReleaseAll"} {
			n, opts := testetcd.Fewer(crowd, 500), []claimtest.Option(nil)
			if what == "many keys" {
				n, opts = 600, append(opts, testclaims.MaxTxnOps(16)) // round trips carry few
			}
			virtualCase(t, what+", "+end, func(t *testing.T, w *world) {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				ctx := context.Background()
				if what == "many keys" {
					_, errs := w.peer().TryAcquireEach(ctx, numbered("k%d", n))
					noErr(t, errors.Join(errs...))
				}
				var work *work.Work
				var cl *etcdclaims.Claim
				if end == "Complete" || end == "Fail" {
					work = tryBegin(t, c, "k")
				} else {
					cl = tryClaim(t, c, "k")
				}
				far(host)
				stop := polling(n, func(ctx context.Context, i int) (*etcdclaims.Claim, error) {
					if what == "many keys" {
						return c.TryAcquire(ctx, key(i))
					}
					if work == nil {
						return c.TryAcquire(ctx, "k")
					}
					wk, err := works(c).TryBegin(ctx, "k")
					if err != nil {
						return nil, err
					}
					return wk.Claim, nil
				})
				// Beside them some that come faster than they are answered.
				among, leave := context.WithCancel(ctx)
				var wg sync.WaitGroup
				if what == "many keys" {
					for i := range n {
						wg.Go(func() {
							for among.Err() == nil {
								_, _ = c.TryAcquire(among, key(i))
							}
						})
					}
				}
				time.Sleep(sec)
				gone := w.deletion(w.Own("k"))
				begin := time.Now()
				switch end {
				case "Complete":
					noErr(t, work.Complete(ctx))
				case "Fail":
					_, err := work.Fail(ctx, errors.New("no"))
					noErr(t, err)
				case "Release":
					noErr(t, cl.Release(ctx))
				case "ReleaseAll":
					_, err := c.ReleaseAll(ctx)
					noErr(t, err)
				}
				if d := time.Since(begin); d > 3*rtt {
					t.Errorf("took %v", d)
				}
				if d := (<-gone).Sub(begin); d > 3*rtt {
					t.Errorf("etcd was told after %v", d)
				}
				leave()
				stop()
				wg.Wait()
				host.RemoveFaults()
			}, opts...)
		}
	}
}

// What TryRun has claimed is given up when it returns, whoever asks for the key
// meanwhile.
func TestTryRunGivesUpAHotKey(t *testing.T) {
	t.Parallel()
	for _, n := range []int{400, 1000} {
		if n > 400 && testing.Short() {
			continue
		}
		virtualCase(t, fmt.Sprint(n), func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			other := w.peer()
			far(host)
			running := make(chan string, 1)
			done := make(chan error, 1)
			go func() {
				done <- c.TryRun(context.Background(), "k", func(context.Context) error {
					i, err := other.Lookup(context.Background(), "k")
					running <- i.Claim
					time.Sleep(10 * sec)
					return err
				})
			}()
			first := <-running
			stop := polling(n, func(ctx context.Context, _ int) (*etcdclaims.Claim, error) { return c.TryAcquire(ctx, "k") })
			noErr(t, <-done)
			if i, err := other.Lookup(context.Background(), "k"); err != nil || i.Claim == first {
				t.Errorf("TryRun has returned, and its claim is there: %v", err)
			}
			stop()
			host.RemoveFaults()
			w.CloseClean(c, other)
			w.NoLeases()
		})
	}
}

// Callers that give up leave nothing: no claim, no place in line, no lease, and
// no other lease was opened for them.
func TestHotKeyLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		virtualCase(t, fmt.Sprint(held), func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			other := w.peer()
			var cl *etcdclaims.Claim
			if held {
				cl = tryClaim(t, other, "k")
			}
			far(host)
			const n = 10_000 // more than a lease takes
			_, _ = atOnce(n, func(i int) error {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+i%60)*time.Millisecond)
				defer cancel()
				cl, err := c.TryAcquire(ctx, "k")
				if err == nil {
					return cl.Release(context.Background())
				}
				return err
			})
			if s := c.Stats().Sessions; s > 1 {
				t.Errorf("%d leases for callers of one key", s)
			}
			time.Sleep(5 * rtt)
			if held {
				if i, err := other.Lookup(context.Background(), "k"); err != nil || i.Instance != other.Instance() {
					t.Errorf("%+v, %v", i, err)
				}
				release(t, cl)
			} else if w.get("own/k") != "" {
				t.Errorf("left over: %s", w.get("own/k"))
			}
			host.RemoveFaults()
			w.CloseClean(c, other)
			w.NoLeases()
		})
	}
}

// Those who share a request do not depend on whom it was made for: it gives up,
// or its request, its reply or its lease is lost.
func TestFirstCallerComesToNothing(t *testing.T) {
	t.Parallel()
	faults := map[string]claimtest.Fault{
		"gives up":           {},
		"request lost":       {On: claimtest.Acquire, LoseRequest: true},
		"reply lost":         {On: claimtest.Acquire, LoseReply: true},
		"not leader":         {On: claimtest.Acquire, Err: rpctypes.ErrGRPCNoLeader},
		"session not opened": {On: claimtest.Grant, LoseRequest: true},
	}
	for name, fault := range faults {
		virtualCase(t, name, func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			other := w.peer()
			cl := tryClaim(t, other, "k")
			if name != "session not opened" {
				release(t, tryClaim(t, c, "warm"))
			}
			if fault.On != claimtest.Every {
				host.Inject(fault)
			}
			far(host)
			errs, last := atOnce(100, func(i int) error {
				if i > 0 && name == "gives up" {
					time.Sleep(time.Millisecond) // the first two are on their way
				}
				ctx := context.Background()
				if i < 50 && name == "gives up" {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*time.Millisecond/2)
					defer cancel()
				}
				_, err := c.TryAcquire(ctx, "k")
				if i < 50 && errors.Is(err, context.DeadlineExceeded) {
					return etcdclaims.ErrHeld
				}
				return err
			})
			for i, err := range errs {
				if !errors.Is(err, etcdclaims.ErrHeld) {
					t.Errorf("caller %d: %v", i, err)
				}
			}
			if last > 3*sec {
				t.Errorf("the last was answered after %v", last)
			}
			release(t, cl)
			host.RemoveFaults()
			time.Sleep(sec)
			w.CloseClean(c, other)
			w.NoLeases()
		})
	}
}

// A refusal is no answer to who asks after its request has left: the key may have
// become free meanwhile.
func TestLaterCallerAsksAnew(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "warm"))
		cl := tryClaim(t, w.peer(), "k")
		host.Inject(claimtest.Fault{On: claimtest.Acquire, DelayReply: sec})
		refused := make(chan error, 1)
		go func() {
			_, err := c.TryAcquire(context.Background(), "k")
			refused <- err
		}()
		time.Sleep(100 * time.Millisecond)
		release(t, cl)
		begin := time.Now()
		mine := tryClaim(t, c, "k")
		if d := time.Since(begin); d > 100*time.Millisecond {
			t.Errorf("took %v", d)
		}
		wantIs(t, <-refused, etcdclaims.ErrHeld)
		noErr(t, mine.Check())
		release(t, mine)
	})
}
