package oplog

import (
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// What etcd refuses again and again, ever for the same purpose, is in the log once a minute,
// also if other requests of that purpose succeed in between.
func TestRefusedRequestsDoNotFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		o := New(zap.New(core), func() error { return nil })
		for i := range 600 {
			o.Fail("read", rpctypes.ErrTooManyOps, zap.String("key", "a"))
			if i%3 == 0 {
				o.Succeed("read")
			}
			time.Sleep(time.Second)
		}
		o.Fail("begin", rpctypes.ErrTooManyOps, zap.String("key", "b"))
		if n := logs.FilterField(zap.String("key", "a")).Len(); n != 10 {
			t.Errorf("%d lines in ten minutes", n)
		}
		if n := logs.FilterField(zap.String("key", "b")).Len(); n != 1 {
			t.Errorf("another operation has %d lines", n)
		}
	})
}
