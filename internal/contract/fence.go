package contract

import (
	"context"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/locks"
)

var fenceCases = []Case{
	{"fences rise over releases", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		var fences []int64
		for i := range 6 {
			claim := t.try([]*etcdclaims.Client{a, b}[i/2%2], "k") // by the same, and by the other
			fences = append(fences, claim.Fence())
			t.ok(claim.Release(t.ctx))
		}
		t.rises(fences...)
	}},

	{"fences rise over a hand-over", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		turns := make(chan turn, 2)
		t.queue(t.ctx, b, "k", 1, turns)
		t.queue(t.ctx, a, "k", 2, turns)
		fences := []int64{claim.Fence()}
		for range 2 {
			t.ok(claim.Release(t.ctx))
			got := t.next(turns)
			t.ok(got.err)
			claim = got.claim
			fences = append(fences, claim.Fence())
		}
		t.rises(fences...)
	}},

	{"fences rise over a take-over", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		t.revoke(b, "k")
		now := t.try(b, "k") // while the old owner may still believe
		t.rises(claim.Fence(), now.Fence())
		_, err := claim.Txn(t.ctx).Then(t.put("x", "a")).Commit()
		t.is(err, etcdclaims.ErrLost)
		_, err = now.Txn(t.ctx).Then(t.put("y", "b")).Commit()
		t.ok(err)
		if t.stored("x") != "" || t.stored("y") != "b" {
			t.Errorf("the old owner has stored %q, the new one %q", t.stored("x"), t.stored("y"))
		}
	}},

	{"fences rise over a forced release", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		t.ok(admin.ForceRelease(t.ctx, b, "k", "test"))
		t.rises(claim.Fence(), t.try(b, "k").Fence())
	}},

	{"fences rise from claims to locks and back", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		t.ok(claim.Release(t.ctx))
		fence, ok, err := locks.New(b).TryAcquire(t.ctx, "k", "someone", etcdclaims.DefaultTTL)
		t.ok(err)
		_, err = locks.New(b).Release(t.ctx, "k", "someone")
		t.ok(err)
		if !ok {
			t.Fatal("a free key could not be locked")
		}
		t.rises(claim.Fence(), fence, t.try(a, "k").Fence())
	}},

	{"one fence lasts for a term", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		fence := claim.Fence()
		t.ok(claim.Note(t.ctx, []byte("1")))
		t.ok(claim.Renew(t.ctx))
		t.ok(claim.Note(t.ctx, []byte("2")))
		_, err := claim.Txn(t.ctx).Then(t.put("x", "1")).Commit()
		t.ok(err)
		if info := t.lookup(b, "k"); claim.Fence() != fence || info.Fence != fence {
			t.Errorf("fence %d became %d, and is looked up as %d", fence, claim.Fence(), info.Fence)
		}
	}},

	{"the token goes with contexts", func(t *trial) {
		claim := t.try(t.client(etcdclaims.Config{}), "k")
		type place struct{}
		ctx, cancel := claim.Bind(context.WithValue(t.ctx, place{}, "kept"))
		defer cancel()
		if ctx.Value(place{}) != "kept" || tokenIn(ctx) != claim.Token() || tokenIn(claim.Context()) != claim.Token() {
			t.Errorf("contexts carry %v and %v, want %v", tokenIn(ctx), tokenIn(claim.Context()), claim.Token())
		}
		t.ok(ctx.Err())
		t.ok(claim.Release(t.ctx))
		t.wait(ctx.Done(), "the context ends with the claim")
		t.is(context.Cause(ctx), etcdclaims.ErrReleased)
	}},
}
