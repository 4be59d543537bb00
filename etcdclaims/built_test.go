package etcdclaims_test

import (
	"context"
	"errors"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What packages that are built on claims need to know.
func TestAccessors(t *testing.T) {
	t.Parallel()
	ctx, etcd, prefix := t.Context(), testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	c := newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: "me"})
	if c.Etcd() != etcd || c.Prefix() != prefix || c.Owner() != "me" {
		t.Errorf("%v, %q, %q", c.Etcd(), c.Prefix(), c.Owner())
	}
	cl := tryClaim(t, c, "k", etcdclaims.Then(clientv3.OpPut(prefix+"sched/x", "1")))
	if kv := rawKV(t, etcd, c.OwnKey("k")); kv.ModRevision != cl.Revision() || rawKV(t, etcd, prefix+"sched/x").ModRevision != cl.Revision() {
		t.Errorf("revision %d, in etcd %d", cl.Revision(), kv.ModRevision)
	}
	if i := lookUp(t, c, "k"); i.Revision() != cl.Revision() {
		t.Errorf("revision %d, looked up %d", cl.Revision(), i.Revision())
	}
	if _, err := admin.RaiseEpoch(ctx, etcd, prefix, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the epoch goes on", func() bool {
		higher, err := c.TryAcquire(ctx, "other")
		return err == nil && higher.Fence() > 1<<47 && higher.Revision() < 1<<47 && higher.Revision() > cl.Revision()
	})

	none := newClient(t, nil, etcdclaims.Config{})
	if none.Etcd() != nil || none.Prefix() != etcdclaims.DefaultPrefix || none.OwnKey("k") != etcdclaims.DefaultPrefix+"own/k" {
		t.Errorf("%v, %q, %q", none.Etcd(), none.Prefix(), none.OwnKey("k"))
	}
	free, err := none.TryAcquire(ctx, "k")
	noErr(t, err)
	if free.Revision() != 0 {
		t.Errorf("revision %d without etcd", free.Revision())
	}
}

// Subtrees that others keep are open, and nothing beside them is.
func TestOpenSubtrees(t *testing.T) {
	t.Parallel()
	ctx, etcd, prefix := t.Context(), testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	c := newClient(t, etcd, etcdclaims.Config{Prefix: prefix})
	cl := tryClaim(t, c, "k")
	for _, op := range []clientv3.Op{
		clientv3.OpPut(prefix+"sched/a", "1"), clientv3.OpPut(prefix+"queue/a", "1"),
		clientv3.OpDelete(prefix+"sched/", clientv3.WithPrefix()),
		clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut(prefix+"queue/b", "1")}, nil),
	} {
		if _, err := cl.Txn(ctx).Then(op).Commit(); err != nil {
			t.Error(err)
		}
	}
	for _, op := range []clientv3.Op{
		clientv3.OpPut(prefix+"sched", "1"), clientv3.OpPut(prefix+"schedule/a", "1"), clientv3.OpPut(prefix+"own/sched/", "1"),
		clientv3.OpDelete(prefix+"queue/", clientv3.WithRange(prefix+"sched0")),
		clientv3.OpDelete(prefix+"sched/", clientv3.WithFromKey()),
	} {
		if _, err := cl.Txn(ctx).Then(op).Commit(); err == nil {
			t.Errorf("%q to %q was changed", op.KeyBytes(), op.RangeBytes())
		}
	}
}

// A claim that was acquired before runs a handler as TryRun does.
func TestClaimRun(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	c := newClient(t, etcd, etcdclaims.Config{Prefix: testetcd.Prefix(t)})
	cl, boom := tryClaim(t, c, "k"), errors.New("boom")
	err := cl.Run(ctx, func(ctx context.Context) error {
		if tok, ok := fencing.FromContext(ctx); !ok || tok != cl.Token() {
			t.Errorf("token %v", tok)
		}
		noErr(t, cl.Check())
		return boom
	})
	wantIs(t, err, boom)
	if lookUp(t, c, "k").Held {
		t.Error("it was not released")
	}
	err = cl.Run(ctx, func(context.Context) error { t.Error("it ran again"); return nil })
	wantIs(t, err, etcdclaims.ErrReleased)
	if tryClaim(t, c, "k").Run(ctx, nil) == nil {
		t.Error("it took nil")
	}
}
