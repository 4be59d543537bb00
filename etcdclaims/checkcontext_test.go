package etcdclaims_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
)

// A context is enough to look at the clock by: after the soft deadline the claim
// is held yet, and after the hard one not.
func TestCheckByContext(t *testing.T) {
	t.Parallel()
	virtualCase(t, "OK", func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		cl := tryClaim(t, c, "k")
		bound, cancel := cl.Bind(t.Context())
		defer cancel()
		contexts := map[string]context.Context{"bound": bound, "own": cl.Context()}
		host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, LoseRequest: true})
		soft, hard := timing(15 * sec)
		time.Sleep(soft + sec)
		for name, ctx := range contexts {
			if ctx.Err() == nil || fencing.Check(ctx) != nil {
				t.Errorf("%s, in the drain: %v, Check %v", name, ctx.Err(), fencing.Check(ctx))
			}
		}
		time.Sleep(hard - soft)
		for _, ctx := range contexts {
			lossOf(t, fencing.Check(ctx), etcdclaims.ReasonExpired)
		}
	})
}
