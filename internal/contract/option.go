package contract

import (
	"context"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var optionCases = []Case{
	{"reentrant shares the term", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		one := t.try(a, "k", etcdclaims.Reentrant())
		two := t.try(a, "k", etcdclaims.Reentrant())
		if one.Token() != two.Token() {
			t.Errorf("%v and %v are not one term", one.Token(), two.Token())
		}
		_, err := b.TryAcquire(t.ctx, "k", etcdclaims.Reentrant())
		t.holder(err)
		t.ok(one.Release(t.ctx))
		t.ok(two.Check())
		t.refused(b, "k") // it is given up with its last handle
		t.ok(two.Release(t.ctx))
		t.try(b, "k")
	}},

	{"supersede begins a new term", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		old := t.try(a, "k", etcdclaims.Supersede())
		now := t.try(a, "k", etcdclaims.Supersede())
		t.rises(old.Fence(), now.Fence())
		t.lost(old, etcdclaims.ReasonSuperseded)
		_, err := old.Txn(t.ctx).Then(t.put("x", "old")).Commit()
		t.is(err, etcdclaims.ErrLost)
		t.is(old.Release(t.ctx), etcdclaims.ErrLost)
		t.ok(now.Check())
		_, err = b.TryAcquire(t.ctx, "k", etcdclaims.Supersede())
		t.holder(err) // what another client holds is not superseded
		if got := t.stored("x"); got != "" {
			t.Errorf("the old term has stored %q", got)
		}
	}},

	{"a lazy release is one", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		old := t.try(a, "k", etcdclaims.LazyRelease())
		t.ok(old.Release(t.ctx))
		t.is(old.Check(), etcdclaims.ErrReleased)
		t.is(context.Cause(old.Context()), etcdclaims.ErrReleased)
		_, err := old.Txn(t.ctx).Then(t.put("x", "old")).Commit()
		t.is(err, etcdclaims.ErrReleased)
		now := t.try(a, "k", etcdclaims.LazyRelease()) // for its own client it is free
		t.rises(old.Fence(), now.Fence())
		t.refused(b, "k")
		t.ok(now.Release(t.ctx))
		t.eventually("the key is free", func() bool { return !t.lookup(b, "k").Held })
		t.free(b, "k")
	}},

	{"slots have so many holders", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		one, two := t.try(a, "k", etcdclaims.Slots(2)), t.try(b, "k", etcdclaims.Slots(2))
		if one.Slot() == two.Slot() || one.Key() == two.Key() {
			t.Errorf("%v and %v are one slot", one.Token(), two.Token())
		}
		_, err := a.TryAcquire(t.ctx, "k", etcdclaims.Slots(2))
		t.is(err, etcdclaims.ErrHeld)
		_, err = a.TryAcquire(t.ctx, "k", etcdclaims.Slots(3))
		t.is(err, etcdclaims.ErrSlots)
		t.refused(a, "k")
		next := make(chan turn, 1)
		t.background(func() {
			claim, err := a.Acquire(t.ctx, "k", etcdclaims.Slots(2))
			next <- turn{claim: claim, err: err}
		})
		t.eventually("it stands in line", func() bool { return t.lookup(a, "k").Waiting == 1 })
		t.ok(two.Release(t.ctx))
		got := t.next(next)
		t.ok(got.err)
		t.rises(two.Fence(), got.claim.Fence())
		if got.claim.Slot() != two.Slot() {
			t.Errorf("slot %d was released, slot %d was acquired", two.Slot(), got.claim.Slot())
		}
		t.ok(admin.Resize(t.ctx, a, "k", 3))
		t.ok(t.try(a, "k", etcdclaims.Slots(3)).Check())
	}},

	{"shared holders exclude an exclusive one", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		before := t.try(a, "k")
		_, err := b.TryAcquire(t.ctx, "k", etcdclaims.Shared())
		t.holder(err)
		t.ok(before.Release(t.ctx))
		one, two := t.try(a, "k", etcdclaims.Shared()), t.try(b, "k", etcdclaims.Shared())
		t.rises(before.Fence(), one.Fence())
		if one.Token() != two.Token() {
			t.Errorf("%v and %v share a key", one.Token(), two.Token())
		}
		t.refused(a, "k")
		t.ok(two.Release(t.ctx))
		t.refused(b, "k")
		t.ok(one.Check())
		t.ok(one.Release(t.ctx))
		writer := t.try(b, "k")
		t.rises(one.Fence(), writer.Fence())
		_, err = a.TryAcquire(t.ctx, "k", etcdclaims.Shared())
		t.holder(err)
		t.ok(writer.Release(t.ctx))
		t.rises(writer.Fence(), t.try(a, "k", etcdclaims.Shared()).Fence())
	}},

	{"conditions of an acquisition decide", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		_, err := t.raw.Put(t.ctx, t.data+"there", "1")
		t.ok(err)
		_, err = a.TryAcquire(t.ctx, "k", etcdclaims.If(t.absent("there")), etcdclaims.Then(t.put("x", "1")))
		t.is(err, etcdclaims.ErrRefused)
		if got := t.stored("x"); got != "" {
			t.Errorf("a refused acquisition has stored %q", got)
		}
		t.free(b, "k")
		t.try(a, "k", etcdclaims.If(clientv3.Compare(clientv3.Value(t.data+"there"), "=", "1")))
		t.refused(b, "k")
	}},

	{"operations of an acquisition come with it", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		t.try(a, "k", etcdclaims.Then(t.put("x", "a")))
		if got := t.stored("x"); got != "a" {
			t.Errorf("acquiring has stored %q", got)
		}
		_, err := b.TryAcquire(t.ctx, "k", etcdclaims.Then(t.put("x", "b")))
		t.holder(err)
		if got := t.stored("x"); got != "a" {
			t.Errorf("a refused acquisition has stored %q", got)
		}
	}},

	{"a claim waits in line with its conditions", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		for _, want := range []error{nil, etcdclaims.ErrRefused} {
			got := make(chan turn, 1)
			t.background(func() {
				claim, err := b.Acquire(t.ctx, "k", etcdclaims.If(t.absent("x")), etcdclaims.Then(t.put("x", "1")))
				got <- turn{claim: claim, err: err}
			})
			t.eventually("it stands in line", func() bool { return t.lookup(a, "k").Waiting == 1 })
			t.ok(claim.Release(t.ctx))
			next := t.next(got)
			if want != nil {
				t.is(next.err, want)
				continue
			}
			t.ok(next.err)
			if got := t.stored("x"); got != "1" {
				t.Errorf("acquiring has stored %q", got)
			}
			claim = next.claim
		}
		t.free(a, "k")
	}},

	{"a session of another lease time is another", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		long := t.try(a, "long", etcdclaims.TTL(etcdclaims.DefaultTTL*4))
		t.try(a, "short")
		if d := long.Remaining(); d <= etcdclaims.DefaultTTL || d > etcdclaims.DefaultTTL*4 {
			t.Errorf("%v remain of a minute", d)
		}
		t.revoke(b, "short")
		t.free(b, "short")
		t.ok(long.Renew(t.ctx))
	}},
}
