package telemetry

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// Instrument makes clients that are created with cfg report their claims. It
// keeps the hooks that cfg has: they are called too. If cfg has Hooks.Trace, its text is
// not passed on to the next holder.
//
// The claims of a passthrough client are not measured.
func (t *Telemetry) Instrument(cfg *etcdclaims.Config) {
	before := cfg.Hooks
	cfg.Hooks.CallBegan = func(ctx context.Context, call etcdclaims.Call) context.Context {
		if before.CallBegan != nil {
			ctx = before.CallBegan(ctx, call)
		}
		return t.callBegan(ctx, call)
	}
	cfg.Hooks.CallEnded = chainCtx(before.CallEnded, t.callEnded)
	cfg.Hooks.TermBegan = chainCtx(before.TermBegan, t.termBegan)
	cfg.Hooks.TermEnded = chainCtx(before.TermEnded, t.termEnded)
	cfg.Hooks.Zombie = func(ctx context.Context, term etcdclaims.TermInfo, drain time.Duration) {
		if before.Zombie != nil {
			before.Zombie(ctx, term, drain)
		}
		t.zombies.Add(context.Background(), 1, t.options.of(series{}.with(keyTemplate, t.keys.of(term.Token.Key))).add...)
	}
	cfg.Hooks.Context = func(ctx, work context.Context) context.Context {
		if before.Context != nil {
			work = before.Context(ctx, work)
		}
		return t.workContext(ctx, work)
	}
	cfg.Hooks.Trace = t.traceOf
	cfg.Hooks.Renewed = chain(before.Renewed, t.renewed)
	cfg.Hooks.Suspected = func(instance string, claims int, wrong bool) {
		if before.Suspected != nil {
			before.Suspected(instance, claims, wrong)
		}
		t.suspected(claims, wrong)
	}
	cfg.Hooks.Requested = chain(before.Requested, t.requested)
	cfg.Hooks.Opened = tracked(t, before.Opened, t.clients, true)
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

func (t *Telemetry) suspected(claims int, wrong bool) {
	result := "right"
	if wrong {
		result = "wrong"
	}
	t.suspicions.Add(context.Background(), int64(claims), t.options.of(series{}.with(keyResult, result)).add...)
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
	t.requests.Add(ctx, 1, t.options.of(series{}.with(keyKind, r.Kind).with(keyResult, result).with(keyError, errorType)).add...)
	t.requestDuration.Record(ctx, r.Took.Seconds(), t.options.of(series{}.with(keyKind, r.Kind)).record...)
}
