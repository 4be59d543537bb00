package etcdclaims_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Each request of the KV, and each lease, counts once with its kind.
func TestKV(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		var l ledger
		c, host := w.client(etcdclaims.Config{Hooks: l.hooks()})
		synctest.Wait()
		ctx, kv, key := t.Context(), core.Of(c).KV(), w.Prefix+"queue/a"
		before := c.Stats().Requests
		lease, err := core.Of(c).GrantLease(ctx, 61*time.Second-1)
		if err != nil {
			t.Fatal(err)
		}
		if ttl, err := w.Raw.TimeToLive(ctx, lease); err != nil || ttl.GrantedTTL != 61 {
			t.Error("the lease: ", ttl, err)
		}
		_, err1 := kv.Put(ctx, key, "1", clientv3.WithLease(lease))
		_, err2 := kv.Do(ctx, clientv3.OpPut(key, "2"))
		got, err3 := kv.Get(ctx, key)
		_, err4 := kv.Do(ctx, clientv3.OpGet(key))
		resp, err5 := kv.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", "2")).Then(clientv3.OpGet(key)).Else(clientv3.OpDelete(key)).Commit()
		_, err6 := kv.Do(ctx, clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet(key)}, nil))
		_, err7 := kv.Delete(ctx, key)
		_, err8 := kv.Do(ctx, clientv3.OpDelete(key))
		err9 := core.Of(c).RevokeLease(ctx, lease)
		if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9); err != nil {
			t.Fatal(err)
		}
		if left, err := w.Raw.TimeToLive(ctx, lease); err != nil || left.TTL != -1 {
			t.Error("the lease after its end: ", left, err)
		}
		if string(got.Kvs[0].Value) != "2" || !resp.Succeeded || len(resp.Responses) != 1 {
			t.Error("the answers: ", got, resp)
		}
		want := map[string]int{
			"put": 2, "range": 2, "txn": 2, "delete_range": 2,
			"lease_grant": 1, "lease_revoke": 1,
		}
		if !maps.Equal(l.kinds, want) || l.failed > 0 {
			t.Errorf("got %v and %d failures, want %v", l.kinds, l.failed, want)
		}
		if n := c.Stats().Requests - before; n != 10 {
			t.Errorf("%d requests in the statistics", n)
		}
		host.Cut()
		short, cancel := context.WithTimeout(ctx, sec)
		defer cancel()
		if _, err := kv.Get(short, key); err == nil || l.failed != 1 {
			t.Error("a read that fails: ", err, l.failed)
		}
	})
}

func TestKVWithoutEtcd(t *testing.T) {
	t.Parallel()
	c := newClient(t, nil, etcdclaims.Config{})
	if core.Of(c).KV() != nil {
		t.Error("a KV without etcd")
	}
	if _, err := core.Of(c).GrantLease(t.Context(), time.Minute); !errors.Is(err, etcdclaims.ErrPassthrough) {
		t.Error(err)
	}
	if err := core.Of(c).RevokeLease(t.Context(), 1); !errors.Is(err, etcdclaims.ErrPassthrough) {
		t.Error(err)
	}
}

// A client that New has not made refuses what others build on, too.
func TestKVOfNoClient(t *testing.T) {
	t.Parallel()
	for name, claims := range map[string]any{"nil": (*etcdclaims.Client)(nil), "zero": new(etcdclaims.Client), "none": nil} {
		c := core.Of(claims)
		if c.KV() != nil {
			t.Errorf("%s: a KV", name)
		}
		_, granted := c.GrantLease(t.Context(), time.Minute)
		if revoked := c.RevokeLease(t.Context(), 1); !errors.Is(granted, etcdclaims.ErrNoClient) || !errors.Is(revoked, etcdclaims.ErrNoClient) {
			t.Errorf("%s: %v, %v", name, granted, revoked)
		}
	}
}
