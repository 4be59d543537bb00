package work_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
)

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

// Orphans that may not run again do so with Again(StateDead), without being buried
// first.
func TestAgainOrphan(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{MaxAttempts: 1})
	tryBegin(t, a, "once", work.AtMostOnce())
	vanish(t, etcd, b, "once")
	w := tryBegin(t, b, "once", work.Again(work.StateDead))
	if p, _ := w.Previous(); p.State != work.StateOrphaned || w.Attempt() != 2 {
		t.Errorf("attempt %d after %+v", w.Attempt(), p)
	}
	// Its attempts count from there: one more is one too many.
	vanish(t, etcd, b, "once")
	_, err := a.TryBegin(ctx, "once")
	if r := recordOf(t, err, work.ErrDead); r.Attempt != 2 || r.Earlier != 1 {
		t.Errorf("record %+v", r)
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
