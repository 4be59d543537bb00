package contract

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

var viewCases = []Case{
	{"a key is looked up", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		if info := t.lookup(b, "k"); info.Held || info.Key != "k" || info.Fence != 0 {
			t.Errorf("a free key is told as %+v", info)
		}
		claim := t.try(a, "k", etcdclaims.Note([]byte("n")))
		turns := make(chan turn, 1)
		t.queue(t.ctx, b, "k", 1, turns)
		info := t.lookup(b, "k")
		if !info.Held || info.Fence != claim.Fence() || info.Claim != claim.ID() || info.Owner != "a" || info.Instance != a.Instance() ||
			string(info.Note) != "n" || info.Kind != "" || info.Lease == 0 || info.Waiting != 1 || info.Since.IsZero() ||
			info.TTL <= 0 || info.TTL > etcdclaims.DefaultTTL {
			t.Errorf("%v is told as %+v", claim.Token(), info)
		}
	}},

	{"held keys are listed in order", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		fences := map[string]int64{}
		for i, key := range []string{"b/2", "a", "b/10", "c", "b", "b0"} {
			fences[key] = t.try([]*etcdclaims.Client{a, b}[i%2], key, etcdclaims.Note([]byte(key))).Fence()
		}
		t.ok(t.try(a, "b/3").Release(t.ctx))
		for prefix, want := range map[string]string{"": "[a b b/10 b/2 b0 c]", "b": "[b b/10 b/2 b0]", "b/": "[b/10 b/2]", "x": "[]"} {
			keys := []string{}
			for info, err := range a.List(t.ctx, prefix) {
				t.ok(err)
				keys = append(keys, info.Key)
				if !info.Held || info.Fence != fences[info.Key] || string(info.Note) != info.Key {
					t.Errorf("listed as %+v", info)
				}
			}
			if got := fmt.Sprint(keys); got != want {
				t.Errorf("with %q: %s, want %s", prefix, got, want)
			}
		}
		for range a.List(t.ctx, "") {
			break // it may be left early
		}
	}},

	{"changes of owners are watched", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		before := t.try(a, "w/before")
		t.try(a, "elsewhere")
		ctx, cancel := context.WithCancel(t.ctx)
		defer cancel()
		events, over := make(chan etcdclaims.Event, 64), make(chan error, 1)
		t.background(func() {
			var last error
			for e, err := range b.Watch(ctx, "w/") {
				if last = err; err == nil {
					events <- e
				}
			}
			over <- last
		})
		sees := func(kind etcdclaims.EventKind, key string, fence int64) {
			t.Helper()
			for {
				select {
				case e := <-events:
					switch {
					case e.Kind == etcdclaims.Resynced:
						continue // which may happen at any time
					case e.Kind != kind || e.Info.Key != key || e.Info.Fence != fence || e.Revision <= 0 || e.Info.Held != (kind == etcdclaims.Claimed):
						t.Fatalf("seen is %v of %+v, want %v of %s@%d", e.Kind, e.Info, kind, key, fence)
					}
					return
				case <-time.After(soon):
					t.Fatalf("waited in vain: to see %v of %s@%d", kind, key, fence)
				}
			}
		}
		sees(etcdclaims.Claimed, "w/before", before.Fence())
		sees(etcdclaims.Synced, "", 0)
		claim := t.try(b, "w/k")
		sees(etcdclaims.Claimed, "w/k", claim.Fence())
		t.ok(claim.Note(t.ctx, []byte("not a change of owners")))
		t.ok(before.Release(t.ctx))
		sees(etcdclaims.Freed, "w/before", before.Fence())
		turns := make(chan turn, 1)
		t.queue(t.ctx, a, "w/k", 1, turns)
		t.ok(claim.Release(t.ctx))
		got := t.next(turns)
		t.ok(got.err)
		sees(etcdclaims.Claimed, "w/k", got.claim.Fence()) // handed over, it was never free
		t.revoke(b, "w/k")
		sees(etcdclaims.Freed, "w/k", got.claim.Fence())
		cancel()
		select {
		case err := <-over:
			t.ok(err)
		case <-time.After(soon):
			t.Fatal("waited in vain: for the end of watching")
		}
	}},

	{"records are read", func(t *trial) {
		a, b := t.workPair(work.Config{Backoff: func(int) time.Duration { return time.Hour }})
		state := func(key string, want work.State) {
			t.Helper()
			r, ok, err := t.works(b).Record(t.ctx, key)
			t.ok(err)
			if ok != (want != "") || r.State != want {
				t.Errorf("%s is recorded as %+v, want %q", key, r, want)
			}
		}
		state("k", "")
		t.try(a, "claim")
		state("claim", "") // without a record
		job := t.begin(a, "k")
		state("k", work.StateClaimed)
		t.ok(job.Complete(t.ctx))
		state("k", work.StateDone)
		t.ok(failing(t.ctx, t.begin(a, "failed"), errors.New("no")))
		state("failed", work.StateFailed)
		t.ok(failing(t.ctx, t.begin(a, "dead"), etcdclaims.Permanent(errors.New("no"))))
		state("dead", work.StateDead)
		t.ok(t.begin(a, "free").Release(t.ctx))
		state("free", "") // as if it had never been begun
		t.begin(a, "orphan")
		t.revoke(b, "orphan")
		state("orphan", work.StateOrphaned)
	}},

	{"a client counts", func(t *trial) {
		a, b := t.workPair(work.Config{Backoff: func(int) time.Duration { return time.Hour }})
		claim := t.try(a, "k")
		t.try(a, "lost")
		t.refused(b, "k")
		t.ok(t.begin(a, "done").Complete(t.ctx))
		t.ok(failing(t.ctx, t.begin(a, "failed"), errors.New("no")))
		s, of := a.Stats(), t.works(a).Stats()
		if s.Attempts != 4 || s.Acquired != 4 || s.Held != 2 || s.Released != 2 || s.Sessions != 1 || s.Requests == 0 ||
			of.Completed != 1 || of.Failed != 1 {
			t.Errorf("counted is %+v", s)
		}
		if s := b.Stats(); s.Attempts != 1 || s.Contended != 1 || s.Acquired != 0 || s.Held != 0 {
			t.Errorf("counted is %+v by who was refused", s)
		}
		t.ok(claim.Release(t.ctx))
		t.revoke(b, "lost")
		t.eventually("the loss is counted", func() bool { return a.Stats().Lost[etcdclaims.ReasonRevoked] == 1 })
		if s := a.Stats(); s.Released != 3 || s.Held != 0 {
			t.Errorf("counted is %+v", s)
		}
	}},
}
