package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// The key is released when the handler has returned, never before: whatever
// tells it to stop.
func TestRunReleasesAfterTheHandler(t *testing.T) {
	t.Parallel()
	for _, told := range []string{"nothing", "caller", "close", "max hold"} {
		for _, wait := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("%s wait %v", told, wait), func(t *testing.T, w *world) {
				var zombies atomic.Int64
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec, Hooks: etcdclaims.Hooks{Zombie: func(context.Context, etcdclaims.TermInfo, time.Duration) { zombies.Add(1) }}})
				other := w.peer()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				var opts []etcdclaims.AcquireOption
				run := c.TryRun
				if wait {
					run = c.Run
				}
				closed := make(chan error, 1)
				switch told {
				case "caller":
					time.AfterFunc(5*sec, cancel)
				case "close":
					time.AfterFunc(5*sec, func() { closed <- c.Close(context.Background()) })
				case "max hold":
					opts = append(opts, etcdclaims.MaxHold(8*sec)) // a drain of 3 s before it
				}
				begin := time.Now()
				var returned time.Time
				var fence int64
				err := run(ctx, "k", func(ctx context.Context) error {
					tok, ok := fencing.FromContext(ctx)
					if !ok || tok.Key != "k" {
						t.Errorf("token %v, %v", tok, ok)
					}
					fence = tok.Fence
					if told == "nothing" {
						time.Sleep(5 * sec)
					} else {
						<-ctx.Done()
					}
					if d := time.Since(begin); d != 5*sec {
						t.Errorf("told after %v", d)
					}
					if told != "nothing" && !errors.Is(context.Cause(ctx), context.Canceled) && !errors.Is(context.Cause(ctx), etcdclaims.ErrClosed) {
						t.Errorf("cause %v", context.Cause(ctx))
					}
					time.Sleep(2900 * time.Millisecond) // the drain is 3 s
					synctest.Wait()
					if i, err := other.Lookup(context.Background(), "k"); err != nil || i.Fence != fence || i.Kind != "" {
						t.Errorf("while the handler runs: %+v, %v", i, err)
					}
					if n := len(host.Sent(steps.Free)) + len(host.Sent(steps.Rehome)) + len(host.Sent(claimtest.Revoke)); n > 0 {
						t.Errorf("%d requests gave the key up while the handler ran", n)
					}
					returned = time.Now()
					return nil
				}, opts...)
				if err != nil {
					t.Errorf("running: %v", err)
				}
				if d := time.Since(returned); d > time.Millisecond {
					t.Errorf("returned %v after the handler", d)
				}
				if told == "close" {
					if err := <-closed; err != nil {
						t.Errorf("closing: %v", err)
					}
				}
				w.Available("k", other)
				if zombies.Load() > 0 || c.Stats().Zombies > 0 {
					t.Error("a zombie was reported")
				}
				w.CloseClean(c, other)
				w.NoLeases()
			})
		}
	}
}

// Run returns soon after its handler, although etcd does not answer. Once it answers, the keys
// are free.
func TestRunReturnsSoonInAnOutage(t *testing.T) {
	t.Parallel()
	const n, timeout = 20, 15 * sec / 6
	bg, failed := context.Background(), errors.New("failed")
	outages := map[string]func(host *claimtest.Host){
		"no answer": (*claimtest.Host).Cut,
		"refusals": func(host *claimtest.Host) {
			host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, LoseRequest: true, Code: codes.Unavailable})
		},
	}
	runs := map[string]func(c *etcdclaims.Client, key string, hang func() error) error{
		"claim": func(c *etcdclaims.Client, key string, hang func() error) error {
			return c.TryRun(bg, key, func(context.Context) error { return hang() })
		},
		"MinHold": func(c *etcdclaims.Client, key string, hang func() error) error {
			return c.TryRun(bg, key, func(context.Context) error { return hang() }, etcdclaims.MinHold(10*sec))
		},
		"slots of one key": func(c *etcdclaims.Client, _ string, hang func() error) error {
			return c.TryRun(bg, key(0), func(context.Context) error { return hang() }, etcdclaims.Slots(n))
		},
		"work that fails": func(c *etcdclaims.Client, key string, hang func() error) error {
			return works(c).TryRun(bg, key, func(context.Context, *work.Work) error { return hang() })
		},
		"work given back": func(c *etcdclaims.Client, key string, hang func() error) error {
			ctx, cancel := context.WithCancel(bg)
			return works(c).TryRun(ctx, key, func(context.Context, *work.Work) error {
				cancel()
				return errors.Join(hang(), ctx.Err())
			})
		},
	}
	for name, run := range runs {
		for how, begin := range outages {
			virtualCase(t, name+", "+how, func(t *testing.T, w *world) {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				time.AfterFunc(5*sec, func() { begin(host) })
				begun := time.Now()
				errs, _ := atOnce(n, func(i int) error {
					return run(c, key(i), func() error {
						time.Sleep(time.Until(begun.Add(6 * sec)))
						return failed
					})
				})
				if d := time.Since(begun) - 6*sec; d > timeout+timeout/10 {
					t.Errorf("returned %v after the handlers", d)
				}
				for _, err := range errs {
					wantIs(t, err, failed)
				}
				host.Heal()
				host.RemoveFaults()
				time.Sleep(20 * sec)
				other := w.peer()
				for i := range n {
					if name == "slots of one key" {
						tryClaim(t, other, key(0), etcdclaims.Slots(n))
					} else {
						tryClaim(t, other, key(i))
					}
				}
			})
		}
	}
}

// A handler that goes on after its drain is a zombie: its fence is passed, its
// key stays held until the lease of the zombie lapses, its writes are refused.
func TestRunZombie(t *testing.T) {
	t.Parallel()
	for _, told := range []string{"caller", "close", "max hold", "expired"} {
		virtualCase(t, told, func(t *testing.T, w *world) {
			zombies := make(chan etcdclaims.TermInfo, 2)
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec, Hooks: etcdclaims.Hooks{
				Zombie: func(_ context.Context, z etcdclaims.TermInfo, drain time.Duration) {
					if drain != 3*sec {
						t.Errorf("a drain of %v", drain)
					}
					zombies <- z
				},
			}})
			other := w.peer()
			keeps := tryClaim(t, c, "neighbour")
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var opts []etcdclaims.AcquireOption
			closed := make(chan error, 1)
			begin := time.Now()
			reason := etcdclaims.ReasonShutdown
			switch told {
			case "caller":
				time.AfterFunc(5*sec, cancel)
				reason = etcdclaims.ReasonOutlived
			case "close":
				time.AfterFunc(5*sec, func() { closed <- c.Close(context.Background()) })
			case "max hold":
				opts = append(opts, etcdclaims.MaxHold(8*sec))
				reason = etcdclaims.ReasonMaxHold
			case "expired":
				host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, LoseRequest: true})
				time.AfterFunc(14*sec, host.RemoveFaults)
				reason = etcdclaims.ReasonExpired
			}
			// The claim itself is reached through the one that is shared.
			cl := tryClaim(t, c, "k", opts...)
			mine := cl.Token()
			stop := make(chan struct{})
			ran := make(chan error, 1)
			go func() {
				ran <- c.TryRun(ctx, "k", func(ctx context.Context) error {
					<-stop
					return errors.New("its own error")
				}, etcdclaims.Reentrant())
			}()
			z := <-zombies
			at := time.Since(begin)
			want := 8 * sec
			if told == "expired" {
				want = 13350 * time.Millisecond
			}
			if !near(at, want, 2*time.Millisecond) {
				t.Errorf("reported after %v, want %v", at, want)
			}
			if z.Token != mine || z.Err == nil || z.Held < 5*sec {
				t.Errorf("told of %+v", z)
			}
			time.Sleep(10 * time.Millisecond)
			lossOf(t, cl.Check(), reason)
			resp, err := w.Raw.Txn(context.Background()).If(cl.Guard()...).Then(clientv3.OpPut("/effect", "x")).Commit()
			if told != "expired" {
				i, err := other.Lookup(context.Background(), "k")
				if err != nil || i.Kind != "zombie" || i.Fence <= mine.Fence || i.TTL < 13*sec {
					t.Errorf("re-homed: %+v, %v", i, err)
				}
				if _, err := other.TryAcquire(context.Background(), "k"); !errors.Is(err, etcdclaims.ErrHeld) {
					t.Errorf("another got %v, want ErrHeld", err)
				}
			}
			if told != "expired" && (err != nil || resp.Succeeded) {
				t.Errorf("the zombie's guarded write succeeded (%v)", err)
			}
			if _, err := cl.Txn(context.Background()).Then(clientv3.OpPut("/effect", "x")).Commit(); !errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("the zombie's Txn: %v, want ErrLost", err)
			}
			if told == "close" {
				select {
				case err := <-closed:
					if err != nil {
						t.Errorf("closing: %v", err)
					}
				case <-time.After(sec):
					t.Error("Close waits for the zombie")
				}
			} else if err := keeps.Check(); (err == nil) != (told != "expired") {
				t.Errorf("neighbour: %v", err)
			}
			// The line moves on when the lease of the zombie has lapsed.
			next, err := other.Acquire(context.Background(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(begin); d < 15*sec || d > at+17*sec {
				t.Errorf("free after %v", d)
			}
			if next.Fence() <= mine.Fence {
				t.Errorf("fence went from %d to %d", mine.Fence, next.Fence())
			}
			close(stop)
			err = <-ran
			lossOf(t, err, reason)
			if err == nil || !containsText(err, "its own error") {
				t.Errorf("TryRun: %v, want the handler's error too", err)
			}
			if n := c.Stats().Zombies; n != 1 {
				t.Errorf("%d zombies", n)
			}
			if err := next.Check(); err != nil {
				t.Errorf("the successor, after the zombie returned: %v", err)
			}
			w.CloseClean(c, other)
			w.NoLeases()
		})
	}
}

func containsText(err error, text string) bool {
	for _, e := range flatten(err) {
		if e.Error() == text {
			return true
		}
	}
	return false
}

func flatten(err error) []error {
	if err == nil {
		return nil
	}
	out := []error{err}
	switch e := err.(type) { //nolint:errorlint // this is what walks the tree
	case interface{ Unwrap() error }:
		out = append(out, flatten(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, e := range e.Unwrap() {
			out = append(out, flatten(e)...)
		}
	}
	return out
}

// The drain is one for all.
func TestCloseWithManyZombiesTakesOneDrain(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c := w.peer()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				_ = c.TryRun(context.Background(), fmt.Sprint(i), func(context.Context) error { <-stop; return nil })
			})
		}
		time.Sleep(sec)
		begin := time.Now()
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d > 4*sec {
			t.Errorf("closing took %v, the drain is 3 s", d)
		}
		close(stop)
		wg.Wait()
	})
}

// What ends between the acquiring and the handler keeps the handler from being
// called.
func TestRunDoesNotStartWhatIsOver(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"closed", "lost", "caller"} {
		virtualCase(t, how, func(t *testing.T, w *world) {
			var c *etcdclaims.Client
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			// The hook stands for whatever may hold the goroutine up there.
			c, _ = w.client(etcdclaims.Config{TTL: 15 * sec, Hooks: etcdclaims.Hooks{TermBegan: func(context.Context, etcdclaims.TermInfo) {
				switch how {
				case "closed":
					_ = c.Close(context.Background())
				case "lost":
					w.Server.Revoke(t, w.Own("k"))
					time.Sleep(sec)
				case "caller":
					cancel()
				}
			}}})
			ran := false
			err := c.TryRun(ctx, "k", func(ctx context.Context) error {
				ran = true
				return nil
			})
			want := map[string]error{"closed": etcdclaims.ErrClosed, "lost": etcdclaims.ErrLost, "caller": context.Canceled}[how]
			if ran || !errors.Is(err, want) && !(how == "closed" && errors.Is(err, etcdclaims.ErrLost)) {
				t.Errorf("%s: the handler ran: %v, error %v", how, ran, err)
			}
			w.CloseClean(c)
		})
	}
}

// A panic and Goexit release, and go on.
func TestRunPanicAndGoexit(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, other := w.peer(), w.peer()
		got := make(chan any)
		go func() {
			defer func() { got <- recover() }()
			_ = c.TryRun(context.Background(), "panic", func(context.Context) error { panic("oh") })
		}()
		if v := <-got; v != "oh" {
			t.Errorf("recovered %v", v)
		}
		go func() {
			defer close(got)
			_ = c.TryRun(context.Background(), "exit", func(context.Context) error { runtime.Goexit(); return nil })
			t.Error("went on after Goexit")
		}()
		<-got
		w.Available("panic", other)
		w.Available("exit", other)
		if s := c.Stats(); s.Released != 2 || s.Held != 0 {
			t.Errorf("stats %+v", s)
		}
		w.CloseClean(c, other)
	})
}

// The error is the handler's, joined with how the claim was lost.
func TestRunErrors(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		ctx := context.Background()
		own := errors.New("its own")
		if err := c.TryRun(ctx, "a", func(context.Context) error { return own }); err != own { //nolint:errorlint // that very error
			t.Errorf("got %v, want the handler's alone", err)
		}
		if err := c.TryRun(ctx, "a", func(context.Context) error { return nil }); err != nil {
			t.Errorf("got %v", err)
		}
		if err := c.TryRun(ctx, "a", nil); err == nil {
			t.Error("a nil handler")
		}
		err := c.TryRun(ctx, "b", func(ctx context.Context) error {
			w.Server.Revoke(t, w.Own("b"))
			<-ctx.Done()
			lossOf(t, context.Cause(ctx), etcdclaims.ReasonRevoked)
			return own
		})
		lossOf(t, err, etcdclaims.ReasonRevoked)
		if !errors.Is(err, own) {
			t.Errorf("got %v, want the handler's too", err)
		}
		err = c.TryRun(ctx, "c", func(ctx context.Context) error {
			w.Server.Delete(t, w.Own("c"))
			return nil // the loss is found by the release
		})
		lossOf(t, err, etcdclaims.ReasonDeleted)
		err = c.TryRun(ctx, "d", func(ctx context.Context) error {
			host.Cut()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		host.Heal()
		lossOf(t, err, etcdclaims.ReasonExpired)
		time.Sleep(20 * sec)
		w.CloseClean(c)
	})
}

// MinHold keeps the key for the rest of the time, held by nobody.
func TestMinHoldTime(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"release", "run"} {
		virtualCase(t, how, func(t *testing.T, w *world) {
			ctx := context.Background()
			c, other := w.peer(), w.peer()
			begin := time.Now()
			var fence int64
			if how == "run" {
				if err := c.TryRun(ctx, "k", func(ctx context.Context) error {
					tok, _ := fencing.FromContext(ctx)
					fence = tok.Fence
					time.Sleep(sec)
					return nil
				}, etcdclaims.MinHold(20*sec)); err != nil {
					t.Error(err)
				}
			} else {
				cl := tryClaim(t, c, "k", etcdclaims.MinHold(20*sec))
				fence = cl.Fence()
				time.Sleep(sec)
				if err := cl.Release(ctx); err != nil || !errors.Is(cl.Err(), etcdclaims.ErrReleased) {
					t.Errorf("releasing: %v, %v", err, cl.Err())
				}
			}
			i, err := other.Lookup(ctx, "k")
			if err != nil || i.Kind != "resting" || i.Fence <= fence || !i.Held {
				t.Errorf("resting: %+v, %v", i, err)
			}
			if s := c.Stats(); s.Held != 0 || s.Released != 1 {
				t.Errorf("stats %+v", s)
			}
			for time.Since(begin) < 20*sec-time.Millisecond {
				for _, c := range []*etcdclaims.Client{c, other} {
					if _, err := c.TryAcquire(ctx, "k"); !errors.Is(err, etcdclaims.ErrHeld) {
						t.Fatalf("after %v: %v, want ErrHeld", time.Since(begin), err)
					}
				}
				time.Sleep(min(sec, 20*sec-time.Millisecond-time.Since(begin)))
			}
			cl, err := other.Acquire(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(begin); d < 20*sec || d > 22*sec {
				t.Errorf("free after %v, want 20 s and a bit", d)
			}
			// Held for longer than that, it is free at once.
			_ = cl.Release(ctx)
			cl = tryClaim(t, c, "k", etcdclaims.MinHold(20*sec))
			time.Sleep(21 * sec)
			_ = cl.Release(ctx)
			w.Available("k", other)
			w.CloseClean(c, other)
			w.NoLeases()
		})
	}
}

// A key with a MinHold rests, whoever gives it up.
func TestMinHoldSurvivesCloseAndReleaseAll(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"close", "release all"} {
		virtualCase(t, how, func(t *testing.T, w *world) {
			ctx := context.Background()
			c, other := w.peer(), w.peer()
			tryClaim(t, c, "k", etcdclaims.MinHold(20*sec))
			time.Sleep(sec)
			if how == "close" {
				if err := c.Close(ctx); err != nil {
					t.Error(err)
				}
			} else if _, err := c.ReleaseAll(ctx); err != nil {
				t.Error(err)
			}
			if _, err := other.TryAcquire(ctx, "k"); !errors.Is(err, etcdclaims.ErrHeld) {
				t.Errorf("after 1 of 20 s: %v, want ErrHeld", err)
			}
		})
	}
}

// MaxHold of a claim that nobody runs under: told a drain before, ended and
// re-homed at its time.
func TestMaxHoldWithoutRun(t *testing.T) {
	t.Parallel()
	for _, manual := range []bool{false, true} {
		virtualCase(t, fmt.Sprintf("manual %v", manual), func(t *testing.T, w *world) {
			ctx := context.Background()
			c, other := w.peer(), w.peer()
			opts := []etcdclaims.AcquireOption{etcdclaims.MaxHold(10 * sec)}
			if manual {
				opts = append(opts, etcdclaims.Manual())
			}
			neighbour := tryClaim(t, c, "neighbour")
			begin := time.Now()
			cl := tryClaim(t, c, "k", opts...)
			e := follow(cl)
			if d := (<-e.soft).Sub(begin); d != 7*sec {
				t.Errorf("told after %v, want 7 s", d)
			}
			lossOf(t, context.Cause(cl.Context()), etcdclaims.ReasonMaxHold)
			if err := cl.Check(); err != nil {
				t.Errorf("before its MaxHold: %v", err)
			}
			if d := (<-e.done).Sub(begin); d != 10*sec {
				t.Errorf("ended after %v, want 10 s", d)
			}
			lossOf(t, cl.Err(), etcdclaims.ReasonMaxHold)
			synctest.Wait()
			if i, err := other.Lookup(ctx, "k"); err != nil || i.Kind != "zombie" || i.Fence <= cl.Fence() {
				t.Errorf("%+v, %v", i, err)
			}
			time.Sleep(17 * sec)
			w.Available("k", other)
			if err := neighbour.Check(); err != nil {
				t.Error(err)
			}
			w.CloseClean(c, other)
			w.NoLeases()
		})
	}
}

// The time for which the machine sleeps counts for MaxHold, though no timer counts it.
func TestMaxHoldCountsSleep(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: time.Hour})
		checked := tryClaim(t, c, "checked", etcdclaims.MaxHold(30*time.Minute))
		watched := tryClaim(t, c, "watched", etcdclaims.MaxHold(30*time.Minute))
		work := tryBegin(t, c, "work", etcdclaims.MaxHold(30*time.Minute))
		longer := tryClaim(t, c, "longer", etcdclaims.MaxHold(50*time.Minute))
		time.Sleep(10 * sec)
		host.Suspend(30 * time.Minute)
		began := time.Now()
		lossOf(t, checked.Check(), etcdclaims.ReasonMaxHold)
		lossOf(t, work.Complete(context.Background()), etcdclaims.ReasonMaxHold)
		<-watched.Done()
		if d := time.Since(began); d > 2*sec {
			t.Errorf("ended %v after the machine woke", d)
		}
		lossOf(t, watched.Err(), etcdclaims.ReasonMaxHold)
		noErr(t, longer.Check())
		<-longer.Done()
		if d := time.Since(began) + 30*time.Minute + 10*sec; !near(d, 50*time.Minute, 2*sec) {
			t.Errorf("a MaxHold of 50 min ended after %v", d)
		}
	})
}

// A manual claim lasts for as long as it is renewed by its holder.
func TestManualExpiresUnlessRenewed(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		soft, hard := timing(15 * sec)
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		other := w.peer()
		cl := tryClaim(t, c, "k", etcdclaims.Manual())
		for range 10 {
			time.Sleep(9 * sec)
			begin := time.Now()
			if err := cl.Renew(ctx); err != nil {
				t.Fatal(err)
			}
			if d := cl.Deadline().Sub(begin); d != hard {
				t.Errorf("deadline %v after the renewal, want %v", d, hard)
			}
		}
		e, begin := follow(cl), time.Now()
		if d := (<-e.soft).Sub(begin); d != soft {
			t.Errorf("told after %v, want %v", d, soft)
		}
		if d := (<-e.done).Sub(begin); d != hard {
			t.Errorf("ended after %v, want %v", d, hard)
		}
		lossOf(t, cl.Renew(ctx), etcdclaims.ReasonExpired)
		// The next owner gets it when the lease has lapsed.
		next, err := other.Acquire(ctx, "k")
		if err != nil || next.Fence() <= cl.Fence() || time.Since(begin) < 15*sec || time.Since(begin) > 16*sec {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		// A manual claim that is released takes its lease along.
		cl = tryClaim(t, c, "k2", etcdclaims.Manual())
		revoked := len(host.Sent(claimtest.Revoke))
		release(t, cl)
		time.Sleep(sec)
		if n := len(host.Sent(claimtest.Revoke)) - revoked; n != 1 || c.Stats().Sessions != 0 {
			t.Errorf("%d leases revoked, %d sessions left", n, c.Stats().Sessions)
		}
		w.CloseClean(c, other)
		w.NoLeases()
	})
}

// Reentrant shares one term; it ends with its last handle.
func TestReentrantSharing(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		other := w.peer()
		a := tryClaim(t, c, "k")
		sent := len(host.Sent(steps.Take)) + len(host.Sent(steps.Enqueue))
		b := tryClaim(t, c, "k", etcdclaims.Reentrant())
		d, err := c.Acquire(ctx, "k", etcdclaims.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(host.Sent(steps.Take)) + len(host.Sent(steps.Enqueue)) - sent; n != 0 {
			t.Errorf("sharing took %d requests", n)
		}
		if a.Fence() != b.Fence() || b.Fence() != d.Fence() || a.ID() != b.ID() {
			t.Errorf("fences %d, %d, %d", a.Fence(), b.Fence(), d.Fence())
		}
		if _, err := c.TryAcquire(ctx, "k"); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("without Reentrant: %v", err)
		}
		if _, err := other.TryAcquire(ctx, "k", etcdclaims.Reentrant()); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("another client: %v", err)
		}
		for range 2 { // a handle counts once
			release(t, b)
		}
		if !errors.Is(b.Check(), etcdclaims.ErrReleased) || a.Check() != nil || d.Check() != nil {
			t.Errorf("after one release: %v, %v, %v", b.Check(), a.Check(), d.Check())
		}
		if err := a.Release(ctx); err != nil || d.Check() != nil || d.Context().Err() != nil {
			t.Errorf("after two: %v, %v", err, d.Check())
		}
		release(t, d)
		w.Available("k", other)
		// Nested runs.
		err = c.TryRun(ctx, "k", func(ctx context.Context) error {
			outer, _ := fencing.FromContext(ctx)
			err := c.Run(ctx, "k", func(ctx context.Context) error {
				if inner, _ := fencing.FromContext(ctx); inner != outer {
					t.Errorf("tokens %v, %v", outer, inner)
				}
				return nil
			}, etcdclaims.Reentrant())
			if i, _ := c.Lookup(ctx, "k"); !i.Held || ctx.Err() != nil {
				t.Errorf("after the inner run: %+v, %v", i, ctx.Err())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		w.Available("k", other)
		w.CloseClean(c, other)
	})
}

// Each handle of a shared claim that is lost is told so, and binds no context that goes on.
func TestReentrantLost(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		other := w.peer()
		a := tryClaim(t, c, "k")
		b := tryClaim(t, c, "k", etcdclaims.Reentrant())
		if err := admin.ForceRelease(t.Context(), other, "k", "test"); err != nil {
			t.Fatal(err)
		}
		<-a.Done()
		for _, cl := range []*etcdclaims.Claim{a, b} {
			ctx, cancel := cl.Bind(t.Context())
			if ctx.Err() == nil || !errors.Is(context.Cause(ctx), etcdclaims.ErrLost) {
				t.Errorf("a context bound to the lost claim: %v, because of %v", ctx.Err(), context.Cause(ctx))
			}
			cancel()
			if err := cl.Release(t.Context()); !errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("released: %v", err)
			}
		}
		w.Available("k", other)
		w.CloseClean(c, other)
	})
}

// Supersede begins a new term at once, and the old one's writes are refused.
func TestSupersedeBeginsANewTerm(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, other := w.peer(), w.peer()
		a := tryClaim(t, c, "k", etcdclaims.Note([]byte("old")))
		b := tryClaim(t, c, "k", etcdclaims.Supersede())
		if b.Fence() <= a.Fence() || b.Check() != nil {
			t.Errorf("fences %d, %d; %v", a.Fence(), b.Fence(), b.Check())
		}
		lossOf(t, a.Check(), etcdclaims.ReasonSuperseded)
		lossOf(t, context.Cause(a.Context()), etcdclaims.ReasonSuperseded)
		if resp, err := w.Raw.Txn(ctx).If(a.Guard()...).Then(clientv3.OpPut("/effect", "x")).Commit(); err != nil || resp.Succeeded {
			t.Errorf("the old term's write: %v", err)
		}
		if err := a.Release(ctx); !errors.Is(err, etcdclaims.ErrLost) {
			t.Errorf("releasing the old term: %v", err)
		}
		if i, err := other.Lookup(ctx, "k"); err != nil || i.Fence != b.Fence() || i.Note != nil {
			t.Errorf("%+v, %v", i, err)
		}
		if _, err := other.TryAcquire(ctx, "k", etcdclaims.Supersede()); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("another client superseding: %v, want ErrHeld", err)
		}
		d, err := c.Acquire(ctx, "k", etcdclaims.Supersede()) // in line, too
		if err != nil || d.Fence() <= b.Fence() {
			t.Fatalf("%v", err)
		}
		lossOf(t, b.Check(), etcdclaims.ReasonSuperseded)
		time.Sleep(31 * sec)
		if err := d.Check(); err != nil {
			t.Error(err)
		}
		w.CloseClean(c, other)
	})
}

// A thousand goroutines of one client, one key: one at a time, and no write is
// lost.
func TestThousandGoroutinesOneKey(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for _, how := range []string{"Run", "TryRun"} {
		t.Run(how, func(t *testing.T) {
			etcd := testetcd.Shared(t).Client(t)
			prefix := testetcd.Prefix(t)
			c := newClient(t, etcd, etcdclaims.Config{Prefix: prefix, TTL: 60 * sec})
			counter := "/counter" + prefix
			var inside, most, done, zombies atomic.Int64
			fn := func(cl context.Context) error {
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer inside.Add(-1)
				tok, _ := fencing.FromContext(cl)
				got, err := etcd.Get(cl, counter)
				if err != nil {
					return err
				}
				n := 0
				if len(got.Kvs) > 0 {
					n, _ = strconv.Atoi(string(got.Kvs[0].Value))
				}
				resp, err := etcd.Txn(cl).If(clientv3.Compare(clientv3.ModRevision(prefix+"own/k"), "=", tok.Fence)).
					Then(clientv3.OpPut(counter, strconv.Itoa(n+1))).Commit()
				if err != nil {
					return err
				}
				if !resp.Succeeded {
					zombies.Add(1)
					return errors.New("fenced off")
				}
				done.Add(1)
				return nil
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			for range 1000 {
				wg.Go(func() {
					if how == "Run" {
						if err := c.Run(ctx, "k", fn); err != nil {
							t.Error(err)
						}
						return
					}
					if err := c.TryRun(ctx, "k", fn); err != nil && !errors.Is(err, etcdclaims.ErrHeld) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			got, err := etcd.Get(ctx, counter)
			if err != nil || string(got.Kvs[0].Value) != fmt.Sprint(done.Load()) {
				t.Errorf("%d increments, the counter says %v (%v)", done.Load(), got, err)
			}
			if most.Load() != 1 || zombies.Load() != 0 {
				t.Errorf("%d inside at once, %d fenced off", most.Load(), zombies.Load())
			}
			if how == "Run" && done.Load() != 1000 {
				t.Errorf("%d ran", done.Load())
			}
			t.Logf("%s: %d ran, %d requests", how, done.Load(), c.Stats().Requests)
		})
	}
}
