package locks_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/internal/testclaims"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// A lock is released when its key is gone: what becomes of the request that revokes its
// lease delays nobody.
func TestReleaseDoesNotWaitForTheLease(t *testing.T) {
	t.Parallel()
	testclaims.Virtually(t, func(t *testing.T, w *testclaims.World) {
		c, host := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
		locks := locks.New(c)
		_, ok, err := locks.TryAcquire(context.Background(), "k", "o", time.Minute)
		testclaims.NoErr(t, err)
		if !ok {
			t.Fatal("not locked")
		}
		host.Inject(claimtest.Fault{On: claimtest.Revoke, Times: -1, LoseReply: true})
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		ok, err = locks.Release(ctx, "k", "o")
		testclaims.NoErr(t, err)
		if took := time.Since(begun); !ok || took > 100*time.Millisecond {
			t.Errorf("released: %v, after %v", ok, took)
		}
		host.RemoveFaults()
		w.CloseClean(c)
	})
}

// A call whose request may have been carried out, and that is refused when it tries again, is of
// unknown outcome.
func TestLockRefusedAfterUnknown(t *testing.T) {
	t.Parallel()
	denied := rpctypes.ErrGRPCPermissionDenied
	renewal := func(host *claimtest.Host) {
		host.Inject(claimtest.Fault{On: claimtest.KeepAlive, LoseReply: true, Code: codes.Unavailable})
		host.Inject(claimtest.Fault{On: claimtest.Verify, Skip: 1, Times: -1, Err: denied}) // the first read is before it
	}
	for name, c := range map[string]struct {
		inject func(host *claimtest.Host)
		call   func(ctx context.Context, l locks.Locks) (bool, error)
	}{
		"Release": {func(host *claimtest.Host) {
			for _, kind := range []claimtest.Kind{claimtest.Release, claimtest.Other} {
				host.Inject(claimtest.Fault{On: kind, LoseReply: true, Code: codes.Unavailable})
				host.Inject(claimtest.Fault{On: kind, Times: -1, Err: denied})
			}
		}, func(ctx context.Context, l locks.Locks) (bool, error) { return l.Release(ctx, "k", "o") }},
		"Renew": {renewal, func(ctx context.Context, l locks.Locks) (bool, error) {
			_, ok, err := l.Renew(ctx, "k", "o", time.Minute)
			return ok, err
		}},
		"TryAcquire": {renewal, func(ctx context.Context, l locks.Locks) (bool, error) {
			_, ok, err := l.TryAcquire(ctx, "k", "o", time.Minute)
			return ok, err
		}},
	} {
		testclaims.Case(t, name, func(t *testing.T, w *testclaims.World) {
			a, host := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, ok, err := locks.New(a).TryAcquire(ctx, "k", "o", time.Minute)
			testclaims.NoErr(t, err)
			if !ok {
				t.Fatal("not locked")
			}
			c.inject(host)
			ok, err = c.call(ctx, locks.New(a))
			if ok {
				t.Error("it succeeded")
			}
			testclaims.WantIs(t, err, etcdclaims.ErrUnknown)
			testclaims.WantIs(t, err, etcdclaims.ErrPermissionDenied)
		})
	}
}
