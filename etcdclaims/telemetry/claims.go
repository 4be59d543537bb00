package telemetry

import (
	"context"

	"github.com/etcdclaims/claims/etcdclaims"
)

// Instrument makes clients that are created with cfg report their claims. It
// keeps the hooks that cfg has: they are called too. If cfg has
// Hooks.Observe, the text of its Observer.Trace is not passed on.
//
// The claims of a passthrough client are not measured.
func (t *Telemetry) Instrument(cfg *etcdclaims.Config) {
	before := cfg.Hooks
	cfg.Hooks.Observe = func(ctx context.Context, call etcdclaims.Call) etcdclaims.Observer {
		mine := t.observe(ctx, call)
		if before.Observe == nil {
			return mine
		}
		switch theirs := before.Observe(ctx, call); {
		case mine == nil:
			return theirs
		case theirs != nil:
			return pair{theirs, mine}
		}
		return mine
	}
	cfg.Hooks.Renewed = chain(before.Renewed, t.renewed)
	cfg.Hooks.Requested = chain(before.Requested, t.requested)
	cfg.Hooks.Suspected = chain(before.Suspected, t.suspected)
	cfg.Hooks.Opened = tracked(t, before.Opened, t.clients, true)
	cfg.Hooks.Zombie = chain(before.Zombie, func(z etcdclaims.Zombie) {
		t.zombies.Add(context.Background(), 1, t.options.of(series{}.with(keyTemplate, t.keys.of(z.Token.Key))).add...)
	})
}

func (t *Telemetry) renewed(r etcdclaims.Renewal) {
	ctx := context.Background()
	t.renewal.Record(ctx, r.Took.Seconds())
	if r.Claims == 0 {
		return // nothing was at stake
	}
	t.margin.Record(ctx, r.Margin.Seconds())
	t.marginRatio.Record(ctx, r.Margin.Seconds()/r.TTL.Seconds())
}

func (t *Telemetry) suspected(s etcdclaims.Suspicion) {
	result := "right"
	if s.Wrong {
		result = "wrong"
	}
	t.suspicions.Add(context.Background(), int64(s.Claims), t.options.of(series{}.with(keyResult, result)).add...)
}

func (t *Telemetry) requested(r etcdclaims.Request) {
	ctx := context.Background()
	if !t.requests.Enabled(ctx) && !t.requestDuration.Enabled(ctx) {
		return
	}
	result, errorType := "ok", ""
	if r.Err != nil {
		result, errorType = "error", errorTypeOf(r.Err)
	}
	t.requests.Add(ctx, 1, t.options.of(series{}.with(keyKind, string(r.Kind)).with(keyResult, result).with(keyError, errorType)).add...)
	t.requestDuration.Record(ctx, r.Took.Seconds(), t.options.of(series{}.with(keyKind, string(r.Kind))).record...)
}
