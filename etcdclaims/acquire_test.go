package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// newClient returns a claims client on an etcd client, closed at the test's
// end. Clients that shall share claims are given one prefix.
func newClient(tb testing.TB, etcd *clientv3.Client, cfg etcdclaims.Config) *etcdclaims.Client {
	tb.Helper()
	c, err := newOrPassthrough(etcd, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	limit := 5 * time.Second
	if time.Now().Year() > 2020 { // in real time, on a machine that may be busy
		limit = time.Minute
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			tb.Errorf("closing: %v", err)
		}
	})
	return c
}

func TestTryAcquire(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	etcd := testetcd.Shared(t).Client(t)
	prefix := testetcd.Prefix(t)
	a := newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: "a"})
	b := newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: "b"})

	first, err := a.TryAcquire(ctx, "k", etcdclaims.Note([]byte("hello")))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.TryAcquire(ctx, "k")
	var held *etcdclaims.HeldError
	if !errors.Is(err, etcdclaims.ErrHeld) || !errors.As(err, &held) {
		t.Fatalf("second acquirer got %v, want ErrHeld", err)
	}
	if i := held.Info; i.Owner != "a" || i.Fence != first.Fence() || i.Claim != first.ID() || i.Instance != a.Instance() {
		t.Errorf("the error tells %+v", i)
	}
	if i, err := b.Lookup(ctx, "k"); err != nil || string(i.Note) != "hello" {
		t.Errorf("Lookup tells %+v, %v", i, err)
	}
	if _, err := a.TryAcquire(ctx, "k"); !errors.Is(err, etcdclaims.ErrHeld) {
		t.Errorf("the holder's own client got %v, want ErrHeld", err)
	}
	if err := first.Check(); err != nil {
		t.Error(err)
	}
	if ok, err := first.Owns(ctx); !ok || err != nil {
		t.Errorf("Owns: %v, %v", ok, err)
	}
	if err := first.Note(ctx, []byte("again")); err != nil {
		t.Error(err)
	}
	if err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := first.Release(ctx); err != nil {
		t.Errorf("releasing again: %v", err)
	}
	if !errors.Is(first.Err(), etcdclaims.ErrReleased) || !errors.Is(first.Check(), etcdclaims.ErrReleased) {
		t.Errorf("after release: %v", first.Err())
	}
	second, err := b.TryAcquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if second.Fence() <= first.Fence() {
		t.Errorf("fence went from %d to %d", first.Fence(), second.Fence())
	}
	if ok, err := a.Owns(ctx, first.Token()); ok || err != nil {
		t.Errorf("a released token owns: %v, %v", ok, err)
	}
	if ok, err := a.Owns(ctx, second.Token()); !ok || err != nil {
		t.Errorf("the owner's token does not own: %v, %v", ok, err)
	}
}

// A lease that is granted when there is no time left for work is no answer:
// another may be in time. A caller without time for another hears that its
// session was lost.
func TestLeaseGrantedTooLate(t *testing.T) {
	t.Parallel()
	const late = 1500 * time.Millisecond // of 2 s
	for _, manual := range []bool{false, true} {
		for _, patience := range []time.Duration{10 * sec, late + 500*time.Microsecond} {
			virtualCase(t, fmt.Sprintf("manual %v, %v", manual, patience), func(t *testing.T, w *world) {
				c, host := w.client(etcdclaims.Config{TTL: 30 * sec, AllowShortTTL: true})
				opts := []etcdclaims.AcquireOption{etcdclaims.TTL(2 * sec)}
				if manual {
					opts = append(opts, etcdclaims.Manual())
				}
				host.Inject(claimtest.Fault{On: claimtest.Grant, DelayReply: late})
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				cl, err := c.TryAcquire(ctx, "k", opts...)
				switch {
				case err == nil:
					w.Ours(cl)
				case patience > 2*late:
					t.Errorf("acquiring: %v", err)
				case !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("acquiring: %v, want DeadlineExceeded", err)
				case manual && !errors.Is(err, etcdclaims.ErrLost):
					t.Errorf("acquiring: %v, want ErrLost", err)
				}
			})
		}
	}
}

// Whoever waited for as long as its context allowed is told so, even if gRPC or
// etcd noticed first.
func TestDeadlineNoticedByOthersFirst(t *testing.T) {
	t.Parallel()
	for _, kind := range []claimtest.Kind{steps.Take, steps.Enqueue, steps.Advance, claimtest.Watch} {
		for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Canceled} {
			for _, before := range []time.Duration{0, time.Nanosecond, time.Millisecond} {
				virtualCase(t, fmt.Sprintf("%s, %v, %v before", kind, code, before), func(t *testing.T, w *world) {
					c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
					tryClaim(t, c, "warm")
					w.Joined(c, "waited for")
					key := "k"
					if kind != steps.Take {
						key = "waited for"
						tryClaim(t, w.peer(), key)
					}
					const patience = 2 * sec
					begin := time.Now()
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					fail := func() {
						host.Inject(claimtest.Fault{On: steps.Resolve, Times: -1, Code: code})
						host.Inject(claimtest.Fault{On: kind, DelayRequest: time.Until(begin.Add(patience - before)), Code: code})
					}
					if kind == steps.Advance {
						time.AfterFunc(sec, func() { fail(); _, _ = w.Raw.Delete(context.Background(), w.Own(key)) })
					} else {
						fail()
					}
					_, err := c.Acquire(ctx, key)
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("after %v: %v, want DeadlineExceeded", time.Since(begin), err)
					}
				})
			}
		}
	}
}

// untimely is a context that does not notice its own deadline.
type untimely struct {
	context.Context
	end time.Time
}

func (c untimely) Deadline() (time.Time, bool) { return c.end, true }

// A deadline that has passed is one, whether or not the context says so yet.
func TestDeadlineThatTheContextHasNotNoticed(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		host.Inject(claimtest.Fault{On: claimtest.Grant, DelayRequest: sec, Code: codes.PermissionDenied})
		if _, err := c.Acquire(untimely{context.Background(), time.Now().Add(sec)}, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquiring: %v, want DeadlineExceeded", err)
		}
	})
}
