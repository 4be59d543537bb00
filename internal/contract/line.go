package contract

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

var lineCases = []Case{
	{"who waits is served in order", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		turns := make(chan turn, 4)
		for i, c := range []*etcdclaims.Client{b, a, b, b} {
			t.queue(t.ctx, c, "k", i+1, turns)
		}
		for i := range 4 {
			t.ok(claim.Release(t.ctx))
			got := t.next(turns)
			t.ok(got.err)
			if got.who != i+1 {
				t.Fatalf("number %d in line was served as number %d", got.who, i+1)
			}
			t.ok(got.claim.Check())
			if got.claim.Fence() <= claim.Fence() {
				t.Errorf("fence %d after %d", got.claim.Fence(), claim.Fence())
			}
			t.refused(a, "k")
			claim = got.claim
		}
		t.ok(claim.Release(t.ctx))
		t.free(a, "k")
	}},

	{"a free key is not waited for", func(t *trial) {
		c := t.client(etcdclaims.Config{})
		t.ok(t.acquire(c, "k").Release(t.ctx))
		t.ok(t.acquire(c, "k").Release(t.ctx))
	}},

	{"who gives up waiting leaves nothing", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		turns := make(chan turn, 2)
		ctx, giveUp := context.WithCancel(t.ctx)
		t.queue(ctx, b, "k", 1, turns)
		t.queue(t.ctx, a, "k", 2, turns)
		giveUp()
		if got := t.next(turns); got.who != 1 || !errors.Is(got.err, context.Canceled) {
			t.Fatalf("giving up ended with %v for number %d", got.err, got.who)
		}
		t.eventually("its place is gone", func() bool { return t.lookup(a, "k").Waiting == 1 })
		t.ok(claim.Release(t.ctx))
		got := t.next(turns)
		t.ok(got.err)
		t.ok(got.claim.Release(t.ctx))
		t.free(b, "k")
		t.try(b, "k")
	}},

	{"waiting ends with its context", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		t.try(a, "k")
		ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
		defer cancel()
		_, err := b.Acquire(ctx, "k")
		t.is(err, context.DeadlineExceeded)
		if errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("who waits is never told that the key is held: %v", err)
		}
		t.eventually("its place is gone", func() bool { return t.lookup(a, "k").Waiting == 0 })
	}},

	{"who has no time left acquires nothing", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		ctx, cancel := context.WithCancel(t.ctx)
		cancel()
		_, err := a.TryAcquire(ctx, "k")
		t.is(err, context.Canceled)
		_, err = a.Acquire(ctx, "k")
		t.is(err, context.Canceled)
		t.free(b, "k")
		t.try(b, "k")
	}},

	{"the next in line takes over from the dead", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		turns := make(chan turn, 2)
		t.queue(t.ctx, b, "k", 1, turns)
		t.queue(t.ctx, b, "k", 2, turns)
		t.revoke(b, "k")
		for i := range 2 {
			got := t.next(turns)
			t.ok(got.err)
			if got.who != i+1 {
				t.Fatalf("number %d in line was served as number %d", got.who, i+1)
			}
			t.rises(claim.Fence(), got.claim.Fence())
			t.ok(got.claim.Release(t.ctx))
		}
		t.lost(claim, etcdclaims.ReasonRevoked)
	}},

	{"the next in line takes over after a forced release", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		turns := make(chan turn, 1)
		t.queue(t.ctx, b, "k", 1, turns)
		t.ok(admin.ForceRelease(t.ctx, b, "k", "test"))
		got := t.next(turns)
		t.ok(got.err)
		t.rises(claim.Fence(), got.claim.Fence())
	}},

	{"closing ends waiting", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		turns := make(chan turn, 1)
		t.queue(t.ctx, b, "k", 1, turns)
		t.ok(b.Close(t.ctx))
		t.is(t.next(turns).err, etcdclaims.ErrClosed)
		t.ok(claim.Release(t.ctx))
		t.free(a, "k")
	}},

	{"work waits in line", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		first := t.begin(a, "k")
		type begun struct {
			job *work.Work
			err error
		}
		got := make(chan begun, 1)
		t.background(func() {
			job, err := t.works(b).Begin(t.ctx, "k")
			got <- begun{job, err}
		})
		t.eventually("it stands in line", func() bool { return t.lookup(a, "k").Waiting == 1 })
		t.ok(failing(t.ctx, first, etcdclaims.RetryAfter(errors.New("once more"), 0)))
		select {
		case next := <-got:
			t.ok(next.err)
			if next.job.Attempt() != 2 {
				t.Errorf("attempt %d, want 2", next.job.Attempt())
			}
			t.rises(first.Fence(), next.job.Fence())
		case <-time.After(soon):
			t.Fatal("waited in vain: for work in line")
		}
	}},
}
