package telemetry_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/telemetry"
	"github.com/google/uuid"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

func TestKeyTemplate(t *testing.T) {
	for key, want := range map[string]string{
		"invoices":           "invoices",
		"orders/4711/line-2": "orders/*/line-*",
		"orders/4711x12/abc": "orders/*x*/abc",
		"u/6BA7B810-9dad-11d1-80b4-00c04fd430c8/x":     "u/*/x",
		"u/6ba7b8109dad11d180b400c04fd430c8":           "u/*",
		"u/6ba7b810-9dad-11d1-80b4-00c04fd430c":        "u/*-*dad-*d*-*b*-*", // no UUID: a digit short
		"sha/da39a3ee5e6b4b0d3255bfef95601890afd80709": "sha/*",
		"deadbeef":                           "*",
		"facade":                             "facade",
		"id/01ARZ3NDEKTSV4RRFFQ69G5FAV":      "id/*",
		"averyveryverylongwordwithoutdigits": "averyveryverylongwordwithoutdigits",
		"2026-11-22T09:21:59Z":               "*-*-*T*:*:*Z",
		"10.0.0.1:2379":                      "*.*.*.*:*",
		"٤٢/४२/x":                            "*/*/x", // digits of other scripts
		"kunde-ü/7":                          "kunde-ü/*",
		"<script>alert(1)</script>":          "<script>alert(*)</script>",
		"*":                                  "*",
		"":                                   "",
	} {
		if got := telemetry.KeyTemplate(key); got != want {
			t.Errorf("KeyTemplate(%q) = %q, want %q", key, got, want)
		}
	}
	for _, key := range []string{strings.Repeat("a/", 512), strings.Repeat("ü", 512), strings.Repeat("9", 1024), strings.Repeat("z", 1024), strings.Repeat("x1", 512), "\xff\xfe" + strings.Repeat("\xf0", 99)} {
		if got := telemetry.KeyTemplate(key); len(got) > 104 || !utf8.ValidString(got) {
			t.Errorf("KeyTemplate(%.20q…) = %q, of %d bytes", key, got, len(got))
		}
	}
}

func FuzzKeyTemplate(f *testing.F) {
	f.Add("orders/4711")
	f.Add(uuid.Nil.String())
	f.Fuzz(func(t *testing.T, key string) {
		got := telemetry.KeyTemplate(key)
		if len(got) > 104 || !utf8.ValidString(got) || strings.ContainsAny(got, "0123456789") {
			t.Errorf("KeyTemplate(%q) = %q", key, got)
		}
	})
}

// Keys that have nothing in common must not make more time series than there are
// templates.
func TestHostileKeys(t *testing.T) {
	inWorld(t, func(w *world) {
		cfg := etcdclaims.Config{}
		w.tel.Instrument(&cfg)
		var all sync.WaitGroup
		for g := range 4 {
			all.Go(func() {
				for i := range 500 {
					word := strings.Map(func(r rune) rune { return r - '0' + 'g' }, fmt.Sprintf("%04d", g*500+i)) // no digits
					ctx := cfg.Hooks.CallBegan(w.Context(), etcdclaims.Call{Key: "tenant-" + word})
					cfg.Hooks.TermBegan(ctx, etcdclaims.TermInfo{})
					cfg.Hooks.CallEnded(ctx, etcdclaims.Call{Waited: time.Second})
					cfg.Hooks.TermEnded(ctx, etcdclaims.TermInfo{Err: etcdclaims.ErrReleased})
				}
			})
		}
		all.Wait()
		count := map[string]int{}
		for name := range w.metrics() {
			name, _, _ = strings.Cut(name, "{")
			count[name]++
		}
		for _, name := range []string{"etcdclaims.acquire.duration", "etcdclaims.wait.duration", "etcdclaims.hold.duration", "etcdclaims.claim.ends"} {
			if count[name] != 201 {
				t.Errorf("%s has %d time series, want 201", name, count[name])
			}
		}
		w.expect(map[string]string{"etcdclaims.claim.ends{key.template=other,reason=released}": "1800"})
	})
}

func TestCustomTemplate(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	tel, err := telemetry.New(telemetry.Config{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		KeyTemplate:   func(key string) string { return key[:1] },
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := etcdclaims.Config{}
	tel.Instrument(&cfg)
	cfg.Hooks.CallEnded(cfg.Hooks.CallBegan(t.Context(), etcdclaims.Call{Key: "key"}), etcdclaims.Call{})
	w := &world{T: t, reader: reader}
	w.expect(map[string]string{"etcdclaims.acquire.duration{key.template=k,mode=try,result=acquired}": "1×0.0"})
	if err := tel.Close(); err != nil {
		t.Error(err)
	}
}

// Two that instrument the same client do not mix up its calls.
func TestInstrumentedTwice(t *testing.T) {
	var cfg etcdclaims.Config
	var worlds []*world
	for range 2 {
		reader := sdkmetric.NewManualReader()
		tel, err := telemetry.New(telemetry.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
		if err != nil {
			t.Fatal(err)
		}
		defer tel.Close()
		tel.Instrument(&cfg)
		worlds = append(worlds, &world{T: t, reader: reader})
	}
	ctx := cfg.Hooks.CallBegan(t.Context(), etcdclaims.Call{Key: "key"})
	cfg.Hooks.TermBegan(ctx, etcdclaims.TermInfo{})
	cfg.Hooks.CallEnded(ctx, etcdclaims.Call{Key: "key"})
	cfg.Hooks.TermEnded(ctx, etcdclaims.TermInfo{Held: time.Second, Err: etcdclaims.ErrReleased})
	for _, w := range worlds {
		w.expect(map[string]string{
			"etcdclaims.acquire.duration{key.template=key,mode=try,result=acquired}": "1×0.0",
			"etcdclaims.hold.duration{key.template=key}":                             "1×1.0",
			"etcdclaims.claim.ends{key.template=key,reason=released}":                "1",
		})
	}
}

func TestWithoutSDK(t *testing.T) {
	tel, err := telemetry.New(telemetry.Config{MeterProvider: metricnoop.NewMeterProvider(), TracerProvider: tracenoop.NewTracerProvider()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := etcdclaims.Config{}
	tel.Instrument(&cfg)
	if ctx := cfg.Hooks.CallBegan(t.Context(), etcdclaims.Call{Key: "key"}); ctx != t.Context() {
		t.Errorf("a call is followed for nobody: %v", ctx)
	}
	if err := tel.Close(); err != nil {
		t.Error(err)
	}
}
