package lease

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
)

// End ends all sessions and revokes their leases. It reports whether that
// was done with all.
func (p *Pool) End(ctx context.Context) bool {
	var wg sync.WaitGroup
	var left atomic.Int32
	for _, s := range p.Live() {
		// What is under way yet, such as the move of a key that has a MinHold, needs
		// the lease: it is left to lapse.
		needed := s.pending.Load() > 0 || s.Size() > 0 || ctx.Err() != nil
		s.Die(claimerr.Loss{Reason: claimerr.Shutdown})
		if needed {
			left.Add(1)
			continue
		}
		wg.Go(func() {
			if !s.revoke() {
				left.Add(1)
			}
		})
	}
	wg.Wait()
	return left.Load() == 0
}

// Quiet waits until nothing of the client is under way: no cleanup, no release, no
// acquisition, and no lease that is being granted; or ctx ends.
func (p *Pool) Quiet(ctx context.Context) {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	isCleaning := func() bool { return p.isBusy() || p.isOpening() }
	for {
		// Before and after: a grant becomes a session, and an acquisition a cleanup.
		if !isCleaning() && !slices.ContainsFunc(p.Live(), (*Session).isUsed) && !isCleaning() {
			return
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
