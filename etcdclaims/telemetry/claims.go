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
	cfg.Hooks.Renewed = func(r etcdclaims.Renewal) {
		if before.Renewed != nil {
			before.Renewed(r)
		}
		t.renewed(r)
	}
	cfg.Hooks.Zombie = func(z etcdclaims.Zombie) {
		if before.Zombie != nil {
			before.Zombie(z)
		}
		t.zombies.Add(context.Background(), 1, t.options.of(one(keyTemplate, t.keys.of(z.Token.Key))).add...)
	}
	cfg.Hooks.Requested = func(r etcdclaims.Request) {
		if before.Requested != nil {
			before.Requested(r)
		}
		t.requested(r)
	}
	cfg.Hooks.Opened = func(c *etcdclaims.Client) func() {
		closed := func() {}
		if before.Opened != nil {
			if theirs := before.Opened(c); theirs != nil {
				closed = theirs
			}
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.clients[c] = true
		return func() {
			closed()
			t.mu.Lock()
			defer t.mu.Unlock()
			delete(t.clients, c)
		}
	}
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

func (t *Telemetry) requested(r etcdclaims.Request) {
	ctx := context.Background()
	if !t.requests.Enabled(ctx) && !t.requestDuration.Enabled(ctx) {
		return
	}
	result, errorType := "ok", ""
	if r.Err != nil {
		result, errorType = "error", errorTypeOf(r.Err)
	}
	t.requests.Add(ctx, 1, t.options.of(withError(two(keyKind, string(r.Kind), keyResult, result), errorType)).add...)
	t.requestDuration.Record(ctx, r.Took.Seconds(), t.options.of(one(keyKind, string(r.Kind))).record...)
}

// withError adds the type of an error to a series of at most three attributes,
// if there is one.
func withError(s series, errorType string) series {
	if errorType != "" {
		s.keys[3], s.vals[3] = keyError, errorType
	}
	return s
}
