package contract

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
)

var endCases = []Case{
	{"all claims are released at once", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		var claims []*etcdclaims.Claim
		for i := range 5 {
			claims = append(claims, t.try(a, fmt.Sprint("k", i)))
		}
		other := t.try(b, "other")
		for _, want := range []int{5, 0} {
			if n, err := a.ReleaseAll(t.ctx); n != want || err != nil {
				t.Errorf("released %d, %v, want %d", n, err, want)
			}
		}
		for i, claim := range claims {
			t.is(claim.Err(), etcdclaims.ErrReleased)
			t.try(b, fmt.Sprint("k", i))
		}
		t.ok(other.Check())
		t.try(a, "more") // the client goes on
	}},

	{"closing releases everything", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim, job := t.try(a, "k"), t.begin(a, "work")
		manual := t.try(a, "manual", etcdclaims.Manual())
		lease := t.lookup(b, "k").Lease
		for range 2 { // closing again changes nothing
			t.ok(a.Close(t.ctx))
		}
		for _, claim := range []*etcdclaims.Claim{claim, job.Claim, manual} {
			t.lost(claim, etcdclaims.ReasonShutdown)
			t.is(claim.Renew(t.ctx), etcdclaims.ErrLost)
		}
		for _, key := range []string{"k", "manual"} {
			t.try(b, key)
		}
		// Work that was not ended is an orphan.
		if over := t.begin(b, "work"); over.Attempt() != 2 {
			t.Errorf("attempt %d after the first", over.Attempt())
		}
		ttl, err := t.raw.TimeToLive(t.ctx, lease)
		t.ok(err)
		if ttl.TTL > 0 {
			t.Errorf("the lease lasts for %d s yet", ttl.TTL)
		}
	}},

	{"a closed client does nothing", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		t.ok(a.Close(t.ctx))
		never := func(context.Context) error { t.Error("the handler ran"); return nil }
		for name, call := range map[string]func() error{
			"TryAcquire":    func() error { _, err := a.TryAcquire(t.ctx, "k"); return err },
			"Acquire":       func() error { _, err := a.Acquire(t.ctx, "k"); return err },
			"TryAcquireAll": func() error { _, err := a.TryAcquireAll(t.ctx, []string{"k"}); return err },
			"TryAcquireEach": func() error {
				_, errs := a.TryAcquireEach(t.ctx, []string{"k"})
				return errs[0]
			},
			"TryBegin": func() error { _, err := t.works(a).TryBegin(t.ctx, "k"); return err },
			"Begin":    func() error { _, err := t.works(a).Begin(t.ctx, "k"); return err },
			"TryRun":   func() error { return a.TryRun(t.ctx, "k", never) },
			"Run":      func() error { return a.Run(t.ctx, "k", never) },
		} {
			if err := call(); err == nil {
				t.Errorf("%s: no error", name)
			} else {
				t.is(err, etcdclaims.ErrClosed)
			}
		}
		t.free(b, "k")
	}},

	{"clients are closed on their own", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(b, "k")
		t.try(a, "other")
		t.ok(a.Close(t.ctx))
		t.ok(claim.Renew(t.ctx))
		t.ok(claim.Release(t.ctx))
	}},
}
