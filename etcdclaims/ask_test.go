package etcdclaims_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A call without a note is not refused because etcd did not permit the note of another
// call for the key at the same time.
func TestDeniedNoteIsNotShared(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		host.Inject(claimtest.Fault{On: claimtest.Grant, DelayRequest: 100 * ms})
		host.Inject(claimtest.Fault{On: claimtest.Acquire, Key: "k", Times: 1, Err: rpctypes.ErrGRPCPermissionDenied})
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := a.TryAcquire(ctx, "k", etcdclaims.Note([]byte("x")))
			first <- err
		}()
		time.Sleep(10 * ms)
		go func() {
			_, err := a.TryAcquire(ctx, "k")
			second <- err
		}()
		// In virtual time either request may come first, and be denied.
		errs := []error{<-first, <-second}
		if n := len(host.Sent(claimtest.Acquire)); n != 2 {
			t.Errorf("%d requests", n)
		}
		if errors.Is(errs[0], etcdclaims.ErrPermissionDenied) == errors.Is(errs[1], etcdclaims.ErrPermissionDenied) {
			t.Errorf("with a note: %v, without: %v", errs[0], errs[1])
		}
	})
}
