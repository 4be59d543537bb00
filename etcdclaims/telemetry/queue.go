package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const system = "etcdclaims"

// watchedQueue is a queue whose items are counted.
type watchedQueue struct {
	name  string
	q     *queue.Queue
	every time.Duration

	mu    sync.Mutex // held while etcd is asked, so that two collections share an answer
	asked time.Time
	last  queue.Stats
	err   error
}

// DefaultQueueInterval is how old the counts of a queue may be that WatchQueue
// observes.
const DefaultQueueInterval = 15 * time.Second

// WatchQueue observes how many items the queue has. All processes see the same
// counts, so one process is enough; where several watch, take the maximum.
//
// It sends requests to etcd, when gauges are collected and the last counts are
// older than every: one, or a few if there are many priorities. Zero means
// DefaultQueueInterval. If etcd does not answer, nothing is observed, and the
// error goes to OpenTelemetry's error handler. Call stop when the queue is not to
// be watched any more.
func (t *Telemetry) WatchQueue(name string, q *queue.Queue, every time.Duration) (stop func()) {
	if every <= 0 {
		every = DefaultQueueInterval
	}
	w := &watchedQueue{name: name, q: q, every: every}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queues[w] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.queues, w)
	}
}

// stats returns the counts, which are not older than w.every.
func (w *watchedQueue) stats(ctx context.Context) (queue.Stats, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.asked.IsZero() || now.Sub(w.asked) >= w.every {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		w.last, w.err = w.q.Stats(ctx)
		w.asked = now
	}
	return w.last, w.err
}

// collectQueues observes the queues that are watched.
func (t *Telemetry) collectQueues(ctx context.Context, o metric.Observer) error {
	t.mu.Lock()
	queues := make([]*watchedQueue, 0, len(t.queues))
	for w := range t.queues {
		queues = append(queues, w)
	}
	t.mu.Unlock()
	var errs []error
	for _, w := range queues {
		st, err := w.stats(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("telemetry: count the items of queue %q: %w", w.name, err))
			continue
		}
		for state, n := range map[string]int{"ready": st.Ready, "later": st.Later, "taken": st.Taken} {
			o.ObserveInt64(t.items, int64(n), t.options.of(two(keyQueue, w.name, keyState, state)).observe...)
		}
		with := t.options.of(one(keyQueue, w.name)).observe
		o.ObserveInt64(t.dead, int64(st.Dead), with...)
		paused := int64(0)
		if !st.Paused.At.IsZero() {
			paused = 1
		}
		o.ObserveInt64(t.paused, paused, with...)
		age := time.Duration(0)
		if !st.OldestReady.IsZero() {
			age = max(time.Since(st.OldestReady), 0)
		}
		o.ObserveFloat64(t.oldestReady, age.Seconds(), with...)
	}
	return errors.Join(errs...)
}

// Worker is a queue.Middleware that measures handlers, by the semantic
// conventions of OpenTelemetry for messaging. Each has a span. Put it first in
// WorkerConfig.Middleware.
func (t *Telemetry) Worker(next queue.Handler) queue.Handler {
	return func(ctx context.Context, l *queue.Lease) (err error) {
		if l.Attempt() <= 1 {
			waited := max(l.Obtained().Sub(l.Vesting()), 0)
			t.itemWait.Record(ctx, waited.Seconds(), t.options.of(one(keyQueue, l.Queue())).record...)
		}
		ctx, span := t.tracer.Start(ctx, "process "+l.Queue(), trace.WithSpanKind(trace.SpanKindConsumer))
		if span.IsRecording() {
			span.SetAttributes(
				attribute.String("messaging.system", system), attribute.String("messaging.operation.name", "process"),
				attribute.String("messaging.operation.type", "process"), keyQueue.String(l.Queue()),
				attribute.String("messaging.message.id", l.ID()), attribute.Int("etcdclaims.attempt", l.Attempt()),
				keyFence.String(formatFence(l.Fence())),
			)
		}
		began, returned := time.Now(), false
		defer func() {
			errorType := ""
			switch {
			case !returned:
				errorType = "panic" // or Goexit; it goes on
			case err != nil:
				errorType = errorTypeOf(err)
			}
			s := series{
				keys: [4]attribute.Key{keyQueue, "messaging.system", "messaging.operation.name"},
				vals: [4]string{l.Queue(), system, "process"},
			}
			t.process.Record(ctx, time.Since(began).Seconds(), t.options.of(withError(s, errorType)).record...)
			if errorType != "" {
				span.SetAttributes(keyError.String(errorType))
				span.SetStatus(codes.Error, errorType)
			}
			span.End()
		}()
		err = next(ctx, l)
		returned = true
		return err
	}
}
