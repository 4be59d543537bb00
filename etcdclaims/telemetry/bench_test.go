package telemetry_test

import (
	"context"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/telemetry"
	"github.com/etcdclaims/claims/fencing"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// BenchmarkClaim measures what telemetry adds to a claim that is acquired, asked
// for a context, released, and carried by one request of its own for each.
func BenchmarkClaim(b *testing.B) {
	for name, cfg := range map[string]telemetry.Config{
		"none": {MeterProvider: metricnoop.NewMeterProvider(), TracerProvider: tracenoop.NewTracerProvider()},
		"metrics": {
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
			TracerProvider: tracenoop.NewTracerProvider(),
		},
		"all": {
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
			TracerProvider: sdktrace.NewTracerProvider(),
		},
	} {
		b.Run(name, func(b *testing.B) {
			tel, err := telemetry.New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			var claims etcdclaims.Config
			tel.Instrument(&claims)
			hooks := claims.Hooks
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				hooked := hooks.CallBegan(ctx, etcdclaims.Call{Key: "orders/4711"})
				hooks.Requested(etcdclaims.Request{Kind: "txn"})
				hooks.Requested(etcdclaims.Request{Kind: "txn"})
				hooks.TermBegan(hooked, etcdclaims.TermInfo{Token: fencing.Token{Key: "orders/4711", Fence: 7}})
				hooks.CallEnded(hooked, etcdclaims.Call{Key: "orders/4711"})
				hooks.Context(hooked, ctx)
				hooks.TermEnded(hooked, etcdclaims.TermInfo{Err: etcdclaims.ErrReleased})
			}
		})
	}
}
