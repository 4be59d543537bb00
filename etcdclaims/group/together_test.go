package group_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// Members that join together share out the partitions at once, and no handler is called in vain.
// Members that join a little later find that the first has all partitions. They have their shares as
// soon as no more members join, without a cool-down.
func TestMembersStartTogether(t *testing.T) {
	t.Parallel()
	const members = 8
	partitions := testetcd.Fewer(256, 32)
	for _, c := range []struct {
		apart, within time.Duration
		calls         int64
	}{
		{0, 500 * time.Millisecond, int64(partitions)},
		{30 * time.Millisecond, 500 * time.Millisecond, int64(partitions)},
		{300 * time.Millisecond, 3500 * time.Millisecond, int64(2 * partitions)},
	} {
		t.Run(c.apart.String(), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				all := make([]*group.Member, members)
				var joins sync.WaitGroup
				var calls atomic.Int64
				began := time.Now()
				for i := range all {
					host := w.server.Host(w.T)
					host.Inject(claimtest.Fault{Times: -1, DelayReply: time.Millisecond})
					claims := claimtest.NewClient(w.T, host, etcdclaims.Config{})
					joins.Go(func() {
						time.Sleep(time.Duration(i) * c.apart)
						cfg := group.Config{Group: "g", Partitions: partitions, Name: fmt.Sprint("m", i)}
						m, err := group.Join(w.Context(), claims, cfg, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
							calls.Add(1)
							<-ctx.Done()
							return nil
						})
						if err != nil {
							w.Error(err)
						}
						all[i] = m
					})
				}
				joins.Wait()
				took := time.Duration(0)
				for _, m := range all {
					w.within(time.Minute, "balanced", func() bool { return balanced(m.View()) })
					took = max(took, time.Since(began))
				}
				w.Logf("balanced after %v, %d calls of handlers for %d partitions", took, calls.Load(), partitions)
				if took > c.within || calls.Load() > c.calls {
					w.Errorf("balanced after %v, want %v; %d calls of handlers, want at most %d", took, c.within, calls.Load(), c.calls)
				}
				var leaves sync.WaitGroup
				for _, m := range all {
					leaves.Go(func() { _ = m.Leave(w.Context()) })
				}
				leaves.Wait()
			})
		})
	}
}
