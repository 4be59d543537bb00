package contract

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

// waitCases wait for time to pass, seconds of it, and so take little of the
// machine. They are about how claims age.
var waitCases = []Case{
	{"a claim is renewed by itself", func(t *trial) {
		a, b := t.pair(brief)
		claim := t.try(a, "k")
		time.Sleep(brief.TTL + 2*time.Second)
		t.ok(claim.Check())
		if info := t.refused(b, "k"); info.Fence != claim.Fence() {
			t.Errorf("fence %d became %d", claim.Fence(), info.Fence)
		}
	}},

	{"a manual claim lives by its renewals", func(t *trial) {
		a, b := t.pair(brief)
		claim, other := t.try(a, "k", etcdclaims.Manual()), t.try(a, "other")
		for began := time.Now(); time.Since(began) < brief.TTL+time.Second; {
			time.Sleep(400 * time.Millisecond)
			t.ok(claim.Renew(t.ctx))
			t.refused(b, "k")
		}
		turns := make(chan turn, 1)
		t.queue(t.ctx, b, "k", 1, turns)
		// Now it is not renewed.
		got := t.next(turns)
		if err := claim.Err(); !errors.Is(err, etcdclaims.ErrLost) {
			t.Errorf("another has the key, and the claim is not over: %v", err)
		}
		t.ok(got.err)
		t.rises(claim.Fence(), got.claim.Fence())
		t.lost(claim, etcdclaims.ReasonExpired)
		t.is(claim.Renew(t.ctx), etcdclaims.ErrLost)
		t.ok(other.Check())
	}},

	{"a context ends before its claim", func(t *trial) {
		claim := t.try(t.client(etcdclaims.Config{TTL: 2 * etcdclaims.MinTTL}), "k", etcdclaims.Manual())
		t.wait(claim.Context().Done(), "the context is over")
		if err := claim.Check(); err != nil {
			t.Errorf("there was no time to drain: %v", err)
		}
		t.is(context.Cause(claim.Context()), etcdclaims.ErrLost)
		t.lost(claim, etcdclaims.ReasonExpired)
	}},

	{"the longest hold ends a claim", func(t *trial) {
		const most = 5 * time.Second // the drain is 3 s
		a, b := t.pair(etcdclaims.Config{})
		began := time.Now()
		claim := t.try(a, "k", etcdclaims.MaxHold(most))
		t.wait(claim.Context().Done(), "the context is over")
		t.ok(claim.Check()) // a drain before the end
		t.lost(claim, etcdclaims.ReasonMaxHold)
		if d := time.Since(began); d < most-100*time.Millisecond {
			t.Errorf("it was over after %v", d)
		}
		t.is(t.writes(claim), etcdclaims.ErrLost)
		t.unwritten()
		// What runs under it may not have stopped: the key is kept for a while.
		t.eventually("the fence has risen", func() bool { return t.refused(b, "k").Fence > claim.Fence() })
	}},

	{"the least hold outlasts a release", func(t *trial) {
		const least = 3 * time.Second
		a, b := t.pair(brief)
		began := time.Now()
		claim := t.try(a, "k", etcdclaims.MinHold(least))
		t.ok(claim.Release(t.ctx))
		t.is(claim.Err(), etcdclaims.ErrReleased)
		info := t.refused(b, "k")
		t.rises(claim.Fence(), info.Fence) // nobody can write under it
		if info.Kind != "resting" {
			t.Errorf("what rests is told as %+v", info)
		}
		t.refused(a, "k")
		next := t.acquire(b, "k")
		t.rises(info.Fence, next.Fence())
		if d := time.Since(began); d < least-100*time.Millisecond {
			t.Errorf("it was held for %v, want %v", d, least)
		}
	}},

	{"the least hold adds nothing to a longer one", func(t *trial) {
		a, b := t.pair(brief)
		claim := t.try(a, "k", etcdclaims.MinHold(time.Millisecond))
		time.Sleep(10 * time.Millisecond)
		t.ok(claim.Release(t.ctx))
		t.try(b, "k")
	}},

	{"a claim whose key is deleted is lost alone", func(t *trial) {
		a, _ := t.pair(brief)
		claim, other := t.try(a, "k"), t.try(a, "other")
		t.remove("k")
		t.lost(claim, etcdclaims.ReasonDeleted) // by itself, at the next renewal
		t.ok(other.Check())
		t.ok(other.Renew(t.ctx))
	}},

	{"a handler that does not stop loses its fence, not its key", func(t *trial) {
		zombies := make(chan etcdclaims.TermInfo, 1)
		cfg := brief
		cfg.Drain = 300 * time.Millisecond
		cfg.Hooks.Zombie = func(_ context.Context, term etcdclaims.TermInfo, _ time.Duration) { zombies <- term }
		a, b := t.pair(cfg)
		ctx, cancel := context.WithCancel(t.ctx)
		defer cancel()
		claim, stop, ended := t.try(a, "k"), make(chan struct{}), make(chan error, 1)
		t.background(func() {
			ended <- a.TryRun(ctx, "k", func(context.Context) error { <-stop; return nil }, etcdclaims.Reentrant())
		})
		defer close(stop)
		time.Sleep(100 * time.Millisecond)
		cancel()
		select {
		case z := <-zombies:
			if z.Token != claim.Token() || !errors.Is(z.Err, context.Canceled) {
				t.Errorf("the hook was told of %+v", z)
			}
		case <-time.After(soon):
			t.Fatal("waited in vain: for the hook")
		}
		t.eventually("the fence has risen", func() bool { return t.refused(b, "k").Fence > claim.Fence() })
		info := t.refused(b, "k")
		if info.Kind != "zombie" {
			t.Errorf("what a zombie holds is told as %+v", info)
		}
		t.is(t.writes(claim), etcdclaims.ErrLost)
		t.unwritten()
		t.rises(info.Fence, t.acquire(b, "k").Fence()) // when the lease that nobody renews ends
		select {
		case err := <-ended:
			t.Errorf("it returned before its handler: %v", err)
		default:
		}
	}},

	{"done work is forgotten after the retention", func(t *trial) {
		const retention = 2 * time.Second
		a, b := t.workPair(work.Config{Retention: retention})
		began := time.Now()
		t.ok(t.begin(a, "k").Complete(t.ctx))
		t.eventually("it is forgotten", func() bool {
			job, err := t.works(b).TryBegin(t.ctx, "k")
			if err == nil && job.Attempt() != 1 {
				t.Errorf("attempt %d of what is forgotten", job.Attempt())
			}
			return err == nil
		})
		if d := time.Since(began); d < retention {
			t.Errorf("forgotten after %v", d)
		}
	}},

	{"failed work waits and is begun again", func(t *trial) {
		const wait = 3 * time.Second
		a, b := t.workPair(work.Config{Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * wait }})
		job := t.begin(a, "k")
		t.ok(failing(t.ctx, job, errors.New("no paper"), t.put("x", "failed")))
		if got := t.stored("x"); got != "failed" {
			t.Errorf("failing has stored %q", got)
		}
		_, err := t.works(b).TryBegin(t.ctx, "k")
		r := t.record(err, work.ErrBackoff)
		d := r.NotBefore.Sub(r.Ended)
		if r.State != work.StateFailed || r.Error != "no paper" || d < wait-10*time.Millisecond || d > wait+time.Second {
			t.Errorf("it waits for %v: %+v", d, r)
		}
		t.free(b, "k")
		time.Sleep(time.Until(r.NotBefore) + 10*time.Millisecond)
		job = t.begin(b, "k")
		if r, ok := job.Previous(); !ok || r.State != work.StateFailed || r.Error != "no paper" || r.Owner != "a" || job.Attempt() != 2 {
			t.Errorf("attempt %d comes after %+v, %v", job.Attempt(), r, ok)
		}
		t.ok(failing(t.ctx, job, errors.New("no ink")))
		_, err = t.works(a).TryBegin(t.ctx, "k")
		r = t.record(err, work.ErrBackoff)
		if d := r.NotBefore.Sub(r.Ended); r.Attempt != 2 || d < 2*wait-10*time.Millisecond {
			t.Errorf("it waits for %v: %+v", d, r)
		}
	}},

	{"work goes with the options of claims", func(t *trial) {
		a, b := t.pair(brief)
		job := t.begin(a, "k", etcdclaims.Manual(), etcdclaims.Note([]byte("page 1")), etcdclaims.Then(t.put("x", "begun")))
		if info := t.lookup(b, "k"); string(info.Note) != "page 1" || t.stored("x") != "begun" {
			t.Errorf("the note is %q, x is %q", info.Note, t.stored("x"))
		}
		t.ok(job.Renew(t.ctx))
		t.lost(job.Claim, etcdclaims.ReasonExpired) // nobody renews it any more
		next, err := t.works(b).Begin(t.ctx, "k")
		t.ok(err)
		if next.Attempt() != 2 {
			t.Errorf("attempt %d after an owner that expired", next.Attempt())
		}
	}},

	{"locks last for their time unless renewed", func(t *trial) {
		const ttl = 2 * etcdclaims.MinTTL // renewed in time on a busy machine, and over soon
		k := locks.New(t.client(etcdclaims.Config{}))
		first := t.locked(k, "k", "me", ttl, true)
		var began time.Time
		for range 2 {
			time.Sleep(3 * time.Second)
			began = time.Now()
			t.relocked(k, "k", "me", ttl, true)
		}
		t.lockedBy(k, "k", "me")
		t.eventually("it expires", func() bool {
			locked, err := k.IsLocked(t.ctx, "k")
			t.ok(err)
			return !locked
		})
		if d := time.Since(began); d < ttl-time.Second {
			t.Errorf("it expired after %v", d)
		}
		t.relocked(k, "k", "me", ttl, false)
		t.unlocked(k, "k", "me", false)
		t.rises(first, t.locked(k, "k", "you", ttl, true))
	}},
}
