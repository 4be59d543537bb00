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
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/steps"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// unclosed returns a client, with a TTL of 15 s, that the test closes itself: with an
// error.
func (w *world) unclosed() (*etcdclaims.Client, *claimtest.Host) {
	w.Helper()
	host := w.Server.Host(w.T)
	c, err := etcdclaims.New(host.Etcd(w.T), etcdclaims.Config{Prefix: w.Prefix, TTL: 15 * sec})
	if err != nil {
		w.Fatal(err)
	}
	return c, host
}

// What a release may have given away is not believed in any more, from before its
// request is sent: whatever becomes of the reply, no two owners pass Check.
func TestNobodyBelievesWhatIsBeingReleased(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for how, give := range map[string]func(c *etcdclaims.Client, cl *etcdclaims.Claim, wk *work.Work){
		"Release":    func(_ *etcdclaims.Client, cl *etcdclaims.Claim, _ *work.Work) { _ = cl.Release(bg) },
		"ReleaseAll": func(c *etcdclaims.Client, _ *etcdclaims.Claim, _ *work.Work) { _, _ = c.ReleaseAll(bg) },
		"Close":      func(c *etcdclaims.Client, _ *etcdclaims.Claim, _ *work.Work) { _ = c.Close(bg) },
		"Complete":   func(_ *etcdclaims.Client, _ *etcdclaims.Claim, wk *work.Work) { _ = wk.Release(bg) },
	} {
		for _, fault := range []claimtest.Fault{{LoseReply: true}, {DelayReply: 2 * sec}} {
			virtualCase(t, fmt.Sprintf("%s, %v", how, fault.DelayReply), func(t *testing.T, w *world) {
				a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				b := w.peer()
				tryClaim(t, b, "warm")
				var cl *etcdclaims.Claim
				var wk *work.Work
				if how == "Complete" {
					wk = tryBegin(t, a, "k")
					cl = wk.Claim
				} else {
					cl = tryClaim(t, a, "k")
				}
				check := cl.Context() // knows no handle
				for _, on := range []claimtest.Kind{steps.Free, steps.HandOver, claimtest.Ending, claimtest.Revoke} {
					fault.On = on
					host.Inject(fault)
				}
				go give(a, cl, wk)
				for range 2000 {
					other, err := b.TryAcquire(bg, "k")
					if err == nil {
						if err := errors.Join(other.Check(), other.Release(bg)); err != nil {
							t.Error(err)
						}
						if cl.Check() == nil || cl.Remaining() > 0 && how != "Complete" || fencing.Check(check) == nil {
							t.Errorf("another had it, and Check says %v, in its context %v, %v remain", cl.Check(), fencing.Check(check), cl.Remaining())
						}
						return
					}
					time.Sleep(time.Millisecond)
				}
				t.Error("never free")
			})
		}
	}
}

// An acquisition whose reply comes while the client is being closed gets no claim,
// and leaves none.
func TestCloseGrantsNothing(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for _, delay := range []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond, 2 * sec} {
		for how, acquire := range map[string]func(c *etcdclaims.Client) (*etcdclaims.Claim, error){
			"TryAcquire": func(c *etcdclaims.Client) (*etcdclaims.Claim, error) { return c.TryAcquire(bg, "k") },
			"Acquire":    func(c *etcdclaims.Client) (*etcdclaims.Claim, error) { return c.Acquire(bg, "k") },
			"Manual": func(c *etcdclaims.Client) (*etcdclaims.Claim, error) {
				return c.TryAcquire(bg, "k", etcdclaims.Manual())
			},
			"TryBegin": func(c *etcdclaims.Client) (*etcdclaims.Claim, error) {
				wk, err := works(c).TryBegin(bg, "k")
				if err != nil {
					return nil, err
				}
				return wk.Claim, nil
			},
			"TryAcquireAll": func(c *etcdclaims.Client) (*etcdclaims.Claim, error) {
				cls, err := c.TryAcquireAll(bg, []string{"k", "l"})
				if err != nil {
					return nil, err
				}
				return cls[0], nil
			},
			"TryAcquireEach": func(c *etcdclaims.Client) (*etcdclaims.Claim, error) {
				cls, errs := c.TryAcquireEach(bg, []string{"k"})
				return cls[0], errs[0]
			},
		} {
			for _, lost := range []bool{false, true} {
				virtualCase(t, fmt.Sprintf("%s, reply after %v, revocation lost %v", how, delay, lost), func(t *testing.T, w *world) {
					a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
					b := w.peer()
					release(t, tryClaim(t, a, "warm"))
					host.Inject(claimtest.Fault{On: steps.Take, DelayReply: delay})
					if lost {
						host.Inject(claimtest.Fault{On: claimtest.Revoke, LoseReply: true})
						host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, DelayReply: 3 * sec})
					}
					type result struct {
						cl  *etcdclaims.Claim
						err error
					}
					got := make(chan result, 1)
					go func() {
						cl, err := acquire(a)
						got <- result{cl, err}
					}()
					time.Sleep(5 * time.Millisecond) // with no delay it has the claim by then
					if err := a.Close(bg); err != nil {
						t.Errorf("closing: %v", err)
					}
					r := <-got
					switch {
					case delay == 0:
						noErr(t, r.err)
						lossOf(t, r.cl.Check(), etcdclaims.ReasonShutdown)
					case !errors.Is(r.err, etcdclaims.ErrClosed):
						t.Errorf("got %v", r.err)
					}
					if wk, err := works(b).TryBegin(bg, "k"); err != nil {
						t.Errorf("after the end: %v", err)
					} else if _, seen := wk.Previous(); seen && delay > 0 {
						t.Error("an attempt was counted that nobody made")
					}
				})
			}
		}
	}
}

// Who waits when its client is closed gets nothing, be it handed the key within its
// client or by another.
func TestCloseGrantsNothingToWaiters(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for _, own := range []bool{true, false} {
		for i := range 20 {
			virtualCase(t, fmt.Sprintf("own %v, %d", own, i), func(t *testing.T, w *world) {
				a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				b := w.peer()
				holder := b
				if own {
					holder = a
				}
				tryClaim(t, a, "warm")
				cl := tryClaim(t, holder, "k")
				host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 4 * time.Millisecond})
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() {
						if cl, err := a.Acquire(bg, "k"); err == nil {
							if err := cl.Check(); err == nil && a.Stats().Sessions == 0 {
								t.Error("a claim of a closed client")
							}
							_ = cl.Release(bg)
						}
					})
				}
				time.Sleep(sec)
				wg.Go(func() { _ = cl.Release(bg) })
				time.Sleep(time.Duration(i) * time.Millisecond)
				begin := time.Now()
				if err := a.Close(bg); err != nil {
					t.Errorf("closing: %v", err)
				}
				if d := time.Since(begin); d > sec {
					t.Errorf("it took %v", d)
				}
				wg.Wait()
				release(t, tryClaim(t, b, "k"))
				w.CloseClean(b)
			})
		}
	}
}

// A context that has ended, as that of a program that is told to stop, does not keep
// Close from releasing, or from leaving a zombie's key held.
func TestCloseWithEndedContext(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 1000} {
		virtualCase(t, fmt.Sprint(n), func(t *testing.T, w *world) {
			a, host := w.unclosed()
			b := w.peer()
			host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 20 * time.Millisecond})
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprint("k", i)
			}
			claimMany(t, a, keys)
			running, stop := make(chan struct{}), make(chan struct{})
			go func() {
				_ = a.TryRun(context.Background(), "hung", func(context.Context) error {
					close(running)
					<-stop
					return nil
				})
			}()
			<-running
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			begin := time.Now()
			if err := a.Close(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("closing with a handler that goes on: %v", err)
			}
			if d := time.Since(begin); d > sec {
				t.Errorf("it took %v", d)
			}
			if got := claimMany(t, b, keys); len(got) != n {
				t.Errorf("%d of %d keys are free", len(got), n)
			}
			if _, err := b.TryAcquire(context.Background(), "hung"); !errors.Is(err, etcdclaims.ErrHeld) {
				t.Errorf("the key of a handler that goes on: %v", err)
			}
			close(stop)
		})
	}
}

// A lease that is being granted when the client is closed is revoked, at whatever
// point Close meets it.
func TestCloseWhileASessionOpens(t *testing.T) {
	t.Parallel()
	for _, manual := range []bool{false, true} {
		for _, after := range []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond} {
			virtualCase(t, fmt.Sprintf("manual %v, %v", manual, after), func(t *testing.T, w *world) {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 100 * time.Millisecond})
				var opts []etcdclaims.AcquireOption
				if manual {
					opts = append(opts, etcdclaims.Manual())
				}
				done := make(chan error, 1)
				go func() { _, err := c.TryAcquire(context.Background(), "k", opts...); done <- err }()
				time.Sleep(after)
				noErr(t, c.Close(context.Background()))
				wantIs(t, <-done, etcdclaims.ErrClosed)
				w.NothingLeft()
			})
		}
	}
}

// The end of work that is refused after Close or ReleaseAll has met it leaves the claim to them.
func TestCloseBesideRefusal(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for _, closes := range []bool{false, true} {
		virtualCase(t, fmt.Sprintf("Close %v", closes), func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			wk := tryBegin(t, a, "k")
			host.Inject(claimtest.Fault{On: claimtest.Ending, DelayRequest: sec})
			done := make(chan error, 1)
			go func() { done <- wk.Complete(bg, clientv3.OpPut("x", "y", clientv3.WithLease(77))) }()
			time.Sleep(100 * ms)
			began := time.Now()
			if closes {
				noErr(t, a.Close(bg))
			} else {
				_, err := a.ReleaseAll(bg)
				noErr(t, err)
			}
			if took := time.Since(began); took > 2*sec {
				t.Errorf("it took %v", took)
			}
			if err := <-done; err == nil || errors.Is(err, etcdclaims.ErrUnknown) {
				t.Errorf("Complete returned %v", err)
			}
			wantIs(t, wk.Err(), etcdclaims.ErrReleased)
			w.Available("k", w.peer())
		})
	}
}
