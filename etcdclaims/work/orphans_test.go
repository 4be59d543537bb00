package work_test

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// orphaned puts records of work whose owners are gone.
func orphaned(t *testing.T, etcd *clientv3.Client, prefix string, keys []string) {
	t.Helper()
	for len(keys) > 0 {
		n := min(len(keys), 100)
		var ops []clientv3.Op
		for _, key := range keys[:n] {
			ops = append(ops, clientv3.OpPut(prefix+"work/"+key, `{"v":1,"state":"claimed","attempt":3,"claim":"c","owner":"dead","instance":"i"}`))
		}
		_, err := etcd.Txn(t.Context()).Then(ops...).Commit()
		noErr(t, err)
		keys = keys[n:]
	}
}

func TestOrphans(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, config{})
	if o, err := orphansOf(ctx, b, 0); err != nil || len(o) != 0 {
		t.Errorf("orphans of nothing: %v, %v", o, err)
	}
	// Among them, work that is no orphan for every reason there is.
	live := tryBegin(t, a, "k0100-live")
	noErr(t, tryBegin(t, a, "k0200-done").Complete(ctx))
	noErr(t, failing(ctx, tryBegin(t, a, "k0300-failed"), errors.New("x")))
	noErr(t, failing(ctx, tryBegin(t, a, "k0400-dead"), etcdclaims.Permanent(errors.New("x"))))
	noErr(t, failing(ctx, tryBegin(t, a, "k0500-free"), etcdclaims.RetryAfter(errors.New("x"), 0)))
	noErr(t, tryBegin(t, a, "k0500-free").Release(ctx))
	tryClaim(t, a, "k0600-claim")
	var want []string
	for i := range 1200 {
		want = append(want, fmt.Sprintf("k%04d", i))
	}
	orphaned(t, etcd, prefix, want)
	sort.Strings(want)

	requests := b.Stats().Requests
	for _, limit := range []int{0, 1, 2, 511, 512, 513, 1199, 1200, 5000} {
		got, err := orphansOf(ctx, b, limit)
		noErr(t, err)
		n := len(want)
		if limit > 0 {
			n = min(n, limit)
		}
		if len(got) != n {
			t.Fatalf("limit %d: %d orphans, want %d", limit, len(got), n)
		}
		for i, r := range got {
			if r.Key != want[i] || r.State != work.StateOrphaned || r.Attempt != 3 || r.Owner != "dead" {
				t.Fatalf("limit %d: orphan %d is %+v, want key %s", limit, i, r, want[i])
			}
		}
	}
	t.Logf("%d requests", b.Stats().Requests-requests)

	// It changed nothing, and what it found can be begun.
	w := tryBegin(t, b, "k0007")
	if w.Attempt() != 4 {
		t.Errorf("attempt %d", w.Attempt())
	}
	noErr(t, live.Check())
	if got, err := orphansOf(ctx, b, 8); err != nil || len(got) != 8 || got[7].Key != "k0008" {
		t.Errorf("%v, %v", got, err)
	}
}

// A server with a lower limit of operations than the usual, which the client
// learns of by being refused, must not end in a client that can do nothing.
func TestOrphansWithFewTxnOps(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Start(t, testetcd.NoSync(), testetcd.MaxTxnOps(16)).Client(t)
	a, _, prefix := twoOwners(t, etcd, config{})
	for _, n := range []int{17, 20, 100, 600} {
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf("%d", i))
		}
		orphaned16 := keys
		for len(orphaned16) > 0 {
			m := min(len(orphaned16), 16)
			orphaned(t, etcd, prefix, orphaned16[:m])
			orphaned16 = orphaned16[m:]
		}
		got, err := orphansOf(t.Context(), a, 0)
		noErr(t, err)
		if len(got) != n {
			t.Errorf("%d orphans, want %d", len(got), n)
		}
		tryClaim(t, a, fmt.Sprint("after-", n))
	}
}

// The record of an orphan has the fence of its owner, also after a call that gave up has put
// it back.
func TestOrphanKeepsItsFence(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, ahost := w.client(config{TTL: 15 * sec})
		b, bhost := w.client(config{TTL: 15 * sec})
		job := tryBegin(t, a, "k")
		ahost.Kill()
		time.Sleep(time.Minute)
		for range 2 {
			bhost.Inject(claimtest.Fault{On: claimtest.Acquire, Key: "k", Skip: 1, DelayReply: 2 * sec})
			short, cancel := context.WithTimeout(ctx, sec)
			_, err := b.TryBegin(short, "k")
			cancel()
			wantIs(t, err, etcdclaims.ErrUnknown)
			time.Sleep(10 * sec)
			bhost.RemoveFaults()
			if r, ok, err := b.Record(ctx, "k"); !ok || err != nil || r.Claim != job.ID() || r.Fence != job.Fence() {
				t.Errorf("%+v, %v, %v; want the fence %d", r, ok, err, job.Fence())
			}
		}
		next := tryBegin(t, b, "k")
		if p, _ := next.Previous(); p.Fence != job.Fence() {
			t.Errorf("the previous owner had the fence %d, it says %d", job.Fence(), p.Fence)
		}
		if r, _, err := b.Record(ctx, "k"); err != nil || r.Fence != next.Fence() {
			t.Errorf("the record of the next owner is %+v, %v; want the fence %d", r, err, next.Fence())
		}
	})
}

// Begin waits if the key is taken while it buries an orphan. Even if the key is free again
// at once, work that is at most once does not run a second time.
func TestBeginWaitsForKeyTakenAtBurial(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]time.Duration{"held for long": time.Minute, "held for a moment": 0} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			a, ahost := w.client(config{TTL: 15 * sec})
			b, bhost := w.client(config{TTL: 15 * sec})
			c := w.peer()
			tryBegin(t, a, "k", work.AtMostOnce())
			ahost.Kill()
			time.Sleep(time.Minute)
			var cl *etcdclaims.Claim
			bhost.Inject(claimtest.Fault{On: claimtest.Other, Saw: func(any) { cl = tryClaim(t, c, "k") }})
			bhost.Inject(claimtest.Fault{On: claimtest.Acquire, Key: "k", Skip: 1, Saw: func(any) {
				if hold == 0 {
					release(t, cl)
				}
			}})
			ctx, cancel := context.WithTimeout(context.Background(), 5*sec)
			defer cancel()
			_, err := b.Begin(ctx, "k")
			var wait *etcdclaims.WaitError
			if hold > 0 && !errors.As(err, &wait) || hold == 0 && !errors.Is(err, work.ErrDead) {
				t.Errorf("got %v", err)
			}
		})
	}
}
