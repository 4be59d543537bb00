package testclaims

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// BadKeys are what no call takes.
var BadKeys = []string{
	"", strings.Repeat("x", 1025), strings.Repeat("x", 1<<20), strings.Repeat("ü", 513), "\x00", "a\x00b", "a\nb", "a\tb", "\x1b[0m",
	"a\x7f", "a\u0080b", "a\u009f", "\xff", "a\xc3", "\xed\xa0\x80", "a\xc0\x80",
}

// NoErr ends the test after an error.
func NoErr(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// WantIs ends the test unless the error matches the target.
func WantIs(tb testing.TB, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Fatalf("got %v, want an error that matches %q", err, target)
	}
}

// TwoOwners returns two clients of one prefix, with the labels a and b.
func TwoOwners(tb testing.TB, etcd *clientv3.Client, cfg etcdclaims.Config) (a, b *etcdclaims.Client, prefix string) {
	tb.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = testetcd.Prefix(tb)
	}
	on := EtcdFunc(func(testing.TB) *clientv3.Client { return etcd })
	cfg.Owner = "a"
	a = claimtest.NewClient(tb, on, cfg)
	cfg.Owner = "b"
	return a, claimtest.NewClient(tb, on, cfg), cfg.Prefix
}

// TryClaim claims a key that is free.
func TryClaim(tb testing.TB, c *etcdclaims.Client, key string, opts ...etcdclaims.AcquireOption) *etcdclaims.Claim {
	tb.Helper()
	cl, err := c.TryAcquire(tb.Context(), key, opts...)
	if err != nil {
		tb.Fatalf("acquiring %s: %v", key, err)
	}
	return cl
}

// LookUp returns the holder of a key.
func LookUp(tb testing.TB, c *etcdclaims.Client, key string) etcdclaims.Info {
	tb.Helper()
	i, err := c.Lookup(tb.Context(), key)
	NoErr(tb, err)
	return i
}

// Eventually waits until something is so.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited in vain: %s", what)
		}
	}
}

// RawKV reads a key of etcd as an operator would. It returns nil if the key does not exist.
func RawKV(tb testing.TB, etcd *clientv3.Client, key string) *mvccpb.KeyValue {
	tb.Helper()
	resp, err := etcd.Get(tb.Context(), key)
	NoErr(tb, err)
	if len(resp.Kvs) == 0 {
		return nil
	}
	return resp.Kvs[0]
}

// Vanish ends the lease of a key's holder, as its death would in time.
func Vanish(tb testing.TB, etcd *clientv3.Client, c *etcdclaims.Client, key string) {
	tb.Helper()
	i := LookUp(tb, c, key)
	if i.Lease == 0 {
		tb.Fatalf("key %q has no lease: %+v", key, i)
	}
	_, err := etcd.Revoke(tb.Context(), i.Lease)
	NoErr(tb, err)
}

// RecordOf returns the record in an error that matches target.
func RecordOf(tb testing.TB, err, target error) work.Record {
	tb.Helper()
	var we *work.Error
	if !errors.Is(err, target) || !errors.As(err, &we) {
		tb.Fatalf("got %v, want an error with a record that matches %q", err, target)
	}
	return we.Record
}

// Locked locks, and wants the outcome.
func Locked(tb testing.TB, k locks.Locks, key, owner string, ttl time.Duration, want bool) int64 {
	tb.Helper()
	fence, ok, err := k.TryAcquire(tb.Context(), key, owner, ttl)
	NoErr(tb, err)
	if ok != want || ok != (fence > 0) {
		tb.Fatalf("locking %q for %q: %v with fence %d, want %v", key, owner, ok, fence, want)
	}
	return fence
}

// Renewed renews a lock, and wants the outcome.
func Renewed(tb testing.TB, k locks.Locks, key, owner string, ttl time.Duration, want bool) int64 {
	tb.Helper()
	fence, ok, err := k.Renew(tb.Context(), key, owner, ttl)
	NoErr(tb, err)
	if ok != want || ok != (fence > 0) {
		tb.Fatalf("renewing %q for %q: %v with fence %d, want %v", key, owner, ok, fence, want)
	}
	return fence
}

// Unlocked unlocks, and wants the outcome.
func Unlocked(tb testing.TB, k locks.Locks, key, owner string, want bool) {
	tb.Helper()
	ok, err := k.Release(tb.Context(), key, owner)
	NoErr(tb, err)
	if ok != want {
		tb.Fatalf("unlocking %q for %q: %v, want %v", key, owner, ok, want)
	}
}

// LockedBy wants the owner, "" for none.
func LockedBy(tb testing.TB, k locks.Locks, key, want string) {
	tb.Helper()
	owner, ok, err := k.Owner(tb.Context(), key)
	NoErr(tb, err)
	is, err := k.IsLocked(tb.Context(), key)
	NoErr(tb, err)
	if owner != want || ok != (want != "") || is != ok {
		tb.Fatalf("%q is locked by %q (%v, IsLocked %v), want %q", key, owner, ok, is, want)
	}
}

// Release gives up what must be released without an error.
func Release(tb testing.TB, cl interface {
	Key() string
	Release(ctx context.Context) error
},
) {
	tb.Helper()
	if err := cl.Release(context.Background()); err != nil {
		tb.Errorf("releasing %s: %v", cl.Key(), err)
	}
}

// LossOf checks that an error is a loss for the reason.
func LossOf(tb testing.TB, err error, want etcdclaims.Reason) {
	tb.Helper()
	var l *etcdclaims.LostError
	matches := errors.Is(err, etcdclaims.ErrLost) && errors.Is(err, context.Canceled)
	if !errors.As(err, &l) || l.Reason != want || !matches {
		tb.Errorf("got %v, want a loss for %q", err, want)
	}
}

// AtOnce makes n calls at the same moment, and returns their errors and how long
// the last of them took.
func AtOnce(n int, call func(i int) error) (errs []error, last time.Duration) {
	errs = make([]error, n)
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = call(i) })
	}
	wg.Wait()
	return errs, time.Since(begin)
}
