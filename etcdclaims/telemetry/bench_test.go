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
				o := hooks.Observe(ctx, etcdclaims.Call{Key: "orders/4711"})
				hooks.Requested(etcdclaims.Request{Kind: etcdclaims.RequestTxn})
				hooks.Requested(etcdclaims.Request{Kind: etcdclaims.RequestTxn})
				if o == nil { // nobody would see it
					continue
				}
				o.Acquired(etcdclaims.Acquisition{Token: fencing.Token{Key: "orders/4711", Fence: 7}})
				o.Returned(0, nil)
				o.Context(ctx)
				o.Ended(etcdclaims.TermEnd{Err: etcdclaims.ErrReleased})
			}
		})
	}
}
