package etcdclaims_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// A lease is renewed a third of its TTL after it was asked for, however long it took to open
// the session and to stand in line: else a short lease ends before its first renewal comes.
func TestFarWaiterRenewsItsLeaseInTime(t *testing.T) {
	t.Parallel()
	for _, rtt := range []time.Duration{ms, 500 * ms, 800 * ms} {
		virtualCase(t, fmt.Sprint(rtt), func(t *testing.T, w *world) {
			host := w.server.Host(t)
			host.SetLatency(rtt/3, rtt-rtt/3, 0)
			a := newClient(t, host.Etcd(t), etcdclaims.Config{TTL: 15 * sec, Prefix: w.prefix})
			held := tryClaim(t, w.peer(), "k")
			ctx, cancel := context.WithTimeout(context.Background(), 30*sec)
			defer cancel()
			done := acquiring(ctx, a, "k", etcdclaims.Manual(), etcdclaims.TTL(5*sec))
			time.Sleep(20 * sec)
			release(t, held)
			released := time.Now()
			r := <-done
			noErr(t, r.err)
			if d := r.at.Sub(released); d > 5*rtt { // its event, and a renewal that is verified
				t.Errorf("acquired %v after the release", d)
			}
			noErr(t, r.cl.Check())
			release(t, r.cl)
		})
	}
}
