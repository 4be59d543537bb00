package telemetry_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims/telemetry"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
)

// provider has one meter.
type provider struct {
	metricnoop.MeterProvider
	meter metric.Meter
}

func (p provider) Meter(string, ...metric.MeterOption) metric.Meter { return p.meter }

// listing is a meter that lists the instruments that are made of it, with the last bound of
// their buckets.
type listing struct {
	metricnoop.Meter
	last map[string]float64
}

func (l *listing) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	bounds := metric.NewFloat64HistogramConfig(opts...).ExplicitBucketBoundaries()
	l.last[name] = bounds[len(bounds)-1]
	return l.Meter.Float64Histogram(name, opts...)
}

func (l *listing) Int64Counter(name string, opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	l.last[name] = 0
	return l.Meter.Int64Counter(name, opts...)
}

func (l *listing) Int64ObservableGauge(name string, opts ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	l.last[name] = 0
	return l.Meter.Int64ObservableGauge(name, opts...)
}

func (l *listing) Float64ObservableGauge(name string, opts ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	l.last[name] = 0
	return l.Meter.Float64ObservableGauge(name, opts...)
}

// docs/telemetry.md names each metric. It shortens names after the first of a row to
// ".tick.overdue".
func TestMetricsAreDocumented(t *testing.T) {
	l := &listing{last: map[string]float64{}}
	if _, err := telemetry.New(telemetry.Config{MeterProvider: provider{meter: l}}); err != nil {
		t.Fatal(err)
	}
	if len(l.last) < 30 {
		t.Fatalf("only %d instruments were made", len(l.last))
	}
	manual, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for row := range strings.Lines(string(manual)) {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1) {
			named[name[1]], named["etcdclaims"+name[1]] = true, true
		}
	}
	for name := range l.last {
		if !named[name] {
			t.Errorf("docs/telemetry.md has no row of %s", name)
		}
	}
}

// Times that include a place in line are told apart up to an hour.
func TestBucketsOfWaiting(t *testing.T) {
	l := &listing{last: map[string]float64{}}
	if _, err := telemetry.New(telemetry.Config{MeterProvider: provider{meter: l}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcdclaims.acquire.duration", "etcdclaims.wait.duration", "etcdclaims.queue.item.wait.duration"} {
		if l.last[name] < 3600 {
			t.Errorf("%s: the last bucket ends at %v s", name, l.last[name])
		}
	}
}
