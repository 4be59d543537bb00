package conformance

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

var workCases = []Case{
	{"work is done once", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		began := time.Now().Add(-time.Second)
		work := t.begin(a, "k")
		if _, ok := work.Previous(); ok || work.Attempt() != 1 {
			t.Errorf("the first attempt is number %d, with one before: %v", work.Attempt(), ok)
		}
		_, err := b.TryBegin(t.ctx, "k")
		if info := t.holder(err); info.Attempt != 1 || info.Owner != "a" {
			t.Errorf("the holder is told as %+v", info)
		}
		t.refused(b, "k") // as a claim, too
		t.ok(work.Complete(t.ctx, t.put("x", "a"), t.put("y", "a")))
		t.is(work.Err(), etcdclaims.ErrReleased)
		if t.stored("x") != "a" || t.stored("y") != "a" {
			t.Errorf("completing has stored %q and %q", t.stored("x"), t.stored("y"))
		}
		for _, c := range []*etcdclaims.Client{a, b} {
			_, err := c.TryBegin(t.ctx, "k")
			r := t.record(err, etcdclaims.ErrDone)
			if r.Key != "k" || r.State != etcdclaims.StateDone || r.Attempt != 1 || r.Fence != work.Fence() || r.Claim != work.ID() ||
				r.Owner != "a" || r.Instance != a.Instance() || r.Begun.Before(began) || r.Ended.Before(r.Begun) || r.Error != "" {
				t.Errorf("the record is %+v", r)
			}
			_, err = c.Begin(t.ctx, "k")
			t.record(err, etcdclaims.ErrDone)
		}
		t.free(b, "k")
	}},

	{"of many who begin one does the work", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		var wg sync.WaitGroup
		var done atomic.Int64
		for i := range 8 {
			wg.Go(func() {
				work, err := []*etcdclaims.Client{a, b}[i%2].Begin(t.ctx, "k")
				switch {
				case err == nil:
					done.Add(1)
					if err := work.Complete(t.ctx, t.put("x", fmt.Sprint(i))); err != nil {
						t.Error(err)
					}
				case !errors.Is(err, etcdclaims.ErrDone):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if done.Load() != 1 || t.stored("x") == "" {
			t.Errorf("%d have done the work, which stored %q", done.Load(), t.stored("x"))
		}
	}},

	{"work ends once", func(t *trial) {
		work := t.begin(t.client(etcdclaims.Config{}), "k")
		t.ok(work.Complete(t.ctx, t.put("x", "1")))
		t.is(work.Complete(t.ctx, t.put("x", "2")), etcdclaims.ErrReleased)
		t.is(failing(t.ctx, work, errors.New("late"), t.put("x", "3")), etcdclaims.ErrReleased)
		if got := t.stored("x"); got != "1" {
			t.Errorf("ending has stored %q", got)
		}
	}},

	{"work of the dead is taken over", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		work := t.begin(a, "k")
		t.revoke(b, "k")
		r, ok, err := b.Record(t.ctx, "k")
		t.ok(err)
		if !ok || r.State != etcdclaims.StateOrphaned || r.Owner != "a" || r.Fence != work.Fence() {
			t.Errorf("the record of an orphan is %+v, %v", r, ok)
		}
		over := t.begin(b, "k")
		t.rises(work.Fence(), over.Fence())
		if over.Attempt() != 2 {
			t.Errorf("attempt %d after the first", over.Attempt())
		}
		if r, ok := over.Previous(); !ok || r.State != etcdclaims.StateOrphaned || r.Owner != "a" || r.Fence != work.Fence() || r.Attempt != 1 {
			t.Errorf("before it there was %+v, %v", r, ok)
		}
		if n := b.Stats().TookOver; n != 1 {
			t.Errorf("%d take-overs were counted", n)
		}
		// The dead one wakes.
		t.is(work.Complete(t.ctx, t.put("x", "a")), etcdclaims.ErrLost)
		t.is(failing(t.ctx, work, errors.New("late"), t.put("x", "a")), etcdclaims.ErrLost)
		t.ok(over.Complete(t.ctx, t.put("y", "b")))
		if t.stored("x") != "" || t.stored("y") != "b" {
			t.Errorf("the dead one has stored %q, the other one %q", t.stored("x"), t.stored("y"))
		}
	}},

	{"work is not ended under an outlived fence", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		for key, end := range map[string]func(*etcdclaims.Work) error{
			"complete": func(w *etcdclaims.Work) error { return w.Complete(t.ctx, t.put("x", "a")) },
			"fail":     func(w *etcdclaims.Work) error { return failing(t.ctx, w, errors.New("late"), t.put("x", "a")) },
			"release":  func(w *etcdclaims.Work) error { return w.Release(t.ctx) },
		} {
			work := t.begin(a, key)
			t.remove(key)
			over := t.begin(b, key)
			t.is(end(work), etcdclaims.ErrLost)
			if r, _, err := b.Record(t.ctx, key); err != nil || r.State != etcdclaims.StateClaimed || r.Fence != over.Fence() || r.Attempt != 2 {
				t.Errorf("%s: the record became %+v, %v", key, r, err)
			}
			t.ok(over.Complete(t.ctx))
		}
		if got := t.stored("x"); got != "" {
			t.Errorf("ending has stored %q", got)
		}
	}},

	{"work of the dead that may run once is buried", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		t.begin(a, "k", etcdclaims.AtMostOnce())
		t.revoke(b, "k")
		_, err := b.TryBegin(t.ctx, "k", etcdclaims.AtMostOnce())
		if r := t.record(err, etcdclaims.ErrDead); !r.AtMostOnce || r.State != etcdclaims.StateDead || r.Error == "" {
			t.Errorf("the record is %+v", r)
		}
		_, err = a.TryBegin(t.ctx, "k") // whatever it is begun as now
		t.record(err, etcdclaims.ErrDead)
	}},

	{"work of the dead has so many attempts", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{MaxAttempts: 2})
		t.begin(a, "k")
		t.revoke(b, "k")
		t.begin(a, "k")
		t.revoke(b, "k")
		_, err := b.TryBegin(t.ctx, "k")
		if r := t.record(err, etcdclaims.ErrDead); r.Attempt != 2 {
			t.Errorf("the record is %+v", r)
		}
	}},

	{"orphans are listed and left alone", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		for _, key := range []string{"k2", "k1", "k3"} {
			t.begin(a, key)
		}
		done := t.begin(a, "k4")
		t.ok(done.Complete(t.ctx))
		t.revoke(b, "k1") // they share the lease
		alive := t.begin(b, "alive")
		for limit, want := range map[int]string{0: "[k1 k2 k3]", 2: "[k1 k2]", 9: "[k1 k2 k3]"} {
			var keys []string
			for r, err := range b.Orphans(t.ctx, "k") {
				t.ok(err)
				if keys = append(keys, r.Key); len(keys) == limit {
					break
				}
				if r.State != etcdclaims.StateOrphaned || r.Owner != "a" {
					t.Errorf("the record of an orphan is %+v", r)
				}
			}
			if got := fmt.Sprint(keys); got != want {
				t.Errorf("up to %d orphans: %s, want %s", limit, got, want)
			}
		}
		t.ok(alive.Check())
	}},
}
