package telemetry_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/telemetry"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

const sec = time.Second

// world is one etcd in virtual time, and what telemetry has seen.
type world struct {
	*testing.T
	server *claimtest.Server
	tel    *telemetry.Telemetry
	reader *sdkmetric.ManualReader
	spans  *tracetest.SpanRecorder
	traces *sdktrace.TracerProvider
}

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: claimtest.Start(t), reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
		w.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans))
		tel, err := telemetry.New(telemetry.Config{
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader)),
			TracerProvider: w.traces,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.tel = tel
		f(w)
		if err := tel.Close(); err != nil {
			t.Error(err)
		}
	})
}

// client returns an instrumented client on a machine of its own.
func (w *world) client(cfg etcdclaims.Config) (*etcdclaims.Client, *claimtest.Host) {
	w.Helper()
	w.tel.Instrument(&cfg)
	host := w.server.Host(w.T)
	c := claimtest.NewClient(w.T, host, cfg)
	w.Cleanup(func() { host.RemoveFaults(); host.Heal() }) // so that it can be closed
	return c, host
}

// metrics collects, and returns the time series by name and attributes. A
// histogram is its count and the sum.
func (w *world) metrics() map[string]string {
	w.Helper()
	var all metricdata.ResourceMetrics
	if err := w.reader.Collect(w.Context(), &all); err != nil {
		w.Fatal(err)
	}
	out := map[string]string{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					out[series(m, p.Attributes.Encoded(encoder{}))] = fmt.Sprint(p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					out[series(m, p.Attributes.Encoded(encoder{}))] = fmt.Sprint(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					out[series(m, p.Attributes.Encoded(encoder{}))] = fmt.Sprintf("%.1f", p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					out[series(m, p.Attributes.Encoded(encoder{}))] = fmt.Sprintf("%d×%.1f", p.Count, p.Sum/float64(p.Count))
				}
			default:
				w.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return out
}

func series(m metricdata.Metrics, attrs string) string { return m.Name + "{" + attrs + "}" }

// expect fails unless the series have the values.
func (w *world) expect(want map[string]string) {
	w.Helper()
	got := w.metrics()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			w.Errorf("%s is %q, want %q", name, got[name], want[name])
			base, _, _ := strings.Cut(name, "{")
			for have := range got {
				if strings.HasPrefix(have, base+"{") {
					w.Logf("there is %s = %s", have, got[have])
				}
			}
		}
	}
}

// ended returns the spans that have ended, by name.
func (w *world) ended() map[string][]sdktrace.ReadOnlySpan {
	out := map[string][]sdktrace.ReadOnlySpan{}
	for _, s := range w.spans.Ended() {
		out[s.Name()] = append(out[s.Name()], s)
	}
	return out
}

func attr(s sdktrace.ReadOnlySpan, key string) string {
	for _, kv := range s.Attributes() {
		if string(kv.Key) == key {
			return kv.Value.String()
		}
	}
	return ""
}
