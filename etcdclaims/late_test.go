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
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/steps"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// late is a request that is on its way for longer than its caller waits.
type late struct{ hold, ended chan struct{} }

// delayed makes the next request of the kind late.
func delayed(host *claimtest.Host, kind claimtest.Kind) *late {
	l := &late{make(chan struct{}), make(chan struct{})}
	host.Inject(claimtest.Fault{On: kind, Hold: l.hold, Ended: func(any, error) { close(l.ended) }})
	return l
}

// arrive lets etcd have the request, and waits until it has answered.
func (l *late) arrive() {
	close(l.hold)
	<-l.ended
}

// A request to claim that arrives after its caller gave up, and after that was
// undone, claims nothing.
func TestLateAcquireIsVoid(t *testing.T) {
	t.Parallel()
	calls := map[string]struct {
		kind claimtest.Kind
		call func(context.Context, *etcdclaims.Client) error
	}{
		"TryAcquire": {steps.Take, func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.TryAcquire(ctx, "k"); return err }},
		"TryBegin": {steps.Take, func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := works(c).TryBegin(ctx, "k")
			return err
		}},
		"Acquire": {steps.Enqueue, func(ctx context.Context, c *etcdclaims.Client) error { _, err := c.Acquire(ctx, "k"); return err }},
		"All": {steps.Take, func(ctx context.Context, c *etcdclaims.Client) error {
			_, err := c.TryAcquireAll(ctx, []string{"j", "k"})
			return err
		}},
		"Each": {steps.Take, func(ctx context.Context, c *etcdclaims.Client) error {
			_, errs := c.TryAcquireEach(ctx, []string{"j", "k"})
			return errors.Join(errs...)
		}},
	}
	for name, call := range calls {
		for _, held := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("%s held %v", name, held), func(t *testing.T, w *world) {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				other := w.peer()
				tryClaim(t, c, "warm")
				if call.kind == steps.Enqueue {
					w.Joined(c, "k")
				}
				undone := len(host.Sent(steps.Undo))
				var holder *etcdclaims.Claim
				if held {
					holder = tryClaim(t, other, "k")
				}
				r := delayed(host, call.kind)
				ctx, cancel := context.WithTimeout(context.Background(), sec)
				defer cancel()
				err := call.call(ctx, c)
				if !errors.Is(err, etcdclaims.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want ErrUnknown and DeadlineExceeded", err)
				}
				time.Sleep(3 * sec)
				if len(host.Sent(steps.Undo)) == undone {
					t.Error("nothing was undone")
				}
				before := w.All()
				r.arrive()
				after := w.All()
				for k, v := range after {
					if _, there := before[k]; !there {
						t.Errorf("the late request put %s = %s", k, v)
					}
				}
				if holder != nil {
					release(t, holder)
				}
				w.Available("k", other)
				w.CloseClean(c, other)
			})
		}
	}
}

// A late note does not overwrite a younger one.
func TestLateNoteIsRefused(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		virtualCase(t, fmt.Sprintf("first note %v", first), func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			cl := tryClaim(t, c, "k")
			if !first {
				if err := cl.Note(context.Background(), []byte("zero")); err != nil {
					t.Fatal(err)
				}
			}
			r := delayed(host, steps.Note)
			ctx, cancel := context.WithTimeout(context.Background(), sec)
			defer cancel()
			if err := cl.Note(ctx, []byte("old")); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, etcdclaims.ErrUnknown) {
				t.Errorf("got %v", err)
			}
			if err := cl.Note(context.Background(), []byte("young")); err != nil {
				t.Fatal(err)
			}
			r.arrive()
			if i, err := c.Lookup(context.Background(), "k"); err != nil || string(i.Note) != "young" {
				t.Errorf("note is %q, %v", i.Note, err)
			}
			// And after the release none comes back.
			r = delayed(host, steps.Note)
			ctx, cancel = context.WithTimeout(context.Background(), sec)
			defer cancel()
			_ = cl.Note(ctx, []byte("ghost"))
			release(t, cl)
			r.arrive()
			w.CloseClean(c)
		})
	}
}

// A release that arrives again, after the key has another owner, frees nothing.
func TestLateReleaseIsRefused(t *testing.T) {
	t.Parallel()
	ends := map[string]func(context.Context, *work.Work) error{
		"Release claim": func(ctx context.Context, wk *work.Work) error { return wk.Claim.Release(ctx) },
		"Complete":      func(ctx context.Context, wk *work.Work) error { return wk.Complete(ctx) },
		"Fail": func(ctx context.Context, wk *work.Work) error {
			return failing(ctx, wk, etcdclaims.RetryAfter(errors.New("oops"), 0))
		},
		"Release work": func(ctx context.Context, wk *work.Work) error { return wk.Release(ctx) },
	}
	for name, end := range ends {
		virtualCase(t, name, func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			other := w.peer()
			wk := tryBegin(t, c, "k")
			r := delayed(host, claimtest.Ending)
			ctx, cancel := context.WithTimeout(context.Background(), sec)
			defer cancel()
			if err := end(ctx, wk); !errors.Is(err, etcdclaims.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want ErrUnknown and DeadlineExceeded", err)
			}
			if wk.Check() == nil {
				t.Error("still held by its own account")
			}
			time.Sleep(5 * sec) // done in the background
			next, err := other.TryAcquire(context.Background(), "k")
			if err != nil {
				t.Fatalf("the key is not free: %v", err)
			}
			record := w.get("work/k")
			r.arrive()
			if ok, err := next.Owns(context.Background()); !ok || err != nil {
				t.Errorf("the late request ended the next owner's claim: %v, %v", ok, err)
			}
			if got := w.get("work/k"); got != record {
				t.Errorf("record was %s, is %s", record, got)
			}
			w.CloseClean(c, other)
		})
	}
}

// Callers that give up while they ride leave nothing, however late the round
// trip arrives, and those that stay get what they came for.
func TestLateCoalescedIsVoidForThoseWhoLeft(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		const n = 40
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		other := w.peer()
		tryClaim(t, c, "warm")
		host.Inject(claimtest.Fault{On: steps.Take, Times: 2, DelayRequest: 100 * time.Millisecond})
		host.Inject(claimtest.Fault{On: steps.Take, DelayRequest: 1500 * time.Millisecond})
		claims := make([]*etcdclaims.Claim, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+i%2*9)*sec)
				defer cancel()
				cl, err := c.TryAcquire(ctx, fmt.Sprint("k", i))
				if i%2 == 1 && err != nil || i%2 == 0 && err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("k%d: %v", i, err)
				}
				claims[i] = cl
			})
		}
		wg.Wait()
		time.Sleep(3 * sec)
		left := 0
		for i, cl := range claims {
			if cl != nil {
				if ok, err := cl.Owns(context.Background()); !ok || err != nil {
					t.Errorf("k%d: %v, %v", i, ok, err)
				}
				continue
			}
			left++
			w.Available(fmt.Sprint("k", i), other)
		}
		if left < n/2-2 {
			t.Errorf("%d of %d gave up", left, n)
		}
		w.CloseClean(c, other)
	})
}

// lateWords lets word of hand-overs be on its way to the host for so long, and
// what else would wake a waiter for longer.
func lateWords(host *claimtest.Host, d time.Duration) {
	host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, Edit: func(reply any) {
		for _, ev := range reply.(*pb.WatchResponse).Events {
			if strings.Contains(string(ev.Kv.Key), "/won/") {
				time.Sleep(d)
			} else {
				time.Sleep(d + sec)
			}
		}
	}})
}

// Word of a hand-over that is on its way for longer than claims go unverified
// does not become a claim if somebody took the key away meanwhile.
func TestLateWordOfALostKey(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		lateWords(host, 8*sec)
		tryClaim(t, b, "warm") // and with it the one watch begins
		held := tryClaim(t, a, "k")
		done := acquiring(context.Background(), b, "k")
		time.Sleep(sec)
		release(t, held)
		w.Server.Delete(t, w.Own("k"))
		if r := <-done; r.err == nil {
			w.Ours(r.cl)
			release(t, r.cl)
		} else if !errors.Is(r.err, etcdclaims.ErrLost) {
			t.Errorf("acquiring: %v", r.err)
		}
		time.Sleep(sec)
		w.Available("k", a)
		w.CloseClean(a, b)
	})
}

// Nor does it harm the claim that the same client has made on the key since.
func TestLateWordMeetsAYoungerClaim(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		lateWords(host, 2*sec) // soon enough to be believed until claims are verified
		tryClaim(t, b, "warm") // and with it the one watch begins
		held := tryClaim(t, a, "k")
		done := acquiring(context.Background(), b, "k")
		time.Sleep(sec)
		release(t, held)
		w.Server.Delete(t, w.Own("k"))
		young := tryClaim(t, b, "k")
		if r := <-done; r.err == nil {
			t.Logf("believed for a while: fence %d", r.cl.Fence())
		}
		time.Sleep(6 * sec)
		w.Ours(young)
		host.RemoveFaults()
		end := refuseWatches(host, refusals["no leader"]) // there may have been a restore
		time.Sleep(sec)
		end()
		time.Sleep(6 * sec)
		w.Ours(young)
		w.CloseClean(a, b)
	})
}

// Calls of two sessions do not share what makes a late request void: else it would end with the
// lease of one, and the request could claim the key of the other for nobody.
func TestLateAcquireIsVoidThoughAnotherLeaseEnds(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		other := w.peer()
		tryClaim(t, c, "warm")
		tryClaim(t, other, "held")
		hold, done := make(chan struct{}), make(chan error, 4)
		host.Inject(claimtest.Fault{On: steps.Take, Times: 2, DelayRequest: 200 * time.Millisecond})
		host.Inject(claimtest.Fault{On: steps.Take, Times: 2, Hold: hold})
		try := func(key string, d time.Duration, opts ...etcdclaims.AcquireOption) {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			_, err := c.TryAcquire(ctx, key, opts...)
			done <- err
		}
		go try("first", 5*sec)
		go try("second", 5*sec)
		time.Sleep(50 * time.Millisecond)
		go try("k", sec)
		go try("held", 1200*time.Millisecond, etcdclaims.Manual()) // on a lease that ends with the call
		for range 4 {
			if err := <-done; err != nil && !errors.Is(err, etcdclaims.ErrUnknown) {
				t.Errorf("got %v", err)
			}
		}
		time.Sleep(3 * sec)
		close(hold)
		time.Sleep(sec)
		w.Available("k", other)
	})
}
