package work_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Of many who begin at once one does the work.
func TestWorkOfManyIsDoneOnce(t *testing.T) {
	t.Parallel()
	virtualCase(t, "two clients", func(t *testing.T, w *world) {
		cs := []*client{w.peer(), w.peer()}
		errs, _ := atOnce(8, func(i int) error {
			job, err := cs[i%2].Begin(t.Context(), "k")
			if err != nil {
				return err
			}
			return job.Complete(t.Context())
		})
		done := 0
		for _, err := range errs {
			if err == nil {
				done++
			} else {
				wantIs(t, err, work.ErrDone)
			}
		}
		if done != 1 {
			t.Errorf("%d have done the work", done)
		}
	})
}

// Many callers wait for one piece of work, and have its outcome as soon as it is
// recorded: not one after the other, and by few requests.
func TestOutcomeReachesAllWhoWait(t *testing.T) {
	t.Parallel()
	const callers = 400
	for _, clients := range []int{1, 20} {
		for call, begin := range waitsForWork {
			for end, want := range map[string]error{"done": work.ErrDone, "dead": work.ErrDead, "failed": work.ErrBackoff} {
				virtualCase(t, fmt.Sprint(clients, " ", call, " ", end), func(t *testing.T, w *world) {
					holder := tryBegin(t, w.peer(), "k")
					cs := w.crowd(clients)
					before := int64(0)
					var ended time.Time
					go func() {
						time.Sleep(10 * sec)
						before, ended = requestsOf(cs), time.Now()
						switch end {
						case "done":
							noErr(t, holder.CompleteWith(context.Background(), []byte("x")))
						case "dead":
							_, err := holder.Fail(context.Background(), etcdclaims.Permanent(errors.New("no")))
							noErr(t, err)
						default:
							_, err := holder.Fail(context.Background(), etcdclaims.RetryAfter(errors.New("no"), time.Hour))
							noErr(t, err)
						}
					}()
					errs, _ := atOnce(callers, func(i int) error { return begin(cs[i%clients], "k") })
					last := time.Since(ended)
					for _, err := range errs {
						if call == "Once" && end == "done" {
							noErr(t, err)
						} else {
							wantIs(t, err, want)
						}
					}
					requests := requestsOf(cs) - before
					if last > 10*rtt {
						t.Errorf("the last has the outcome %v after it was recorded", last)
					}
					if most := int64(20 * clients); requests > most {
						t.Errorf("%d requests, at most %d are due", requests, most)
					}
				})
			}
		}
	}
}

// waitsForWork are the calls that wait for work.
var waitsForWork = map[string]func(c *client, key string) error{
	"Begin": func(c *client, key string) error { _, err := c.Begin(context.Background(), key); return err },
	"Run": func(c *client, key string) error {
		return c.Runner.Run(context.Background(), key, func(context.Context, *work.Work) error { return nil })
	},
	"Once": func(c *client, key string) error {
		result, first, err := c.Once(context.Background(), key, func(context.Context) ([]byte, error) { return nil, errors.New("called") })
		if err == nil && (first || string(result) != "x") {
			return fmt.Errorf("result %q, first: %v", result, first)
		}
		return err
	},
}

// A caller that has missed the outcome reads it for all others of its client. That
// takes no longer than to find out that a holder has died.
func TestOutcomeReachesTheDeaf(t *testing.T) {
	t.Parallel()
	for how, fault := range deafness.Kinds() {
		virtualCase(t, how, func(t *testing.T, w *world) {
			holder := tryBegin(t, w.peer(), "k")
			c, host := w.client(config{TTL: 15 * sec})
			host.Inject(fault)
			var ended time.Time
			time.AfterFunc(10*sec, func() {
				ended = time.Now()
				noErr(t, holder.CompleteWith(context.Background(), []byte("x")))
			})
			errs, _ := atOnce(100, func(int) error { return waitsForWork["Once"](c, "k") })
			noErr(t, errors.Join(errs...))
			if n := c.Stats().Requests; n > 60 {
				t.Errorf("%d requests", n)
			}
			if last := time.Since(ended); last > 11*sec {
				t.Errorf("the last has the outcome after %v", last)
			}
		})
	}
}

// Callers that wait for work which fails, or is given back, begin it one after the other.
// Those that give up meanwhile keep nobody from it, and name its holder.
func TestWaitersForWorkTakeTurns(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		owner := w.peer()
		c, _ := w.client(config{TTL: 15 * sec, MaxAttempts: -1})
		holder := tryBegin(t, owner, "k")
		begun := make(chan int, 9)
		for i := range 9 {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if i%3 == 0 { // the first among them
					ctx, cancel = context.WithTimeout(context.Background(), 10*sec)
					defer cancel()
				}
				wk, err := c.Begin(ctx, "k")
				if i%3 > 0 {
					noErr(t, err)
					begun <- i
					noErr(t, failing(context.Background(), wk, etcdclaims.RetryAfter(errors.New("no"), 0)))
					return
				}
				var wait *etcdclaims.WaitError
				if !errors.As(err, &wait) || wait.Info.Claim != holder.ID() {
					t.Errorf("caller %d: %v", i, err)
				}
			}()
			time.Sleep(10 * time.Millisecond)
		}
		if n := c.Stats().Waiting; n != 9 {
			t.Errorf("%d wait", n)
		}
		time.Sleep(20 * sec)
		noErr(t, holder.Release(context.Background()))
		for _, want := range []int{1, 2, 4, 5, 7, 8} {
			select {
			case i := <-begun:
				if i != want {
					t.Errorf("caller %d begins, want %d", i, want)
				}
			case <-time.After(10 * sec):
				t.Fatalf("caller %d does not begin", want)
			}
		}
		time.Sleep(sec)
		if n := c.Stats().Waiting; n != 0 {
			t.Errorf("%d wait", n)
		}
		w.closeClean(c, owner)
	})
}

// An outcome that was forgotten before a caller came is not its answer, however late it
// becomes known.
func TestForgottenOutcomeIsNoAnswer(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		owner := w.peer()
		c, host := w.client(config{TTL: 15 * sec})
		var late atomic.Bool
		host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, Edit: func(any) {
			if late.Load() {
				time.Sleep(3 * sec)
			}
		}})
		job := tryBegin(t, owner, "k")
		again := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { // whose client watches the record
			_, err := c.Begin(ctx, "k", work.Again(work.StateDone))
			again <- err
		}()
		time.Sleep(sec)
		late.Store(true)
		slow := host.Inject(claimtest.Fault{On: claimtest.Acquire, Times: -1, DelayRequest: 500 * time.Millisecond})
		noErr(t, job.CompleteWith(context.Background(), []byte("old")))
		noErr(t, owner.Forget(context.Background(), "k"))
		_, err := w.Raw.Delete(context.Background(), w.Prefix+"wait/", clientv3.WithPrefix()) // so that the owner is before c again
		noErr(t, err)
		job = tryBegin(t, owner, "k")
		slow.Remove()
		result := make(chan string, 1)
		go func() {
			b, _, err := c.Once(context.Background(), "k", func(context.Context) ([]byte, error) { return nil, errors.New("called") })
			noErr(t, err)
			result <- string(b)
		}()
		time.Sleep(2 * sec)
		cancel()
		<-again
		time.Sleep(8 * sec)
		late.Store(false)
		noErr(t, job.CompleteWith(context.Background(), []byte("new")))
		if got := <-result; got != "new" {
			t.Errorf("got the result %q", got)
		}
	})
}

// Whatever many callers wait with, a hand-over costs a few requests and round trips.
func TestHotKeyOfWaitingCalls(t *testing.T) {
	t.Parallel()
	const callers = 100
	acquiring := func(opts ...etcdclaims.AcquireOption) func(c *client) error {
		return func(c *client) error {
			cl, err := c.Acquire(context.Background(), "k", opts...)
			if err == nil {
				err = cl.Release(context.Background())
			}
			return err
		}
	}
	for name, call := range map[string]func(c *client) error{
		"Acquire":     acquiring(),
		"Note":        acquiring(etcdclaims.Note([]byte("x"))),
		"Manual":      acquiring(etcdclaims.Manual()),
		"MaxHold":     acquiring(etcdclaims.MaxHold(10 * sec)),
		"Prefer":      acquiring(etcdclaims.Prefer(1)),
		"Suspectable": acquiring(etcdclaims.Suspectable()),
		"Slots":       acquiring(etcdclaims.Slots(1)),
		"Shared":      acquiring(etcdclaims.Shared()),
		"Run": func(c *client) error {
			return c.Client.Run(context.Background(), "k", func(context.Context) error { return nil })
		},
		"Begin": func(c *client) error {
			job, err := c.Begin(context.Background(), "k")
			if err == nil {
				err = job.Release(context.Background())
			}
			return err
		},
		"Runner.Run": func(c *client) error {
			err := c.Runner.Run(context.Background(), "k", func(context.Context, *work.Work) error { return etcdclaims.RetryAfter(errors.New("no"), 0) })
			if errors.Is(err, work.ErrBackoff) {
				return nil
			}
			return err
		},
	} {
		for _, clients := range []int{1, 10} {
			virtualCase(t, fmt.Sprint(name, " ", clients), func(t *testing.T, w *world) {
				var opts []etcdclaims.AcquireOption
				if name == "Slots" {
					opts = append(opts, etcdclaims.Slots(1))
				}
				holder := tryClaim(t, w.peer(), "k", opts...)
				cs := w.crowd(clients)
				var ended time.Time
				time.AfterFunc(10*sec, func() { ended = time.Now(); release(t, holder) })
				errs, _ := atOnce(callers, func(i int) error { return call(cs[i%clients]) })
				noErr(t, errors.Join(errs...))
				if each := time.Since(ended) / callers; each > 6*rtt {
					t.Errorf("a hand-over takes %v", each)
				}
				if each := requestsOf(cs) / callers; each > 16 {
					t.Errorf("%d requests a caller", each)
				}
			})
		}
	}
}

// crowd returns clients that are a round trip away from etcd.
func (w *world) crowd(n int) (cs []*client) {
	for range n {
		c, host := w.client(config{TTL: 15 * sec, MaxAttempts: -1})
		host.Inject(claimtest.Fault{Times: -1, DelayRequest: rtt})
		cs = append(cs, c)
	}
	return cs
}

// requestsOf is how many requests the clients have sent.
func requestsOf(cs []*client) (n int64) {
	for _, c := range cs {
		n += c.Stats().Requests
	}
	return n
}
