package main

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
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	tel, err := telemetry.New(telemetry.Config{MeterProvider: meters})
	return tel, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), err
}

// handler serves metrics, and whether etcd can be reached: for readiness, since a restart does
// not help against an outage.
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.claims.Health(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}
