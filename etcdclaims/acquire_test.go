package etcdclaims_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// newClient returns a claims client on an etcd client, closed at the test's
// end. Clients that shall share claims are given one prefix.
func newClient(tb testing.TB, etcd *clientv3.Client, cfg etcdclaims.Config) *etcdclaims.Client {
	tb.Helper()
	c, err := etcdclaims.New(etcd, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			tb.Errorf("closing: %v", err)
		}
	})
	return c
}

func TestTryAcquire(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	etcd := testetcd.Shared(t).Client(t)
	prefix := testetcd.Prefix(t)
	a := newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: "a"})
	b := newClient(t, etcd, etcdclaims.Config{Prefix: prefix, Owner: "b"})

	first, err := a.TryAcquire(ctx, "k", etcdclaims.Note([]byte("hello")))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.TryAcquire(ctx, "k")
	var held *etcdclaims.HeldError
	if !errors.Is(err, etcdclaims.ErrHeld) || !errors.As(err, &held) {
		t.Fatalf("second acquirer got %v, want ErrHeld", err)
	}
	if i := held.Info; i.Owner != "a" || i.Fence != first.Fence() || i.Claim != first.ID() || i.Instance != a.Instance() {
		t.Errorf("the error tells %+v", i)
	}
	if i, err := b.Lookup(ctx, "k"); err != nil || string(i.Note) != "hello" {
		t.Errorf("Lookup tells %+v, %v", i, err)
	}
	if _, err := a.TryAcquire(ctx, "k"); !errors.Is(err, etcdclaims.ErrHeld) {
		t.Errorf("the holder's own client got %v, want ErrHeld", err)
	}
	if err := first.Check(); err != nil {
		t.Error(err)
	}
	if ok, err := first.Owns(ctx); !ok || err != nil {
		t.Errorf("Owns: %v, %v", ok, err)
	}
	if err := first.Note(ctx, []byte("again")); err != nil {
		t.Error(err)
	}
	if err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := first.Release(ctx); err != nil {
		t.Errorf("releasing again: %v", err)
	}
	if !errors.Is(first.Err(), etcdclaims.ErrReleased) || !errors.Is(first.Check(), etcdclaims.ErrReleased) {
		t.Errorf("after release: %v", first.Err())
	}
	second, err := b.TryAcquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if second.Fence() <= first.Fence() {
		t.Errorf("fence went from %d to %d", first.Fence(), second.Fence())
	}
	if ok, err := a.Owns(ctx, first.Token()); ok || err != nil {
		t.Errorf("a released token owns: %v, %v", ok, err)
	}
	if ok, err := a.Owns(ctx, second.Token()); !ok || err != nil {
		t.Errorf("the owner's token does not own: %v, %v", ok, err)
	}
}
