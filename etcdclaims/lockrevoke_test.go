package etcdclaims_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
)

// A lock is released when its key is gone: what becomes of the request that revokes its
// lease delays nobody.
func TestReleaseDoesNotWaitForTheLease(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		locks := c.Locks()
		_, ok, err := locks.TryAcquire(context.Background(), "k", "o", time.Minute)
		noErr(t, err)
		if !ok {
			t.Fatal("not locked")
		}
		host.Inject(claimtest.Fault{On: claimtest.Revoke, Times: -1, LoseReply: true})
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		ok, err = locks.Release(ctx, "k", "o")
		noErr(t, err)
		if took := time.Since(begun); !ok || took > 100*time.Millisecond {
			t.Errorf("released: %v, after %v", ok, took)
		}
		host.RemoveFaults()
		w.closeClean(c)
	})
}
