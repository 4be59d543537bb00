package contract

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testclaims"
)

var lossCases = []Case{
	{"a claim whose lease is revoked is lost", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim, other := t.try(a, "k"), t.try(a, "other")
		ctx, cancel := claim.Bind(t.ctx)
		defer cancel()
		began := time.Now()
		t.revoke(b, "k")
		t.lost(claim, etcdclaims.ReasonRevoked)
		t.lost(other, etcdclaims.ReasonRevoked) // they share the lease
		if d := time.Since(began); d > etcdclaims.DefaultTTL/4 {
			t.Errorf("it took %v, as if only a renewal had told", d)
		}
		t.is(context.Cause(claim.Context()), etcdclaims.ErrLost)
		t.is(context.Cause(claim.Context()), context.Canceled)
		t.wait(ctx.Done(), "what is bound to the claim is over")
		t.is(claim.Release(t.ctx), etcdclaims.ErrLost)
		t.is(claim.Renew(t.ctx), etcdclaims.ErrLost)
		// The client goes on, with another session.
		again := t.try(a, "k")
		t.rises(claim.Fence(), again.Fence())
		t.ok(again.Check())
		t.is(claim.Check(), etcdclaims.ErrLost)
	}},

	{"a claim whose key is overwritten is lost alone", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim, other := t.try(a, "k"), t.try(a, "other")
		_, err := t.raw.Put(t.ctx, testclaims.Key(t.prefix, "k"), "what is this?")
		t.ok(err)
		t.is(claim.Renew(t.ctx), etcdclaims.ErrLost)
		t.lost(claim, etcdclaims.ReasonSuperseded)
		t.ok(other.Renew(t.ctx))
		if info := t.refused(b, "k"); info.Lease != 0 {
			t.Errorf("a key that no lease will end is told as %+v", info)
		}
		t.ok(admin.ForceRelease(t.ctx, b, "k", "test"))
		t.try(b, "k")
	}},

	{"a forced release reaches the holder", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		t.ok(admin.ForceRelease(t.ctx, b, "k", "nobody has it"))
		claim, other := t.try(a, "k"), t.try(a, "other")
		t.ok(admin.ForceRelease(t.ctx, b, "k", "maintenance"))
		t.try(b, "k")
		t.lost(claim, etcdclaims.ReasonDeleted)
		if text := claim.Err().Error(); !strings.Contains(text, "maintenance") {
			t.Errorf("%q does not say why", text)
		}
		t.ok(other.Check())
		t.is(claim.Release(t.ctx), etcdclaims.ErrLost)
		t.refused(a, "k")
	}},

	{"hooks are told", func(t *trial) {
		var acquired, released, lost atomic.Pointer[fencing.Token]
		a := t.client(etcdclaims.Config{Hooks: etcdclaims.Hooks{
			TermBegan: func(_ context.Context, term etcdclaims.TermInfo) { acquired.Store(&term.Token) },
			TermEnded: func(_ context.Context, term etcdclaims.TermInfo) {
				if errors.Is(term.Err, etcdclaims.ErrLost) {
					lost.Store(&term.Token)
				} else {
					released.Store(&term.Token)
				}
			},
		}})
		told := func(what string, got *atomic.Pointer[fencing.Token], want *etcdclaims.Claim) {
			t.Helper()
			t.eventually(what, func() bool { p := got.Load(); return p != nil && *p == want.Token() })
		}
		claim := t.try(a, "k")
		told("the hook is told of an acquisition", &acquired, claim)
		t.ok(claim.Release(t.ctx))
		told("the hook is told of a release", &released, claim)
		claim = t.try(a, "k")
		t.revoke(a, "k")
		told("the hook is told of a loss", &lost, claim)
	}},
}
