package scenarios_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testclaims"
)

// The record of work outlives its claim.
func working(v *variant) {
	a, b := v.pair(etcdclaims.Config{})
	here, there := v.runner(a), v.runner(b)
	begin := func(r *work.Runner, key string, attempt int, opts ...work.Option) *work.Work {
		v.Helper()
		w, err := r.TryBegin(v.ctx, key, opts...)
		noErr(v, err)
		if w.Attempt() != attempt {
			v.Errorf("attempt %d of %s, want %d", w.Attempt(), key, attempt)
		}
		return w
	}
	refused := func(key string, want error, state work.State) {
		v.Helper()
		_, err := there.TryBegin(v.ctx, key)
		if r := testclaims.RecordOf(v, err, want); r.State != state || r.Owner != "a" {
			v.Errorf("%s is recorded as %+v", key, r)
		}
	}
	done := begin(here, "done", 1)
	noErr(v, done.Complete(v.ctx, v.put("x", "1")))
	v.stored("x", "1")
	refused("done", work.ErrDone, work.StateDone)
	_, err := begin(here, "failed", 1).Fail(v.ctx, errors.New("no"))
	noErr(v, err)
	refused("failed", work.ErrBackoff, work.StateFailed)
	_, err = begin(here, "dead", 1).Fail(v.ctx, etcdclaims.Permanent(errors.New("no")))
	noErr(v, err)
	refused("dead", work.ErrDead, work.StateDead)
	noErr(v, begin(here, "free", 1).Release(v.ctx))
	begin(there, "free", 1)

	orphan := begin(here, "orphan", 1)
	begin(here, "once", 1, work.AtMostOnce())
	testclaims.Vanish(v, v.raw, b, "orphan")
	var orphans []string
	for r, err := range there.Orphans(v.ctx, "") {
		noErr(v, err)
		orphans = append(orphans, r.Key)
	}
	if got := fmt.Sprint(orphans); got != "[once orphan]" {
		v.Errorf("orphans %s", got)
	}
	refused("once", work.ErrDead, work.StateDead)
	over := begin(there, "orphan", 2)
	wantIs(v, orphan.Complete(v.ctx, v.put("late", "1")), etcdclaims.ErrLost)
	v.stored("late", "")
	noErr(v, over.Complete(v.ctx))
	eventually(v, "done work is forgotten", func() bool {
		_, known, err := there.Record(v.ctx, "done")
		noErr(v, err)
		return !known
	})
}

// Locks of named owners exclude each other, and claims.
func locking(v *variant) {
	const ttl = etcdclaims.MinTTL
	a, b := v.pair(etcdclaims.Config{})
	here, there := locks.New(a), locks.New(b)
	first := testclaims.Locked(v, here, "k", "me", ttl, true)
	testclaims.Locked(v, there, "k", "you", ttl, false)
	testclaims.LockedBy(v, there, "k", "me")
	if again := testclaims.Renewed(v, there, "k", "me", ttl, true); again != first {
		v.Errorf("fence %d became %d by renewing", first, again)
	}
	if i := v.held(b, "k"); i.Kind != "lock" || i.Owner != "me" {
		v.Errorf("a lock is described as %+v", i)
	}
	testclaims.Unlocked(v, there, "k", "you", false)
	testclaims.Unlocked(v, there, "k", "me", true)
	cl := try(v, a, "k")
	v.rises(first, cl.Fence())
	testclaims.Locked(v, here, "k", "a", ttl, false) // a claim's owner is no lock's
	testclaims.Locked(v, here, "expires", "me", ttl, true)
	acquired := time.Now()
	eventually(v, "it expires", func() bool {
		locked, err := there.IsLocked(v.ctx, "expires")
		noErr(v, err)
		return !locked
	})
	if d := time.Since(acquired); d < ttl-time.Second {
		v.Errorf("a lock for %v lasted for %v", ttl, d)
	}
	testclaims.Locked(v, here, "all", "me", ttl, true)
	if n, err := there.ReleaseAll(v.ctx, "me"); n != 1 || err != nil {
		v.Errorf("released %d locks, %v", n, err)
	}
}
