package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/telemetry"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// With HideKeys neither spans nor metrics have a key, however a call, a claim or a tick fails.
func TestHideKeys(t *testing.T) {
	inWorld(t, func(w *world) {
		const secret = "smith-1234"
		w.reader = sdkmetric.NewManualReader()
		tel, err := telemetry.New(telemetry.Config{
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader)),
			TracerProvider: w.traces,
			HideKeys:       true,
		})
		if err != nil {
			w.Fatal(err)
		}
		defer func() {
			if err := tel.Close(); err != nil {
				w.Error(err)
			}
		}()
		w.tel = tel
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		stable, _ := w.client(etcdclaims.Config{TTL: 15 * sec})

		ctx, span := w.traces.Tracer("test").Start(w.Context(), "write")
		tel.CountAdmission(ctx, "db", fencing.Token{Key: "patients/" + secret, Fence: 1}, fencing.ErrStale)
		span.End()

		claim, err := c.TryAcquire(w.Context(), "patients/"+secret)
		if err != nil {
			w.Fatal(err)
		}
		host.Cut()
		<-claim.Done()
		soon, cancel := context.WithTimeout(w.Context(), sec)
		defer cancel()
		if _, err := c.TryAcquire(soon, "patients/"+secret); err == nil || !strings.Contains(err.Error(), secret) {
			w.Fatal(err)
		}

		cfg := sched.Config{Group: "clinic"}
		tel.InstrumentScheduler(&cfg)
		s, err := sched.New(stable, cfg)
		if err != nil {
			w.Fatal(err)
		}
		never := calendar.Must(calendar.Cron("0 0 1 1 *"))
		err = s.Add(sched.Job{
			Name: "invoices/" + secret, Schedule: never,
			Handler: func(context.Context, sched.Tick) error { return claim.Err() },
		})
		if err != nil {
			w.Fatal(err)
		}
		running, stop := context.WithCancel(w.Context())
		returned := make(chan error)
		go func() { returned <- s.Run(running) }()
		time.Sleep(5 * sec)
		if _, err := s.RunNow(w.Context(), "invoices/"+secret); err != nil {
			w.Fatal(err)
		}
		time.Sleep(5 * sec)
		stop()
		if err := <-returned; err != nil {
			w.Error(err)
		}

		failed := map[string]bool{} // names and descriptions
		for _, span := range w.spans.Ended() {
			if status := span.Status(); status.Code == codes.Error {
				failed[span.Name()+": "+status.Description] = true
			}
		}
		for _, want := range []string{"etcdclaims.acquire: deadline_exceeded", "etcdclaims.hold: expired", "etcdclaims.tick: lost"} {
			if !failed[want] {
				w.Errorf("no span failed as %q: %v", want, failed)
			}
		}
		var metrics metricdata.ResourceMetrics
		err = w.reader.Collect(w.Context(), &metrics)
		spansText, serr := json.Marshal(tracetest.SpanStubsFromReadOnlySpans(w.spans.Ended()))
		metricsText, merr := json.Marshal(metrics)
		if err := errors.Join(err, serr, merr); err != nil {
			w.Fatal(err)
		}
		for _, exported := range []string{string(spansText), string(metricsText)} {
			for _, template := range []string{"patients/smith-*", "invoices/smith-*"} {
				if !strings.Contains(exported, template) {
					w.Errorf("no template %s in %s", template, exported)
				}
			}
			if at := strings.Index(exported, secret); at >= 0 {
				w.Errorf("a key is in … %s", exported[max(at-200, 0):at+len(secret)])
			}
		}
	})
}
