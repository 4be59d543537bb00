package contract

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

var workCases = []Case{
	{"work is done once", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		began := time.Now().Add(-time.Second)
		job := t.begin(a, "k")
		if _, ok := job.Previous(); ok || job.Attempt() != 1 {
			t.Errorf("the first attempt is number %d, with one before: %v", job.Attempt(), ok)
		}
		_, err := t.works(b).TryBegin(t.ctx, "k")
		if info := t.holder(err); info.Attempt != 1 || info.Owner != "a" {
			t.Errorf("the holder is told as %+v", info)
		}
		t.refused(b, "k") // as a claim, too
		t.ok(job.Complete(t.ctx, t.put("x", "a"), t.put("y", "a")))
		t.is(job.Err(), etcdclaims.ErrReleased)
		if t.stored("x") != "a" || t.stored("y") != "a" {
			t.Errorf("completing has stored %q and %q", t.stored("x"), t.stored("y"))
		}
		for _, c := range []*etcdclaims.Client{a, b} {
			_, err := t.works(c).TryBegin(t.ctx, "k")
			r := t.record(err, work.ErrDone)
			if r.Key != "k" || r.State != work.StateDone || r.Attempt != 1 || r.Fence != job.Fence() || r.Claim != job.ID() ||
				r.Owner != "a" || r.Instance != a.Instance() || r.Begun.Before(began) || r.Ended.Before(r.Begun) || r.Error != "" {
				t.Errorf("the record is %+v", r)
			}
			_, err = t.works(c).Begin(t.ctx, "k")
			t.record(err, work.ErrDone)
		}
		t.free(b, "k")
	}},

	{"of many who begin one does the work", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		var wg sync.WaitGroup
		var done atomic.Int64
		for i := range 8 {
			wg.Go(func() {
				job, err := t.works([]*etcdclaims.Client{a, b}[i%2]).Begin(t.ctx, "k")
				switch {
				case err == nil:
					done.Add(1)
					if err := job.Complete(t.ctx, t.put("x", fmt.Sprint(i))); err != nil {
						t.Error(err)
					}
				case !errors.Is(err, work.ErrDone):
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
		job := t.begin(t.client(etcdclaims.Config{}), "k")
		t.ok(job.Complete(t.ctx, t.put("x", "1")))
		t.is(job.Complete(t.ctx, t.put("x", "2")), etcdclaims.ErrReleased)
		t.is(failing(t.ctx, job, errors.New("late"), t.put("x", "3")), etcdclaims.ErrReleased)
		if got := t.stored("x"); got != "1" {
			t.Errorf("ending has stored %q", got)
		}
	}},

	{"work of the dead is taken over", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		job := t.begin(a, "k")
		t.revoke(b, "k")
		r, ok, err := t.works(b).Record(t.ctx, "k")
		t.ok(err)
		if !ok || r.State != work.StateOrphaned || r.Owner != "a" || r.Fence != job.Fence() {
			t.Errorf("the record of an orphan is %+v, %v", r, ok)
		}
		over := t.begin(b, "k")
		t.rises(job.Fence(), over.Fence())
		if over.Attempt() != 2 {
			t.Errorf("attempt %d after the first", over.Attempt())
		}
		if r, ok := over.Previous(); !ok || r.State != work.StateOrphaned || r.Owner != "a" || r.Fence != job.Fence() || r.Attempt != 1 {
			t.Errorf("before it there was %+v, %v", r, ok)
		}
		if n := t.works(b).Stats().TookOver; n != 1 {
			t.Errorf("%d take-overs were counted", n)
		}
		// The dead one wakes.
		t.is(job.Complete(t.ctx, t.put("x", "a")), etcdclaims.ErrLost)
		t.is(failing(t.ctx, job, errors.New("late"), t.put("x", "a")), etcdclaims.ErrLost)
		t.ok(over.Complete(t.ctx, t.put("y", "b")))
		if t.stored("x") != "" || t.stored("y") != "b" {
			t.Errorf("the dead one has stored %q, the other one %q", t.stored("x"), t.stored("y"))
		}
	}},

	{"work is not ended under an outlived fence", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		for key, end := range map[string]func(*work.Work) error{
			"complete": func(w *work.Work) error { return w.Complete(t.ctx, t.put("x", "a")) },
			"fail":     func(w *work.Work) error { return failing(t.ctx, w, errors.New("late"), t.put("x", "a")) },
			"release":  func(w *work.Work) error { return w.Release(t.ctx) },
		} {
			job := t.begin(a, key)
			t.remove(key)
			over := t.begin(b, key)
			t.is(end(job), etcdclaims.ErrLost)
			if r, _, err := t.works(b).Record(t.ctx, key); err != nil || r.State != work.StateClaimed || r.Fence != over.Fence() || r.Attempt != 2 {
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
		t.begin(a, "k", work.AtMostOnce())
		t.revoke(b, "k")
		_, err := t.works(b).TryBegin(t.ctx, "k", work.AtMostOnce())
		if r := t.record(err, work.ErrDead); !r.AtMostOnce || r.State != work.StateDead || r.Error == "" {
			t.Errorf("the record is %+v", r)
		}
		_, err = t.works(a).TryBegin(t.ctx, "k") // whatever it is begun as now
		t.record(err, work.ErrDead)
	}},

	{"work of the dead has so many attempts", func(t *trial) {
		a, b := t.workPair(work.Config{MaxAttempts: 2})
		t.begin(a, "k")
		t.revoke(b, "k")
		t.begin(a, "k")
		t.revoke(b, "k")
		_, err := t.works(b).TryBegin(t.ctx, "k")
		if r := t.record(err, work.ErrDead); r.Attempt != 2 {
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
			for r, err := range t.works(b).Orphans(t.ctx, "k") {
				t.ok(err)
				if keys = append(keys, r.Key); len(keys) == limit {
					break
				}
				if r.State != work.StateOrphaned || r.Owner != "a" {
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
