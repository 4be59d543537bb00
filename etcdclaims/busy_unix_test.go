//go:build unix

package etcdclaims_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// TestBusyHandlers holds a claim on one processor that computing handlers keep
// busy: renewal gets its turn before anybody is told to stop.
func TestBusyHandlers(t *testing.T) {
	testetcd.SkipUnlessLong(t, "computes for twelve seconds")
	etcd := testetcd.StartProcess(t).Client(t) // not busy itself
	var least atomic.Int64
	least.Store(int64(etcdclaims.MinTTL))
	c := newClient(t, etcd, etcdclaims.Config{TTL: etcdclaims.MinTTL, Hooks: etcdclaims.Hooks{
		Renewed: func(r etcdclaims.Renewal) { least.Store(min(least.Load(), int64(r.Margin))) },
	}})
	cl := tryClaim(t, c, "busy")

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	began, spent := time.Now(), processorTime(t)
	unfair := func() bool { // others had the machine
		return processorTime(t)-spent < time.Since(began)/2
	}
	var stop atomic.Bool
	var handlers sync.WaitGroup
	defer handlers.Wait()
	defer stop.Store(true)
	for range 4 {
		handlers.Go(func() {
			for !stop.Load() { // no call gives the processor up
			}
		})
	}
	select {
	case <-time.After(2*etcdclaims.MinTTL + 2*time.Second):
	case <-cl.Context().Done():
		if unfair() {
			t.Skip("this process got less than half of a processor: other processes kept it from renewing")
		}
		t.Fatalf("told to stop beside busy handlers: %v", cl.Err())
	}
	if err := cl.Check(); err != nil && !unfair() {
		t.Fatalf("lost beside busy handlers: %v", err)
	}
	t.Logf("the renewals came %v or more before the deadline", time.Duration(least.Load()))
}

// processorTime is how long processors have worked for this process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
