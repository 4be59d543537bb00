package telemetry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/sched"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the instrumentation.
const scope = "github.com/etcdclaims/claims/etcdclaims/telemetry"

// Config configures a Telemetry. The zero value uses the global providers.
type Config struct {
	// MeterProvider makes the instruments. Default: otel.GetMeterProvider().
	MeterProvider metric.MeterProvider
	// TracerProvider makes the spans. Default: otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
	// KeyTemplate returns the value of the attribute etcdclaims.key.template for
	// a key, and of etcdclaims.job for the name of a job. It should return few
	// different values. It must be safe for concurrent use. Default: KeyTemplate.
	KeyTemplate func(key string) string
	// HideKeys makes spans and their events name keys and jobs by their templates only, for
	// names that collectors of traces must not see. The status of a failed span is then the kind
	// of its error. By default they have keys, jobs and errors in full.
	HideKeys bool
}

// Telemetry measures any number of clients, schedulers, queues and gates of one
// process. It is safe for concurrent use.
type Telemetry struct {
	tracer   trace.Tracer
	hideKeys bool
	keys     *templates
	jobs     *templates
	workers  *templates // names of queues that have workers
	options  options
	instruments

	mu         sync.Mutex
	clients    map[*etcdclaims.Client]bool
	schedulers map[*sched.Scheduler]scheduler
	queues     map[*watchedQueue]bool
	works      map[*watchedWork]bool
	groups     map[*group.View]string
	calls      map[*call]bool // that may wait
	stop       metric.Registration
}

// New returns a Telemetry. It returns an error if the MeterProvider refuses an
// instrument. Call Close to end the measuring.
func New(cfg Config) (*Telemetry, error) {
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	t := &Telemetry{
		tracer:     cfg.TracerProvider.Tracer(scope),
		hideKeys:   cfg.HideKeys,
		keys:       newTemplates(cfg.KeyTemplate),
		jobs:       newTemplates(cfg.KeyTemplate),
		workers:    newTemplates(func(name string) string { return name }), // as WatchQueue has them
		clients:    make(map[*etcdclaims.Client]bool),
		schedulers: make(map[*sched.Scheduler]scheduler),
		queues:     make(map[*watchedQueue]bool),
		works:      make(map[*watchedWork]bool),
		groups:     make(map[*group.View]string),
		calls:      make(map[*call]bool),
	}
	meter := cfg.MeterProvider.Meter(scope)
	err := t.instruments.make(meter)
	if err == nil {
		t.stop, err = meter.RegisterCallback(t.collect, t.gauges()...)
	}
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return t, nil
}

// Close ends the observation of gauges. Instrumented clients continue, and still record
// durations and counts.
func (t *Telemetry) Close() error { return t.stop.Unregister() }

// chain returns a hook that calls both hooks. The first may be nil.
func chain[E any](theirs, mine func(E)) func(E) {
	if theirs == nil {
		return mine
	}
	return func(e E) {
		theirs(e)
		mine(e)
	}
}

// chainCtx is chain for hooks with a context.
func chainCtx[E any](theirs, mine func(context.Context, E)) func(context.Context, E) {
	if theirs == nil {
		return mine
	}
	return func(ctx context.Context, e E) {
		theirs(ctx, e)
		mine(ctx, e)
	}
}

// tracked returns a hook for the life of a thing, which is tracked meanwhile. The
// other hook is called too, unless it is nil.
func tracked[K comparable, V any](t *Telemetry, theirs func(K) func(), in map[K]V, v V) func(K) func() {
	return func(k K) func() {
		ended := func() {}
		if theirs != nil {
			if f := theirs(k); f != nil {
				ended = f
			}
		}
		forget := track(t, in, k, v)
		return func() {
			ended()
			forget()
		}
	}
}

// track puts a thing into a map of those that gauges are collected of, and returns
// what takes it out.
func track[K comparable, V any](t *Telemetry, in map[K]V, k K, v V) (forget func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in[k] = v
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(in, k)
	}
}

// collect observes all gauges. What several clients of the process have is added
// up: two observations with the same attributes would replace each other.
func (t *Telemetry) collect(ctx context.Context, o metric.Observer) error {
	t.collectClaims(o)
	t.collectSchedulers(o)
	t.collectGroups(o)
	budget, cancel := context.WithTimeout(ctx, askBudget)
	defer cancel()
	works := t.countWork() // beside the queues, with which it shares the time
	return errors.Join(t.collectQueues(ctx, budget, o), t.collectWork(budget, works, o))
}

// collectClaims observes the clients that are open.
func (t *Telemetry) collectClaims(o metric.Observer) {
	t.mu.Lock()
	clients := slices.Collect(maps.Keys(t.clients))
	var oldest time.Duration
	for c := range t.calls {
		oldest = max(oldest, time.Since(c.began))
	}
	t.mu.Unlock()
	var sum etcdclaims.Stats
	unreachable := 0
	for _, c := range clients {
		st := c.Stats()
		sum.Held += st.Held
		sum.Waiting += st.Waiting
		sum.Sessions += st.Sessions
		sum.Overdue += st.Overdue
		sum.Oldest = max(sum.Oldest, st.Oldest)
		if errors.Is(c.Unreachable(), etcdclaims.ErrUnreachable) {
			unreachable++
		}
	}
	o.ObserveInt64(t.held, int64(sum.Held))
	o.ObserveInt64(t.waiting, int64(sum.Waiting))
	o.ObserveInt64(t.sessions, int64(sum.Sessions))
	o.ObserveInt64(t.overdueHandlers, int64(sum.Overdue))
	o.ObserveFloat64(t.oldest, sum.Oldest.Seconds())
	o.ObserveFloat64(t.oldestCall, oldest.Seconds())
	o.ObserveInt64(t.unreachable, int64(unreachable))
}
