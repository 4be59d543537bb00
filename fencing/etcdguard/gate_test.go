package etcdguard_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/fencing/fencetest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The contract, with tokens that real claims have.
func TestContract(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	fencetest.TestGate(t, func(t *testing.T) fencetest.Subject {
		prefix, data := testetcd.Prefix(t), testetcd.Prefix(t)
		claims := newClient(t, etcd, prefix)
		place := func(key string) string { return data + strings.ReplaceAll(key, "/", "%") + "/" }
		return fencetest.Subject{
			Gate:    etcdguard.NewGate(etcd, prefix),
			Restart: func(t *testing.T) fencing.Gate { return etcdguard.NewGate(testetcd.Shared(t).Client(t), prefix) },
			Issue: func(t *testing.T, key string) fencing.Token {
				cl, err := claims.TryAcquire(t.Context(), key, etcdclaims.Supersede())
				if err != nil {
					t.Fatal(err)
				}
				return cl.Token()
			},
			Write: func(ctx context.Context, token fencing.Token, effect string) error {
				_, err := etcdguard.NewKV(etcd, etcdguard.Bearer(prefix, token)).Put(ctx, place(token.Key)+effect, "")
				return err
			},
			Effects: func(ctx context.Context, key string) ([]string, error) {
				resp, err := etcd.Get(ctx, place(key), clientv3.WithPrefix())
				if err != nil {
					return nil, err
				}
				byRevision := func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.ModRevision, b.ModRevision) }
				var effects []string
				for _, kv := range slices.SortedFunc(slices.Values(resp.Kvs), byRevision) {
					effects = append(effects, strings.TrimPrefix(string(kv.Key), place(key)))
				}
				return effects, nil
			},
		}
	})
}

func TestGate(t *testing.T) {
	t.Parallel()
	etcd, prefix := testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	claims := newClient(t, etcd, prefix)
	gate := etcdguard.NewGate(etcd, prefix)
	cl := claim(t, claims, "k")
	if err := gate.Admit(t.Context(), cl.Token()); err != nil {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := gate.Admit(gone, cl.Token()); !errors.Is(err, context.Canceled) || errors.Is(err, fencing.ErrUnknown) {
		t.Errorf("%v", err)
	}
	if err := cl.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	var stale *fencing.StaleError
	if err := gate.Admit(t.Context(), cl.Token()); !errors.As(err, &stale) || stale.Newest != 0 {
		t.Errorf("a token of nobody's: %v", err)
	}
}
