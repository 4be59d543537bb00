package etcdclaims_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// noErr ends the test on an error.
func noErr(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// wantIs ends the test on an error that does not match.
func wantIs(tb testing.TB, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Fatalf("got %v, want an error that matches %q", err, target)
	}
}

func tryClaim(tb testing.TB, c *etcdclaims.Client, key string, opts ...etcdclaims.AcquireOption) *etcdclaims.Claim {
	tb.Helper()
	cl, err := c.TryAcquire(tb.Context(), key, opts...)
	if err != nil {
		tb.Fatalf("acquiring %s: %v", key, err)
	}
	return cl
}

// workers are the runners of clients, for tests that have work beside claims.
var workers sync.Map // *work.Runner by *etcdclaims.Client

// works returns the runner of a client.
func works(c *etcdclaims.Client) *work.Runner {
	r, ok := workers.Load(c)
	if !ok {
		made, err := work.New(c, work.Config{})
		if err != nil {
			return nil // every call is refused
		}
		r, _ = workers.LoadOrStore(c, made)
	}
	return r.(*work.Runner)
}

// worksWith gives clients runners with a configuration.
func worksWith(tb testing.TB, cfg work.Config, clients ...*etcdclaims.Client) {
	tb.Helper()
	for _, c := range clients {
		r, err := work.New(c, cfg)
		noErr(tb, err)
		workers.Store(c, r)
	}
}

func tryBegin(tb testing.TB, c *etcdclaims.Client, key string, opts ...work.Option) *work.Work {
	tb.Helper()
	w, err := works(c).TryBegin(tb.Context(), key, opts...)
	noErr(tb, err)
	return w
}

// failing fails work whose outcome does not matter.
func failing(ctx context.Context, w *work.Work, cause error, ops ...clientv3.Op) error {
	_, err := w.Fail(ctx, cause, ops...)
	return err
}

// orphansOf returns up to limit orphans, 0 for all.
func orphansOf(ctx context.Context, c *etcdclaims.Client, limit int) ([]work.Record, error) {
	var out []work.Record
	for r, err := range works(c).Orphans(ctx, "") {
		if err != nil {
			return nil, err
		}
		if out = append(out, r); len(out) == limit {
			break
		}
	}
	return out, nil
}

// recordOf returns the record in an error of TryBegin that matches target.
func recordOf(tb testing.TB, err, target error) work.Record {
	tb.Helper()
	wantIs(tb, err, target)
	var we *work.Error
	if !errors.As(err, &we) {
		tb.Fatalf("%v carries no record", err)
	}
	return we.Record
}

func lookUp(tb testing.TB, c *etcdclaims.Client, key string) etcdclaims.Info {
	tb.Helper()
	i, err := c.Lookup(tb.Context(), key)
	noErr(tb, err)
	return i
}

// eventually waits until ok says so.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited in vain: %s", what)
		}
	}
}

// rawKV reads a key as an operator would, nil if it is not there.
func rawKV(tb testing.TB, etcd *clientv3.Client, key string) *mvccpb.KeyValue {
	tb.Helper()
	resp, err := etcd.Get(tb.Context(), key)
	noErr(tb, err)
	if len(resp.Kvs) == 0 {
		return nil
	}
	return resp.Kvs[0]
}

// vanish ends the lease of a key's holder, as its death would in time.
func vanish(tb testing.TB, etcd *clientv3.Client, c *etcdclaims.Client, key string) {
	tb.Helper()
	i := lookUp(tb, c, key)
	if i.Lease == 0 {
		tb.Fatalf("key %q has no lease: %+v", key, i)
	}
	_, err := etcd.Revoke(tb.Context(), i.Lease)
	noErr(tb, err)
}

// twoOwners returns two claims clients with owners a and b on one prefix.
func twoOwners(tb testing.TB, etcd *clientv3.Client, cfg etcdclaims.Config) (a, b *etcdclaims.Client, prefix string) {
	tb.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = testetcd.Prefix(tb)
	}
	cfg.Owner = "a"
	a = newClient(tb, etcd, cfg)
	cfg.Owner = "b"
	return a, newClient(tb, etcd, cfg), cfg.Prefix
}
