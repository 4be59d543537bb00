package telemetry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const system = "etcdclaims"

// askBudget is how long a collection waits for etcd.
const askBudget = 2 * time.Second

// watchedQueue is a queue whose items are counted.
type watchedQueue struct {
	name  string
	q     *queue.Queue
	every time.Duration

	mu    sync.Mutex // held while etcd is asked, so that two collections share an answer
	asked time.Time
	last  answer
}

// answer is the counts of a queue.
type answer struct {
	queue.Stats
	err error
}

const defaultQueueInterval = 15 * time.Second

// WatchQueue observes how many items the queue has. All processes see the same
// counts, so one process is enough; where several watch, take the maximum.
//
// It sends requests to etcd, when gauges are collected and the last counts are
// older than every: one, or a few if there are many priorities. Zero means 15 s.
// Queues are asked at the same time, for at most two seconds.
// If etcd does not answer in that time, nothing is observed of the queue, and the
// error goes to OpenTelemetry's error handler. Call stop when the queue is not to
// be watched any more.
func (t *Telemetry) WatchQueue(name string, q *queue.Queue, every time.Duration) (stop func()) {
	if every <= 0 {
		every = defaultQueueInterval
	}
	return track(t, t.queues, &watchedQueue{name: name, q: q, every: every}, true)
}

// stats returns counts that are not older than w.every. budget is derived from the
// collection's ctx.
func (w *watchedQueue) stats(ctx, budget context.Context) (a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !w.asked.IsZero() && now.Sub(w.asked) < w.every {
		return w.last
	}
	if a.err = budget.Err(); a.err != nil {
		return a // it went by while another collection asked
	}
	a.Stats, a.err = w.q.Stats(budget)
	if a.err != nil && ctx.Err() != nil {
		return a // the collection has ended: this shows nothing about etcd
	}
	w.last, w.asked = a, now
	return a
}

// askQueues returns the counts of all queues, which are asked for at the same time.
func askQueues(ctx, budget context.Context, queues []*watchedQueue) []answer {
	answers := make([]answer, len(queues))
	var all sync.WaitGroup
	for i, w := range queues {
		all.Go(func() { answers[i] = w.stats(ctx, budget) })
	}
	all.Wait()
	return answers
}

// collectQueues observes the queues that are watched.
func (t *Telemetry) collectQueues(ctx, budget context.Context, o metric.Observer) error {
	t.mu.Lock()
	queues := slices.Collect(maps.Keys(t.queues))
	t.mu.Unlock()
	var errs []error
	for i, a := range askQueues(ctx, budget, queues) {
		w, st := queues[i], a.Stats
		if a.err != nil {
			errs = append(errs, fmt.Errorf("telemetry: count the items of queue %q: %w", w.name, a.err))
			continue
		}
		for state, n := range map[string]int{"ready": st.Ready, "later": st.Later, "behind": st.Behind, "taken": st.Taken} {
			o.ObserveInt64(t.items, int64(n), t.options.of(series{}.with(keyQueue, w.name).with(keyState, state)).observe...)
		}
		with := t.options.of(series{}.with(keyQueue, w.name)).observe
		o.ObserveInt64(t.dead, int64(st.Dead), with...)
		o.ObserveFloat64(t.paused, secondsSince(st.Paused.At), with...)
		o.ObserveFloat64(t.oldestReady, secondsSince(st.OldestReady), with...)
	}
	return errors.Join(errs...)
}

// secondsSince returns how long ago a time was, 0 if it is zero. One ahead of this clock was a
// millisecond ago, so that it differs from none.
func secondsSince(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(time.Since(at), time.Millisecond).Seconds()
}

// Worker is a queue.Middleware that measures handlers, by the semantic
// conventions of OpenTelemetry for messaging. Each has a span. Put it first in
// WorkerConfig.Middleware. The first 200 queues of a process have their names; the
// others are "other".
func (t *Telemetry) Worker(next queue.Handler) queue.Handler {
	return func(ctx context.Context, l *queue.Delivery) (err error) {
		name := t.workers.of(l.Queue())
		if l.Attempt() <= 1 {
			waited := max(l.Obtained().Sub(l.Vesting()), 0)
			t.itemWait.Record(ctx, waited.Seconds(), t.options.of(series{}.with(keyQueue, name)).record...)
		}
		ctx, span := t.tracer.Start(ctx, "process "+name, trace.WithSpanKind(trace.SpanKindConsumer))
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
			s := series{}.with(keyQueue, name).with("messaging.system", system).with("messaging.operation.name", "process")
			t.process.Record(ctx, time.Since(began).Seconds(), t.options.of(s.with(keyError, errorType)).record...)
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
