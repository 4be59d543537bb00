package etcdclaims_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// ghosts counts the claims and places in line that are in etcd.
func (w *world) ghosts() (n int) {
	w.Helper()
	for k := range w.All() {
		if strings.HasPrefix(k, w.Own("")) || strings.HasPrefix(k, w.Prefix+"wait/") {
			n++
		}
	}
	return n
}

// noGhosts fails unless all claims and places in line are gone within so many
// round trips.
func (w *world) noGhosts(trips int) {
	w.Helper()
	time.Sleep(time.Duration(trips) * rtt)
	if n := w.ghosts(); n > 0 {
		w.Errorf("%d claims and places in line of nobody after %d round trips", n, trips)
	}
}

// Two thousand callers give up while they do not know whether they have their
// keys. What they have is undone in a few round trips.
func TestUndosShareRoundTrips(t *testing.T) {
	t.Parallel()
	n := 2000
	if testing.Short() {
		n = 500
	}
	for _, what := range []string{"claims", "work", "claims whose requests arrive late"} {
		virtualCase(t, what, func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			release(t, tryClaim(t, c, "warm"))
			arrive := make(chan struct{})
			fault := claimtest.Fault{On: steps.Take, Times: -1, LoseReply: true}
			if what == "claims whose requests arrive late" {
				fault = claimtest.Fault{On: steps.Take, Times: -1, Hold: arrive}
			}
			lose := host.Inject(fault)
			far(host)
			errs, _ := atOnce(n, func(i int) error {
				ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
				defer cancel()
				if what == "work" {
					_, err := works(c).TryBegin(ctx, key(i))
					return err
				}
				_, err := c.TryAcquire(ctx, key(i))
				return err
			})
			for _, err := range errs {
				wantIs(t, err, context.DeadlineExceeded)
			}
			lose.Remove()
			before := c.Stats().Requests
			w.noGhosts(6)
			if sent := c.Stats().Requests - before; sent > int64(20+n/50) {
				t.Errorf("%d requests to undo", sent)
			}
			close(arrive)
			w.noGhosts(1)
			host.RemoveFaults()
			for k := range w.All() {
				if strings.HasPrefix(k, w.Prefix+"work/") {
					t.Fatalf("left over: %s", k)
				}
			}
			w.CloseClean(c)
			w.NoLeases()
		})
	}
}

// Three hundred of one client give up waiting for one key at the same time: their
// places go together.
func TestPlacesOfOneKeyAreGivenUpTogether(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		other := w.peer()
		held := tryClaim(t, other, "k")
		release(t, tryClaim(t, c, "warm"))
		ctx, leave := context.WithCancel(context.Background())
		done := make(chan error, testetcd.Fewer(300, 50))
		for range cap(done) {
			go func() {
				_, err := c.Acquire(ctx, "k")
				done <- err
			}()
		}
		time.Sleep(5 * sec) // all have their places
		if n := w.ghosts(); n != cap(done)+1 {
			t.Fatalf("%d claims and places", n)
		}
		far(host)
		before := c.Stats().Requests
		leave()
		for range cap(done) {
			wantIs(t, <-done, context.Canceled)
		}
		time.Sleep(6 * rtt)
		if n := w.ghosts(); n != 1 {
			t.Errorf("%d places of nobody after 6 round trips", n-1)
		}
		if n := c.Stats().Requests - before; n == 0 || n > 30 {
			t.Errorf("%d requests", n)
		}
		release(t, held)
		w.noGhosts(1)
		host.RemoveFaults()
		w.CloseClean(c, other)
	})
}

// A cleanup does not time out while it waits for its round trip. Those of the slots of one
// key share none.
func TestCleanupsThatWaitDoNotTimeOut(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		const n, timeout = 120, 15 * sec / 6
		core, logs := observer.New(zap.WarnLevel)
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec, Logger: zap.New(core)})
		noErr(t, admin.Resize(context.Background(), c, "k", n))
		var claims []*etcdclaims.Claim
		for range n {
			claims = append(claims, tryClaim(t, c, "k", etcdclaims.Slots(n)))
		}
		host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: timeout * 4 / 5})
		begun := time.Now()
		errs, _ := atOnce(n, func(i int) error {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			return claims[i].Release(ctx)
		})
		for _, err := range errs {
			wantIs(t, err, etcdclaims.ErrUnknown)
		}
		for w.ghosts() > 1 && time.Since(begun) < time.Minute { // the record of the number of slots remains
			time.Sleep(100 * time.Millisecond)
		}
		if d := time.Since(begun); d < 2*timeout || d > 20*timeout {
			t.Errorf("all were released after %v", d)
		}
		time.Sleep(timeout)
		if failed := logs.FilterMessage("cleanup failed; retrying").All(); len(failed) > 0 {
			t.Errorf("%d cleanups failed: %v", len(failed), failed[0].ContextMap())
		}
		host.RemoveFaults()
		w.clean(c)
	})
}

// A call without a deadline ends in time, whatever etcd answers or does not.
func TestCallWithoutADeadline(t *testing.T) {
	t.Parallel()
	const bound = 7500 * time.Millisecond // half of a TTL
	many := testetcd.Fewer(100, 10)
	slow := claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 2400 * time.Millisecond}
	faults := map[string]claimtest.Fault{
		"requests lost":       {On: claimtest.Every, Times: -1, LoseRequest: true},
		"replies lost":        {On: claimtest.Every, Times: -1, LoseReply: true},
		"slow":                slow,
		"acquisitions lost":   {On: steps.Take, Times: -1, LoseRequest: true},
		"answers lost":        {On: steps.Take, Times: -1, LoseReply: true},
		"not resolved":        {On: steps.Resolve, Times: -1, LoseReply: true},
		"no word on the line": {On: claimtest.Verify, Times: -1, LoseReply: true},
	}
	calls := map[string]func(*etcdclaims.Client, int) error{
		"TryAcquire": func(c *etcdclaims.Client, i int) error {
			_, err := c.TryAcquire(context.Background(), key(i))
			return err
		},
		"TryAcquire, one key": func(c *etcdclaims.Client, i int) error {
			_, err := c.TryAcquire(context.Background(), "k")
			return err
		},
		"TryBegin": func(c *etcdclaims.Client, i int) error {
			_, err := works(c).TryBegin(context.Background(), key(i))
			return err
		},
		"TryAcquireAll": func(c *etcdclaims.Client, i int) error {
			_, err := c.TryAcquireAll(context.Background(), []string{key(2 * i), key(2*i + 1)})
			return err
		},
		"TryAcquireEach": func(c *etcdclaims.Client, i int) error {
			_, errs := c.TryAcquireEach(context.Background(), []string{key(2 * i), key(2*i + 1)})
			return errors.Join(errs...)
		},
		"Locks.TryAcquire": func(c *etcdclaims.Client, i int) error {
			_, _, err := locks.New(c).TryAcquire(context.Background(), key(i), "o", 20*sec)
			return err
		},
		"Locks.Release": func(c *etcdclaims.Client, i int) error {
			_, err := locks.New(c).Release(context.Background(), "locked"+key(i), "o")
			return err
		},
		"Locks.Renew": func(c *etcdclaims.Client, i int) error {
			_, _, err := locks.New(c).Renew(context.Background(), "locked"+key(i), "o", 40*sec)
			return err
		},
		"Lookup": func(c *etcdclaims.Client, i int) error {
			_, err := c.Lookup(context.Background(), key(i))
			return err
		},
	}
	for name, fault := range faults {
		for what, call := range calls {
			for _, warm := range []bool{true, false} {
				virtualCase(t, name+", "+what+map[bool]string{true: ", warm", false: ", cold"}[warm], func(t *testing.T, w *world) {
					c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
					if warm {
						release(t, tryClaim(t, c, "warm"))
					}
					if strings.HasPrefix(what, "Locks.Re") {
						for i := range many {
							_, ok, err := locks.New(c).TryAcquire(context.Background(), "locked"+key(i), "o", time.Hour)
							noErr(t, err)
							if !ok {
								t.Fatal("not locked")
							}
						}
					}
					if name == "not resolved" {
						host.Inject(claimtest.Fault{On: steps.Take, Times: -1, LoseReply: true})
					}
					host.Inject(fault)
					for _, n := range []int{1, many} {
						errs, last := atOnce(n, func(i int) error { return call(c, i) })
						if last > bound+2*time.Millisecond { // TryAcquireEach takes one for each key
							t.Errorf("the last of %d calls took %v: %v", n, last, errors.Join(errs[0], errs[n-1]))
						}
					}
					host.RemoveFaults()
					time.Sleep(20 * sec)
				})
			}
		}
	}
}
