package work_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
