package etcdclaims_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Health in each state of a client with a claim and a waiter: what it returns, and with how
// many requests.
func TestHealthStates(t *testing.T) {
	t.Parallel()
	const patience = 5 * sec
	start := func(t *testing.T, w *world) (c *etcdclaims.Client, host *claimtest.Host) {
		c, host = w.client(etcdclaims.Config{TTL: 15 * sec})
		if h, err := c.Health(t.Context()); err != nil || !h.Reachable || h.Sessions+h.Claims+h.Waiting != 0 || h.Margin != 0 {
			t.Errorf("before the first claim: %+v, %v", h, err)
		}
		tryClaim(t, c, "k")
		other, _ := w.client(etcdclaims.Config{})
		tryClaim(t, other, "l")
		acquiring(t.Context(), c, "l")
		eventually(t, "it waits", func() bool { return w.places() == 1 })
		return c, host
	}
	well := func(t *testing.T, c *etcdclaims.Client, when string) {
		t.Helper()
		h, err := c.Health(t.Context())
		if err != nil || !h.Reachable || !h.Since.IsZero() || h.LastError != nil || h.LastAnswer.IsZero() ||
			time.Since(h.LastAnswer) > time.Second ||
			h.Sessions != 1 || h.Claims != 1 || h.Waiting != 1 || h.Margin < 5*sec || h.Margin > 15*sec {
			t.Errorf("%s: %+v, %v", when, h, err)
		}
		noErr(t, c.Unreachable())
	}
	for name, o := range outages {
		virtualCase(t, name, func(t *testing.T, w *world) {
			c, host := start(t, w)
			well(t, c, "at first")
			time.Sleep(2 * sec)
			o.begin(w, host)
			began := time.Now()
			h, err := c.Health(t.Context())
			wantIs(t, err, etcdclaims.ErrUnreachable)
			if took := time.Since(began); h.Reachable || h.Since.Before(began) || h.LastError == nil || h.LastAnswer.After(began) || took > 5*sec {
				t.Errorf("after %v: %+v", took, h)
			}
			if h.Claims != 1 || h.Margin <= 0 {
				t.Errorf("the claim still holds: %+v", h)
			}
			eventually(t, "the outage is noticed", func() bool { return c.Unreachable() != nil })
			wantIs(t, c.Unreachable(), etcdclaims.ErrUnreachable)
			if d := time.Since(began); d < patience || d > 15*sec {
				t.Errorf("noticed after %v", d)
			}
			time.Sleep(20 * sec)
			h, err = c.Health(t.Context())
			wantIs(t, err, etcdclaims.ErrUnreachable)
			if h.Reachable || h.Claims != 0 || h.Margin != 0 {
				t.Errorf("after the claim's deadline: %+v", h)
			}
			o.end(w, host)
			time.Sleep(3 * sec)
			h, err = c.Health(t.Context())
			noErr(t, err)
			noErr(t, c.Unreachable())
			if !h.Reachable || !h.Since.IsZero() || h.LastError != nil {
				t.Errorf("after the outage: %+v", h)
			}
		})
	}
	virtualCase(t, "deaf watch", func(t *testing.T, w *world) {
		c, host := start(t, w)
		deaf := host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, LoseReply: true})
		host.Break() // its watches begin anew
		for range 6 {
			time.Sleep(5 * sec)
			well(t, c, "while the watch delivers nothing") // it needs no watch
		}
		if deaf.Hits() == 0 {
			t.Error("no watch was deaf")
		}
	})
	virtualCase(t, "refused writes", func(t *testing.T, w *world) {
		c, host := start(t, w)
		host.Inject(claimtest.Fault{On: steps.Take, Times: -1, Err: rpctypes.ErrGRPCNoSpace})
		host.Inject(claimtest.Fault{On: steps.Enqueue, Times: -1, Err: rpctypes.ErrGRPCNoSpace})
		_, err := c.TryAcquire(t.Context(), "other")
		wantIs(t, err, rpctypes.ErrNoSpace)
		well(t, c, "etcd answers, and refuses") // Health does not write
	})
	virtualCase(t, "caller does not wait", func(t *testing.T, w *world) {
		c, host := start(t, w)
		time.Sleep(2 * sec)
		host.Inject(claimtest.Fault{Times: -1, DelayReply: 400 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		h, err := c.Health(ctx)
		wantIs(t, err, context.DeadlineExceeded)
		if !h.Reachable || !h.Since.IsZero() { // 100 ms say nothing about etcd
			t.Errorf("%+v", h)
		}
		host.RemoveFaults()
	})
	virtualCase(t, "no request within a second of another", func(t *testing.T, w *world) {
		c, _ := start(t, w)
		before := c.Stats().Requests
		well(t, c, "at once")
		if n := c.Stats().Requests - before; n != 0 {
			t.Errorf("%d requests", n)
		}
		time.Sleep(1100 * time.Millisecond)
		before = c.Stats().Requests
		well(t, c, "after a second")
		if n := c.Stats().Requests - before; n != 1 {
			t.Errorf("%d requests", n)
		}
	})
	virtualCase(t, "closed", func(t *testing.T, w *world) {
		c, _ := start(t, w)
		noErr(t, c.Close(t.Context()))
		before := c.Stats().Requests
		h, err := c.Health(t.Context())
		wantIs(t, err, etcdclaims.ErrClosed)
		if h.Sessions+h.Claims+h.Waiting != 0 || h.Margin != 0 || c.Stats().Requests != before {
			t.Errorf("%+v", h)
		}
	})
}
