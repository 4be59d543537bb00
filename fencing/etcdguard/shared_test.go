package etcdguard_test

import (
	"errors"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Readers that share a key are admitted with their one fence, until a writer has come. A
// claim's own guard refuses it as soon as it has ended.
func TestSharedClaims(t *testing.T) {
	t.Parallel()
	ctx, etcd, prefix, data := t.Context(), testetcd.Shared(t).Client(t), testetcd.Prefix(t), testetcd.Prefix(t)
	put := func(h etcdguard.Holder) error {
		_, err := etcdguard.NewKV(etcd, h).Put(ctx, data+"k", "")
		return err
	}
	var readers []*etcdclaims.Claim
	for range 2 {
		cl, err := newClient(t, etcd, prefix).TryAcquire(ctx, "k", etcdclaims.Shared())
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, cl)
	}
	bearer := etcdguard.Bearer(prefix, readers[0].Token())
	for _, h := range []etcdguard.Holder{readers[0], readers[1], bearer} {
		if err := put(h); err != nil {
			t.Errorf("%v: %v", h.Token(), err)
		}
	}
	if err := readers[0].Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := put(readers[0]); err == nil {
		t.Error("a reader that has released its claim was admitted")
	}
	if err := put(bearer); err != nil {
		t.Errorf("its token, which is the other's too: %v", err)
	}
	if err := readers[1].Release(ctx); err != nil {
		t.Fatal(err)
	}
	writer, err := newClient(t, etcd, prefix).TryAcquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	var stale *fencing.StaleError
	if err := put(bearer); !errors.As(err, &stale) || stale.Newest != writer.Fence() {
		t.Errorf("after a writer: %v", err)
	}
	if err := put(writer); err != nil {
		t.Error(err)
	}
	if resp, err := etcd.Get(ctx, data, clientv3.WithPrefix()); err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].Version != 5 {
		t.Errorf("%v, %v", resp, err)
	}
}
