package work_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// noErr ends the test on an error.
func noErr(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// wantIs ends the test on an error that does not match.
func wantIs(tb testing.TB, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Fatalf("got %v, want an error that matches %q", err, target)
	}
}

func tryClaim(tb testing.TB, c *client, key string, opts ...etcdclaims.AcquireOption) *etcdclaims.Claim {
	tb.Helper()
	cl, err := c.TryAcquire(tb.Context(), key, opts...)
	if err != nil {
		tb.Fatalf("acquiring %s: %v", key, err)
	}
	return cl
}

func tryBegin(tb testing.TB, c *client, key string, opts ...work.Option) *work.Work {
	tb.Helper()
	w, err := c.TryBegin(tb.Context(), key, opts...)
	noErr(tb, err)
	return w
}

// failing fails work whose outcome does not matter.
func failing(ctx context.Context, w *work.Work, cause error, ops ...clientv3.Op) error {
	_, err := w.Fail(ctx, cause, ops...)
	return err
}

// orphansOf returns up to limit orphans, 0 for all.
func orphansOf(ctx context.Context, c *client, limit int) ([]work.Record, error) {
	var out []work.Record
	for r, err := range c.Orphans(ctx, "") {
		if err != nil {
			return nil, err
		}
		if out = append(out, r); len(out) == limit {
			break
		}
	}
	return out, nil
}

// recordOf returns the record in an error of TryBegin that matches target.
func recordOf(tb testing.TB, err, target error) work.Record {
	tb.Helper()
	wantIs(tb, err, target)
	var we *work.Error
	if !errors.As(err, &we) {
		tb.Fatalf("%v carries no record", err)
	}
	return we.Record
}

func lookUp(tb testing.TB, c *client, key string) etcdclaims.Info {
	tb.Helper()
	i, err := c.Lookup(tb.Context(), key)
	noErr(tb, err)
	return i
}

// eventually waits until ok says so.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited in vain: %s", what)
		}
	}
}

// rawKV reads a key as an operator would, nil if it is not there.
func rawKV(tb testing.TB, etcd *clientv3.Client, key string) *mvccpb.KeyValue {
	tb.Helper()
	resp, err := etcd.Get(tb.Context(), key)
	noErr(tb, err)
	if len(resp.Kvs) == 0 {
		return nil
	}
	return resp.Kvs[0]
}

// vanish ends the lease of a key's holder, as its death would in time.
func vanish(tb testing.TB, etcd *clientv3.Client, c *client, key string) {
	tb.Helper()
	i := lookUp(tb, c, key)
	if i.Lease == 0 {
		tb.Fatalf("key %q has no lease: %+v", key, i)
	}
	_, err := etcd.Revoke(tb.Context(), i.Lease)
	noErr(tb, err)
}

// twoOwners returns two claims clients with owners a and b on one prefix.
func twoOwners(tb testing.TB, etcd *clientv3.Client, cfg config) (a, b *client, prefix string) {
	tb.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = testetcd.Prefix(tb)
	}
	cfg.Owner = "a"
	a = newClient(tb, etcd, cfg)
	cfg.Owner = "b"
	return a, newClient(tb, etcd, cfg), cfg.Prefix
}

func TestWorkCompleteWithOps(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{})
	data := testetcd.Prefix(t)

	before := time.Now().Add(-time.Second)
	w := tryBegin(t, a, "order/1")
	if w.Attempt() != 1 {
		t.Errorf("first attempt is %d", w.Attempt())
	}
	if r, ok := w.Previous(); ok {
		t.Errorf("first attempt has a previous record %+v", r)
	}
	if i := lookUp(t, b, "order/1"); i.Attempt != 1 || i.Owner != "a" || i.Fence != w.Fence() {
		t.Errorf("Lookup says %+v", i)
	}
	_, err := b.TryBegin(ctx, "order/1")
	wantIs(t, err, etcdclaims.ErrHeld)
	_, err = b.TryAcquire(ctx, "order/1")
	wantIs(t, err, etcdclaims.ErrHeld)
	if r, ok, err := b.Record(ctx, "order/1"); err != nil || !ok || r.State != work.StateClaimed || r.Fence != w.Fence() ||
		r.Attempt != 1 || r.Owner != "a" || r.Claim != w.ID() || r.Instance != a.Instance() || r.Key != "order/1" || !r.Ended.IsZero() || r.Begun.Before(before) {
		t.Errorf("record of claimed work: %+v, %v, %v", r, ok, err)
	}
	noErr(t, w.Complete(ctx, clientv3.OpPut(data+"effect", "1"), clientv3.OpPut(data+"log", "x")))
	if kv := rawKV(t, etcd, data+"effect"); kv == nil || string(kv.Value) != "1" {
		t.Errorf("effect is %v", kv)
	}
	wantIs(t, w.Err(), etcdclaims.ErrReleased)
	select {
	case <-w.Done():
	default:
		t.Error("completed work is not Done")
	}
	if i := lookUp(t, b, "order/1"); i.Held {
		t.Errorf("completed work is held: %+v", i)
	}
	for name, begin := range map[string]func() error{
		"TryBegin": func() error { _, err := b.TryBegin(ctx, "order/1"); return err },
		"Begin":    func() error { _, err := b.Begin(ctx, "order/1"); return err },
		"again":    func() error { _, err := a.TryBegin(ctx, "order/1"); return err },
	} {
		if r := recordOf(t, begin(), work.ErrDone); r.State != work.StateDone || r.Owner != "a" || r.Fence != w.Fence() || r.Attempt != 1 || r.Ended.Before(before) {
			t.Errorf("%s: record %+v", name, r)
		}
	}
	// The refused beginnings left neither a claim nor a place in line.
	eventually(t, "no line", func() bool { i := lookUp(t, b, "order/1"); return !i.Held && i.Waiting == 0 })
	tryClaim(t, b, "order/1") // a claim without a record does not ask for one
}

func TestWorkCompleteTwice(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, _ := twoOwners(t, etcd, config{})
	data := testetcd.Prefix(t)
	w := tryBegin(t, a, "k")
	noErr(t, w.Complete(ctx))
	wantIs(t, w.Complete(ctx, clientv3.OpPut(data+"x", "")), etcdclaims.ErrReleased)
	wantIs(t, failing(ctx, w, errors.New("late"), clientv3.OpPut(data+"x", "")), etcdclaims.ErrReleased)
	noErr(t, w.Release(ctx)) // as a claim's
	if rawKV(t, etcd, data+"x") != nil {
		t.Error("a second ending had an effect")
	}
	if s := a.Stats(); s.Completed != 1 || s.Failed != 0 || s.Released != 1 {
		t.Errorf("stats %+v", s)
	}
	r, ok, err := a.Record(ctx, "k")
	if err != nil || !ok || r.State != work.StateDone {
		t.Errorf("record %+v, %v, %v", r, ok, err)
	}
}

// One of many concurrent endings counts, with its effect.
func TestWorkEndedConcurrently(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, _ := twoOwners(t, etcd, config{})
	data := testetcd.Prefix(t)
	for round := range 5 {
		key := fmt.Sprint(round)
		w := tryBegin(t, a, key)
		errs := make(chan error, 8)
		for i := range cap(errs) {
			go func() { errs <- w.Complete(ctx, clientv3.OpPut(fmt.Sprint(data, key, "/", i), "")) }()
		}
		done := 0
		for range cap(errs) {
			switch err := <-errs; {
			case err == nil:
				done++
			case !errors.Is(err, etcdclaims.ErrReleased):
				t.Error(err)
			}
		}
		resp, err := etcd.Get(ctx, data+key+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		noErr(t, err)
		if resp.Count != 1 || done != 1 {
			t.Errorf("%d endings had an effect, and %d returned nil", resp.Count, done)
		}
	}
	if s := a.Stats(); s.Completed != 5 || s.Released != 5 {
		t.Errorf("stats %+v", s)
	}
}

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

func TestWorkCompleteAfterLoss(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	data := testetcd.Prefix(t)
	for name, lose := range map[string]func(t *testing.T, b *client, prefix string){
		"deleted": func(t *testing.T, _ *client, prefix string) {
			_, err := etcd.Delete(ctx, prefix+"own/k")
			noErr(t, err)
		},
		"lease revoked": func(t *testing.T, b *client, _ string) { vanish(t, etcd, b, "k") },
		"taken over": func(t *testing.T, b *client, _ string) {
			vanish(t, etcd, b, "k")
			tryBegin(t, b, "k")
		},
		"forced": func(t *testing.T, b *client, _ string) { noErr(t, admin.ForceRelease(ctx, b.Client, "k", "test")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, prefix := twoOwners(t, etcd, config{})
			w := tryBegin(t, a, "k")
			lose(t, b, prefix)
			before, _, err := b.Record(ctx, "k")
			noErr(t, err)
			wantIs(t, w.Complete(ctx, clientv3.OpPut(data+"x", "")), etcdclaims.ErrLost)
			wantIs(t, failing(ctx, w, nil, clientv3.OpPut(data+"x", "")), etcdclaims.ErrLost)
			wantIs(t, w.Release(ctx), etcdclaims.ErrLost)
			wantIs(t, w.Check(), etcdclaims.ErrLost)
			if rawKV(t, etcd, data+"x") != nil {
				t.Error("work was ended with effect after its loss")
			}
			if after, _, err := b.Record(ctx, "k"); err != nil || after != before {
				t.Errorf("record went from %+v to %+v, %v", before, after, err)
			}
			if s := a.Stats(); s.Completed+s.Failed+s.Released != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestWorkFailWaits(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx := t.Context()
		var asked []int
		a, b, _ := twoOwners(t, server.Etcd(t), config{
			MaxAttempts: 3,
			Backoff: func(attempt int) time.Duration {
				asked = append(asked, attempt)
				return time.Duration(attempt) * time.Minute
			},
		})
		for attempt, c := range []*client{a, b} {
			attempt++
			w := tryBegin(t, c, "k")
			if w.Attempt() != attempt {
				t.Fatalf("attempt %d, want %d", w.Attempt(), attempt)
			}
			failed := time.Now()
			noErr(t, failing(ctx, w, fmt.Errorf("reason %d", attempt)))
			wait := time.Duration(attempt) * time.Minute
			for _, begin := range []func(context.Context, string, ...work.Option) (*work.Work, error){a.TryBegin, b.TryBegin, b.Begin} {
				_, err := begin(ctx, "k")
				r := recordOf(t, err, work.ErrBackoff)
				if d := r.NotBefore.Sub(failed); d < wait || d > wait+time.Second || r.State != work.StateFailed ||
					r.Error != fmt.Sprintf("reason %d", attempt) || r.Attempt != attempt || r.Fence != w.Fence() {
					t.Errorf("record %+v, waits for %v", r, d)
				}
			}
			time.Sleep(wait - 2*time.Second)
			_, err := a.TryBegin(ctx, "k")
			wantIs(t, err, work.ErrBackoff)
			time.Sleep(3 * time.Second)
		}
		w := tryBegin(t, a, "k")
		if r, ok := w.Previous(); !ok || r.State != work.StateFailed || r.Error != "reason 2" || r.Owner != "b" || r.Attempt != 2 {
			t.Errorf("previous %+v, %v", r, ok)
		}
		noErr(t, failing(ctx, w, errors.New("last")))
		_, err := b.TryBegin(ctx, "k")
		if r := recordOf(t, err, work.ErrDead); r.State != work.StateDead || r.Attempt != 3 || r.Error != "last" {
			t.Errorf("record %+v", r)
		}
		if fmt.Sprint(asked) != "[1 2]" {
			t.Errorf("backoff was asked for %v", asked)
		}
		time.Sleep(time.Hour)
		_, err = b.TryBegin(ctx, "k")
		wantIs(t, err, work.ErrDead)
	})
}

func TestWorkRetryAfter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx := t.Context()
		a, b, _ := twoOwners(t, server.Etcd(t), config{Backoff: func(int) time.Duration { return time.Hour }})
		cause := errors.New("busy")
		noErr(t, failing(ctx, tryBegin(t, a, "k"), fmt.Errorf("outer: %w", etcdclaims.RetryAfter(cause, time.Minute))))
		_, err := b.TryBegin(ctx, "k")
		if r := recordOf(t, err, work.ErrBackoff); r.Error != "outer: busy" || time.Until(r.NotBefore) > time.Minute {
			t.Errorf("record %+v", r)
		}
		time.Sleep(time.Minute + time.Second)
		w := tryBegin(t, b, "k")
		noErr(t, failing(ctx, w, etcdclaims.RetryAfter(cause, -time.Minute))) // at once
		time.Sleep(time.Second)
		if w := tryBegin(t, a, "k"); w.Attempt() != 3 {
			t.Errorf("attempt %d", w.Attempt())
		}
	})
}

func TestWorkPermanent(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, config{MaxAttempts: -1})
	data := testetcd.Prefix(t)
	cause := errors.New("no such customer")
	noErr(t, failing(ctx, tryBegin(t, a, "k"), fmt.Errorf("outer: %w", etcdclaims.Permanent(cause)), clientv3.OpPut(data+"x", "")))
	_, err := b.TryBegin(ctx, "k")
	if r := recordOf(t, err, work.ErrDead); r.Error != "outer: no such customer" || r.Attempt != 1 {
		t.Errorf("record %+v", r)
	}
	_, err = b.Begin(ctx, "k")
	wantIs(t, err, work.ErrDead)
	if rawKV(t, etcd, data+"x") == nil {
		t.Error("the failure's own operation was not carried out")
	}
	if kv := rawKV(t, etcd, prefix+"work/k"); kv == nil || kv.Lease == 0 {
		t.Errorf("dead work must not be kept for ever: %v", kv)
	}
	if rawKV(t, etcd, prefix+"own/k") != nil {
		t.Error("dead work is held")
	}
	noErr(t, failing(ctx, tryBegin(t, a, "nil cause"), nil))
	if r, ok, err := a.Record(ctx, "nil cause"); err != nil || !ok || r.State != work.StateFailed || r.Error == "" {
		t.Errorf("record %+v, %v, %v", r, ok, err)
	}
	noErr(t, failing(ctx, tryBegin(t, a, "long"), errors.New(strings.Repeat("x", 1<<20))))
	if r, _, err := a.Record(ctx, "long"); err != nil || len(r.Error) > 5000 || len(r.Error) < 4000 {
		t.Errorf("a text of %d bytes is recorded, %v", len(r.Error), err)
	}
}

func TestWorkNoLimitOfAttempts(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, _ := twoOwners(t, etcd, config{MaxAttempts: -1})
	for i := range 25 {
		w := tryBegin(t, a, "k")
		if w.Attempt() != i+1 {
			t.Fatalf("attempt %d, want %d", w.Attempt(), i+1)
		}
		noErr(t, failing(ctx, w, etcdclaims.RetryAfter(errors.New("again"), 0)))
	}
}

func TestWorkRelease(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, config{})
	first := tryBegin(t, a, "k")
	noErr(t, first.Release(ctx))
	noErr(t, first.Release(ctx))
	if kv := rawKV(t, etcd, prefix+"work/k"); kv != nil {
		t.Errorf("a first attempt that was given back left %s", kv.Value)
	}
	if r, ok, err := b.Record(ctx, "k"); ok || err != nil {
		t.Errorf("record %+v, %v, %v", r, ok, err)
	}
	w := tryBegin(t, b, "k")
	if w.Attempt() != 1 || w.Fence() <= first.Fence() {
		t.Errorf("attempt %d, fence %d after %d", w.Attempt(), w.Fence(), first.Fence())
	}
	noErr(t, failing(ctx, w, etcdclaims.RetryAfter(errors.New("broken"), 0)))
	// The second attempt, given back, does not count, and the failure before
	// it is not forgotten.
	w = tryBegin(t, a, "k")
	if w.Attempt() != 2 {
		t.Errorf("attempt %d", w.Attempt())
	}
	noErr(t, w.Release(ctx))
	if r, ok, err := b.Record(ctx, "k"); err != nil || !ok || r.State != work.StateFree || r.Attempt != 1 || r.Error != "broken" {
		t.Errorf("record %+v, %v, %v", r, ok, err)
	}
	w = tryBegin(t, b, "k")
	if r, ok := w.Previous(); w.Attempt() != 2 || !ok || r.State != work.StateFree || r.Owner != "a" || r.Error != "broken" {
		t.Errorf("attempt %d, previous %+v, %v", w.Attempt(), r, ok)
	}
	if s := a.Stats(); s.Released != 2 || s.Completed+s.Failed != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestWorkRetention(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx := t.Context()
		etcd := server.Etcd(t)
		a, b, prefix := twoOwners(t, etcd, config{Retention: 10 * time.Minute})
		leaseOf := func(key string) int64 {
			kv := rawKV(t, etcd, prefix+"work/"+key)
			if kv == nil || kv.Lease == 0 {
				t.Fatalf("done work %q: %v", key, kv)
			}
			return kv.Lease
		}
		begin := time.Now()
		for i := range 200 {
			noErr(t, tryBegin(t, a, fmt.Sprint(i)).Complete(ctx))
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Fatalf("took %v of virtual time", took)
		}
		for i := range 200 {
			if leaseOf(fmt.Sprint(i)) != leaseOf("0") {
				t.Fatalf("work %d is not on the lease of work 0, made moments before", i)
			}
		}
		time.Sleep(2 * time.Minute)
		noErr(t, tryBegin(t, a, "later").Complete(ctx))
		if leaseOf("later") == leaseOf("0") {
			t.Error("work done later is forgotten too early")
		}
		time.Sleep(10*time.Minute - 5*time.Second - time.Since(begin))
		_, err := b.TryBegin(ctx, "0")
		wantIs(t, err, work.ErrDone)
		time.Sleep(time.Minute + 30*time.Second)
		w := tryBegin(t, b, "0")
		if r, ok := w.Previous(); ok || w.Attempt() != 1 {
			t.Errorf("after the retention: attempt %d, previous %+v", w.Attempt(), r)
		}
		_, err = b.TryBegin(ctx, "later")
		wantIs(t, err, work.ErrDone)
		time.Sleep(3 * time.Minute)
		tryBegin(t, b, "later")
	})
}

func TestWorkRetainedForEver(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		etcd := server.Etcd(t)
		a, b, prefix := twoOwners(t, etcd, config{Retention: -1})
		noErr(t, tryBegin(t, a, "k").Complete(t.Context()))
		if kv := rawKV(t, etcd, prefix+"work/k"); kv == nil || kv.Lease != 0 {
			t.Errorf("record %v", kv)
		}
		time.Sleep(30 * time.Minute)
		_, err := b.TryBegin(t.Context(), "k")
		wantIs(t, err, work.ErrDone)
	})
}

func TestWorkRetentionLeaseRevoked(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, config{})
	data := testetcd.Prefix(t)
	noErr(t, tryBegin(t, a, "1").Complete(ctx))
	other := tryClaim(t, a, "other")
	kv := rawKV(t, etcd, prefix+"work/1")
	_, err := etcd.Revoke(ctx, clientv3.LeaseID(kv.Lease))
	noErr(t, err)
	w := tryBegin(t, a, "2")
	noErr(t, w.Complete(ctx, clientv3.OpPut(data+"x", "")))
	if rawKV(t, etcd, data+"x") == nil {
		t.Error("no effect")
	}
	_, err = b.TryBegin(ctx, "2")
	wantIs(t, err, work.ErrDone)
	noErr(t, other.Check())
	if s := a.Stats(); s.Completed != 2 || len(s.Lost) != 0 || s.Held != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestWorkOrphan(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{})
	w := tryBegin(t, a, "k")
	vanish(t, etcd, b, "k")
	if r, ok, err := b.Record(ctx, "k"); err != nil || !ok || r.State != work.StateOrphaned || r.Owner != "a" {
		t.Errorf("record %+v, %v, %v", r, ok, err)
	}
	next := tryBegin(t, b, "k")
	if next.Attempt() != 2 || next.Fence() <= w.Fence() {
		t.Errorf("attempt %d, fence %d after %d", next.Attempt(), next.Fence(), w.Fence())
	}
	if r, ok := next.Previous(); !ok || r.State != work.StateOrphaned || r.Owner != "a" || r.Fence != w.Fence() ||
		r.Attempt != 1 || r.Claim != w.ID() || r.Instance != a.Instance() {
		t.Errorf("previous %+v, %v", r, ok)
	}
	if s := b.Stats(); s.TookOver != 1 {
		t.Errorf("stats %+v", s)
	}
	wantIs(t, w.Complete(ctx), etcdclaims.ErrLost)
	eventually(t, "the first owner hears of it", func() bool { return errors.Is(w.Err(), etcdclaims.ErrLost) })
	noErr(t, next.Complete(ctx))
	// Who releases the claim under the work gives the work back.
	w = tryBegin(t, a, "bare")
	noErr(t, w.Claim.Release(ctx))
	if next := tryBegin(t, b, "bare"); next.Attempt() != 1 {
		t.Errorf("attempt %d", next.Attempt())
	}
}

func TestWorkAtMostOnce(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{})
	for name, begin := range map[string]func(context.Context, string, ...work.Option) (*work.Work, error){"try": b.TryBegin, "wait": b.Begin} {
		w := tryBegin(t, a, name, work.AtMostOnce())
		vanish(t, etcd, b, name)
		_, err := begin(ctx, name) // though this caller does not say AtMostOnce
		if r := recordOf(t, err, work.ErrDead); r.State != work.StateDead || r.Owner != "a" || r.Fence != w.Fence() || !r.AtMostOnce || r.Error == "" || r.Ended.IsZero() {
			t.Errorf("%s: record %+v", name, r)
		}
		if r, ok, err := b.Record(ctx, name); err != nil || !ok || r.State != work.StateDead {
			t.Errorf("%s: record %+v, %v, %v", name, r, ok, err)
		}
	}
	// It does not stop what is known to have failed.
	noErr(t, failing(ctx, tryBegin(t, a, "failed", work.AtMostOnce()), etcdclaims.RetryAfter(errors.New("x"), 0)))
	noErr(t, tryBegin(t, b, "failed", work.AtMostOnce()).Complete(ctx))
}

func TestWorkOrphanAtMaxAttempts(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{MaxAttempts: 2})
	tryBegin(t, a, "k")
	vanish(t, etcd, b, "k")
	w := tryBegin(t, a, "k")
	if w.Attempt() != 2 {
		t.Fatalf("attempt %d", w.Attempt())
	}
	vanish(t, etcd, b, "k")
	_, err := b.TryBegin(ctx, "k")
	if r := recordOf(t, err, work.ErrDead); r.Attempt != 2 || !strings.Contains(r.Error, "2 attempts") {
		t.Errorf("record %+v", r)
	}
	if o, err := orphansOf(ctx, b, 0); err != nil || len(o) != 0 {
		t.Errorf("orphans %v, %v", o, err)
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

func TestWorkCompleteWithBadOps(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, config{})
	data := testetcd.Prefix(t)
	lease, err := etcd.Grant(ctx, 60)
	noErr(t, err)
	_, err = etcd.Revoke(ctx, lease.ID)
	noErr(t, err)
	other := tryClaim(t, a, "other")
	good := clientv3.OpPut(data+"good", "")
	var many []clientv3.Op
	for i := range 130 {
		many = append(many, clientv3.OpPut(fmt.Sprint(data, i), ""))
	}
	for _, tt := range []struct {
		name string
		ops  []clientv3.Op
		want error
	}{
		{"reserved key", []clientv3.Op{good, clientv3.OpPut(prefix+"work/k", "")}, nil},
		{"reserved in a nested transaction", []clientv3.Op{good, clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpDelete(prefix + "own/x")})}, nil},
		{"reserved range", []clientv3.Op{good, clientv3.OpDelete("/", clientv3.WithFromKey())}, nil},
		{"too large", []clientv3.Op{good, clientv3.OpPut(data+"x", strings.Repeat("x", 1600<<10))}, etcdclaims.ErrTooLarge},
		{"too large for the server's limit alone", []clientv3.Op{good, clientv3.OpPut(data+"x", strings.Repeat("x", 1530<<10))}, etcdclaims.ErrTooLarge},
		{"too many", append(many, good), etcdclaims.ErrTooLarge},
		{"empty key", []clientv3.Op{good, clientv3.OpPut("", "")}, nil},
		{"dead lease", []clientv3.Op{good, clientv3.OpPut(data+"x", "", clientv3.WithLease(lease.ID))}, nil},
		{"duplicate keys", []clientv3.Op{good, clientv3.OpPut(data+"x", "1"), clientv3.OpPut(data+"x", "2")}, nil},
		{"ignored value of a key that is not there", []clientv3.Op{good, clientv3.OpPut(data+"x", "", clientv3.WithIgnoreValue())}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := tryBegin(t, a, tt.name)
			for what, end := range map[string]func() error{
				"Complete": func() error { return w.Complete(ctx, tt.ops...) },
				"Fail":     func() error { return failing(ctx, w, errors.New("x"), tt.ops...) },
			} {
				err := end()
				if err == nil || errors.Is(err, etcdclaims.ErrLost) || errors.Is(err, etcdclaims.ErrReleased) || errors.Is(err, etcdclaims.ErrUnknown) {
					t.Fatalf("%s got %v, want a plain refusal", what, err)
				}
				if tt.want != nil {
					wantIs(t, err, tt.want)
				}
				noErr(t, w.Check())
				noErr(t, w.Context().Err())
				noErr(t, other.Check())
				if ok, err := w.Owns(ctx); !ok || err != nil {
					t.Fatalf("the work is gone after %s: %v, %v", what, ok, err)
				}
				if rawKV(t, etcd, data+"good") != nil {
					t.Fatal("an operation was carried out all the same")
				}
			}
			_, err := b.TryBegin(ctx, tt.name)
			wantIs(t, err, etcdclaims.ErrHeld)
			noErr(t, w.Complete(ctx, clientv3.OpPut(data+"after/"+tt.name, "")))
			_, err = b.TryBegin(ctx, tt.name)
			wantIs(t, err, work.ErrDone)
		})
	}
	if ok, err := other.Owns(ctx); !ok || err != nil {
		t.Errorf("the session's other claim: %v, %v", ok, err)
	}
	if s := a.Stats(); s.Sessions != 1 || len(s.Lost) != 0 || s.Held != 1 {
		t.Errorf("stats %+v", s)
	}
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

// A record of a newer version of this package is not guessed at.
func TestWorkUnreadableRecord(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, _, prefix := twoOwners(t, etcd, config{})
	for key, value := range map[string]string{"newer": `{"v":2,"state":"done"}`, "broken": "not JSON"} {
		_, err := etcd.Put(ctx, prefix+"work/"+key, value)
		noErr(t, err)
		if _, err := a.TryBegin(ctx, key); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("TryBegin: %v", err)
		}
		if _, err := a.Begin(ctx, key); err == nil {
			t.Error("Begin took it")
		}
		if _, _, err := a.Record(ctx, key); err == nil {
			t.Error("Record read it")
		}
		if kv := rawKV(t, etcd, prefix+"work/"+key); string(kv.Value) != value {
			t.Errorf("record was changed to %s", kv.Value)
		}
		if rawKV(t, etcd, prefix+"own/"+key) != nil {
			t.Error("the key is held")
		}
	}
}

// Operations are carried out with the end of the work, or the caller learns that they were not: work
// that has ended before takes none.
func TestReleaseWithAfterTheEnd(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx, c := context.Background(), w.peer()
		job := tryBegin(t, c, "k")
		noErr(t, job.Release(ctx))
		noErr(t, job.Release(ctx)) // as a claim
		wantIs(t, job.ReleaseWith(ctx, clientv3.OpPut("/effect", "x")), etcdclaims.ErrReleased)
		if resp, err := w.Raw.Get(ctx, "/effect"); err != nil || resp.Count != 0 {
			t.Errorf("%v, %v", resp, err)
		}
	})
}
