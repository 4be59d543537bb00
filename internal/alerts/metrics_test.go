package alerts

import (
	"net/http"

	"github.com/etcdclaims/claims/etcdclaims/telemetry"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// newTelemetry returns a Telemetry whose metrics the handler serves to Prometheus.
func newTelemetry() (*telemetry.Telemetry, http.Handler, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, nil, err
	}
	tel, err := telemetry.New(telemetry.Config{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)),
	})
	if err != nil {
		return nil, nil, err
	}
	return tel, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}
