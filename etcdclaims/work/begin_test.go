package work_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Another handle of the same term cannot make an ending into nothing.
func TestWorkIsNotShared(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{})
	data := testetcd.Prefix(t)
	w := tryBegin(t, a, "k")
	if cl, err := a.TryAcquire(ctx, "k", etcdclaims.Reentrant()); err != nil {
		wantIs(t, err, etcdclaims.ErrHeld)
	} else if cl.Fence() != w.Fence() {
		t.Errorf("fence %d, the work's is %d", cl.Fence(), w.Fence())
	}
	noErr(t, w.Complete(ctx, clientv3.OpPut(data+"x", "")))
	if rawKV(t, etcd, data+"x") == nil {
		t.Error("Complete returned nil and did nothing")
	}
	if i := lookUp(t, b, "k"); i.Held {
		t.Errorf("completed work is held: %+v", i)
	}
	_, err := b.TryBegin(ctx, "k")
	wantIs(t, err, work.ErrDone)
}

// Beginning itself takes operations along, too.
func TestWorkBegunWithOps(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{})
	data := testetcd.Prefix(t)
	absent := clientv3.Compare(clientv3.CreateRevision(data+"begun"), "=", 0)
	w := tryBegin(t, a, "k", etcdclaims.If(absent), etcdclaims.Then(clientv3.OpPut(data+"begun", "1")))
	kv := rawKV(t, etcd, data+"begun")
	if kv == nil || kv.ModRevision != w.Fence() {
		t.Errorf("got %v, want it written with fence %d", kv, w.Fence())
	}
	noErr(t, w.Release(ctx))
	_, err := b.TryBegin(ctx, "k", etcdclaims.If(absent), etcdclaims.Then(clientv3.OpPut(data+"begun", "2")))
	wantIs(t, err, etcdclaims.ErrRefused)
	_, err = b.Begin(ctx, "k", etcdclaims.If(absent))
	wantIs(t, err, etcdclaims.ErrRefused)
	if _, ok, err := b.Record(ctx, "k"); ok || err != nil {
		t.Errorf("a refused beginning left a record: %v, %v", ok, err)
	}
	eventually(t, "no line", func() bool { i := lookUp(t, a, "k"); return !i.Held && i.Waiting == 0 })
	if _, err := a.TryBegin(ctx, "k", work.Again(work.StateClaimed)); err == nil {
		t.Error("Again was accepted for a state that no record has")
	}
}

func TestWorkBeginWaitsForDone(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{})
	for _, tt := range []struct {
		name string
		end  func(*work.Work) error
		want error // nil: the waiter gets it
	}{
		{"completed", func(w *work.Work) error { return w.Complete(ctx) }, work.ErrDone},
		{"dead", func(w *work.Work) error { return failing(ctx, w, etcdclaims.Permanent(errors.New("x"))) }, work.ErrDead},
		{"failed", func(w *work.Work) error {
			return failing(ctx, w, etcdclaims.RetryAfter(errors.New("x"), time.Hour))
		}, work.ErrBackoff},
		{"given back", func(w *work.Work) error { return w.Release(ctx) }, nil},
		{"orphaned", func(w *work.Work) error { return w.Claim.Release(ctx) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := tryBegin(t, a, tt.name)
			const waiters = 3
			type result struct {
				w   *work.Work
				err error
			}
			results := make(chan result, waiters)
			for range waiters {
				go func() {
					w, err := b.Begin(ctx, tt.name)
					results <- result{w, err}
				}()
			}
			eventually(t, "all wait", func() bool { return b.Stats().Waiting == waiters })
			noErr(t, tt.end(w))
			for range waiters {
				r := <-results
				if tt.want != nil {
					recordOf(t, r.err, tt.want)
					continue
				}
				noErr(t, r.err)
				noErr(t, r.w.Release(ctx))
			}
			eventually(t, "no line", func() bool { i := lookUp(t, a, tt.name); return !i.Held && i.Waiting == 0 })
		})
	}
}

// waitingBegins are the calls that wait for work and run f under it.
var waitingBegins = map[string]func(ctx context.Context, c *client, key string, f func(*work.Work), opts ...work.Option) error{
	"Begin": func(ctx context.Context, c *client, key string, f func(*work.Work), opts ...work.Option) error {
		job, err := c.Begin(ctx, key, opts...)
		if err != nil {
			return err
		}
		f(job)
		return job.Complete(context.Background())
	},
	"Run": func(ctx context.Context, c *client, key string, f func(*work.Work), opts ...work.Option) error {
		return c.Runner.Run(ctx, key, func(_ context.Context, job *work.Work) error {
			f(job)
			return nil
		}, opts...)
	},
	"Once": func(ctx context.Context, c *client, key string, f func(*work.Work), opts ...work.Option) error {
		_, first, err := c.Once(ctx, key, func(context.Context) ([]byte, error) {
			f(nil)
			return nil, nil
		}, opts...)
		if err == nil && !first {
			return errors.New("the work was done already")
		}
		return err
	},
}

// Begin without a deadline waits through an outage of etcd that begins while a request of its
// own is under way, as Acquire does. It begins the work once, as its first attempt: an
// attempt that nobody knew of does not count, and is no reason to bury the work.
func TestBeginInAnOutage(t *testing.T) {
	t.Parallel()
	for name, begin := range waitingBegins {
		for _, kind := range []claimtest.Kind{steps.Take, steps.Enqueue, steps.Advance} {
			for _, carriedOut := range []bool{false, true} {
				for _, outage := range []time.Duration{9 * sec, 14 * sec, 40 * sec} {
					virtualCase(t, fmt.Sprintf("%s, %s, carried out %v, %v", name, kind, carriedOut, outage), func(t *testing.T, w *world) {
						c, host := w.client(config{TTL: 15 * sec})
						other := w.peer()
						noErr(t, tryBegin(t, c, "warm").Complete(context.Background()))
						tryClaim(t, c, "busy")
						switch kind {
						case steps.Enqueue: // the key was contended
							w.Joined(c.Client, "k")
						case steps.Advance: // the caller is in line
							held := tryClaim(t, other, "k")
							time.AfterFunc(sec, func() { release(t, held) })
						}
						lost := host.Inject(claimtest.Fault{On: kind, Key: "k", LoseReply: carriedOut, LoseRequest: !carriedOut, Saw: func(any) {
							host.CutReplies()
							time.AfterFunc(outage, host.Heal)
						}})
						calls := 0
						ctx, cancel := context.WithTimeout(context.Background(), outage+20*sec)
						defer cancel()
						err := begin(ctx, c, "k", func(job *work.Work) {
							calls++
							if job != nil {
								w.Ours(job.Claim)
							}
						}, work.AtMostOnce())
						r, ok, rerr := other.Record(context.Background(), "k")
						if err != nil || calls != 1 || rerr != nil || !ok || r.State != work.StateDone || r.Attempt != 1 {
							t.Errorf("called %d times, %v; the record is %+v, %v", calls, err, r, rerr)
						}
						if lost.Hits() != 1 {
							t.Errorf("%d requests lost", lost.Hits())
						}
						time.Sleep(15 * sec) // for a lease that was given up in the outage
						w.closeClean(c, other)
					})
				}
			}
		}
	}
}

// If the context ends in the outage, the outcome is open, and what may have been begun is
// undone once etcd is back.
func TestBeginIsCancelledInAnOutage(t *testing.T) {
	t.Parallel()
	for _, patience := range []time.Duration{6 * sec, 30 * sec} {
		virtualCase(t, patience.String(), func(t *testing.T, w *world) {
			c, host := w.client(config{TTL: 15 * sec})
			noErr(t, tryBegin(t, c, "warm").Complete(context.Background()))
			host.Inject(claimtest.Fault{On: steps.Take, LoseReply: true, Saw: func(any) { host.CutReplies() }})
			time.AfterFunc(40*sec, host.Heal)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := c.Begin(ctx, "k", work.AtMostOnce())
			wantIs(t, err, etcdclaims.ErrUnknown)
			wantIs(t, err, context.DeadlineExceeded)
			time.Sleep(time.Minute)
			if r, ok, err := c.Record(context.Background(), "k"); ok || err != nil {
				t.Errorf("the record of an attempt that nobody has: %+v, %v", r, err)
			}
			w.closeClean(c)
		})
	}
}

// Operations given with Then are not undone, so a Begin with them does not go on: they are
// carried out once, or not at all.
func TestBeginWithThenInAnOutage(t *testing.T) {
	t.Parallel()
	for _, carriedOut := range []bool{false, true} {
		virtualCase(t, fmt.Sprint("carried out ", carriedOut), func(t *testing.T, w *world) {
			c, host := w.client(config{TTL: 15 * sec})
			noErr(t, tryBegin(t, c, "warm").Complete(context.Background()))
			host.Inject(claimtest.Fault{On: steps.Take, LoseReply: carriedOut, LoseRequest: !carriedOut, Saw: func(any) { host.CutReplies() }})
			time.AfterFunc(40*sec, host.Heal)
			_, err := c.Begin(context.Background(), "k", etcdclaims.Then(clientv3.OpPut("/effect", "x")))
			wantIs(t, err, etcdclaims.ErrUnknown)
			time.Sleep(time.Minute)
			effect, err := w.Raw.Get(context.Background(), "/effect")
			noErr(t, err)
			if want := map[bool]int{true: 1}[carriedOut]; len(effect.Kvs) != want || want == 1 && effect.Kvs[0].Version != 1 {
				t.Errorf("the operation of one Begin left %v", effect.Kvs)
			}
			w.closeClean(c)
		})
	}
}
