//go:build unix && !race

package etcdclaims_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/google/uuid"
)

// A claim and its release allocate no more than this, what gRPC and clientv3 allocate included. Etcd is a process of its
// own. On a busy machine fewer calls share a round trip, so the bar for many goroutines has more room.
func TestCycleAllocations(t *testing.T) {
	etcd := testetcd.StartProcess(t).Client(t)
	for _, tt := range []struct{ goroutines, cycles, bar int }{
		{1, 200, 285},
		{256, 20, 66},
	} {
		c := newClient(t, etcd, etcdclaims.Config{Prefix: "/" + uuid.NewString()[:8] + "/"})
		run := func(cycles int) {
			var wg sync.WaitGroup
			for i := range tt.goroutines {
				wg.Go(func() {
					key := fmt.Sprintf("key/%d", i)
					for range cycles {
						cl, err := c.TryAcquire(t.Context(), key)
						if err == nil {
							err = cl.Release(t.Context())
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		}
		run(2) // opens the session
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run(tt.cycles)
		runtime.ReadMemStats(&after)
		got := float64(after.Mallocs-before.Mallocs) / float64(tt.cycles*tt.goroutines)
		t.Logf("%d goroutines: %.1f allocations a cycle", tt.goroutines, got)
		if got > float64(tt.bar) {
			t.Errorf("%d goroutines: %.1f allocations a cycle, want at most %d", tt.goroutines, got, tt.bar)
		}
	}
}
