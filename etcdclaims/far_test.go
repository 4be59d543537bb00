package etcdclaims_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
)

// A lease is renewed a third of its TTL after it was asked for, however long it took to open
// the session and to stand in line: else a short lease ends before its first renewal comes.
func TestFarWaiterRenewsItsLeaseInTime(t *testing.T) {
	t.Parallel()
	for _, rtt := range []time.Duration{ms, 500 * ms, 800 * ms} {
		virtualCase(t, fmt.Sprint(rtt), func(t *testing.T, w *world) {
			host := w.Server.Host(t)
			host.SetLatency(rtt/3, rtt-rtt/3, 0)
			a := newClient(t, host.Etcd(t), etcdclaims.Config{TTL: 15 * sec, Prefix: w.Prefix})
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

// A client with a password does not log in to renew: that would be another round trip, and far
// from etcd no renewal would end within its limit.
func TestFarRenewalWithPassword(t *testing.T) {
	t.Parallel()
	const rtt, ttl = 900 * ms, 8 * sec // two round trips are longer than TTL/6
	virtually(t, func(t *testing.T, w *world) {
		host := w.Server.Host(t)
		host.SetLatency(rtt/3, rtt-rtt/3, 0)
		a := newClient(t, host.Etcd(t), etcdclaims.Config{TTL: 15 * sec, Prefix: w.Prefix})
		cl := tryClaim(t, a, "k", etcdclaims.Manual(), etcdclaims.TTL(ttl))
		logins := func() int { return len(host.Sent("authenticate")) }
		before := logins()
		renewIn := func(most time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(context.Background(), 30*sec)
			defer cancel()
			begun := time.Now()
			noErr(t, cl.Renew(ctx))
			if took := time.Since(begun); took > most+50*ms {
				t.Errorf("a renewal took %v, want %v", took, most)
			}
		}
		for range 3 {
			time.Sleep(3 * sec)
			renewIn(2 * rtt) // with its verification
		}
		if n := logins() - before; n != 0 {
			t.Errorf("logged in %d times to renew", n)
		}
		w.Server.ExpireTokens(t)
		renewIn(4 * rtt) // refused, logged in, renewed, verified
		if n := logins() - before; n < 1 || n > 2 {
			t.Errorf("logged in %d times when the tokens had expired, want 1 or 2", n)
		}
		noErr(t, cl.Check())
		release(t, cl)
	}, claimtest.Auth())
}

// A claim is held while the round trip is shorter than a sixth of its TTL, with a password, too,
// and over the end of its tokens.
func TestFarSmallestTTL(t *testing.T) {
	t.Parallel()
	for ttl, rtt := range map[time.Duration]time.Duration{5 * sec: 800 * ms, 8 * sec: 1300 * ms, 15 * sec: 2400 * ms} {
		for name, opts := range map[string][]claimtest.Option{"": nil, " with a password": {claimtest.Auth()}} {
			virtualCase(t, fmt.Sprint(ttl, name), func(t *testing.T, w *world) {
				host := w.Server.Host(t)
				a := newClient(t, host.Etcd(t), etcdclaims.Config{TTL: ttl, Prefix: w.Prefix})
				release(t, tryClaim(t, a, "warm")) // to connect takes round trips of its own
				host.SetLatency(rtt/3, rtt-rtt/3, 0)
				cl := tryClaim(t, a, "k")
				time.Sleep(time.Minute)
				if opts != nil {
					w.Server.ExpireTokens(t)
				}
				time.Sleep(time.Minute)
				noErr(t, cl.Check())
				noErr(t, cl.Context().Err())
				host.SetLatency(0, 0, 0)
				release(t, cl)
			}, opts...)
		}
	}
}
