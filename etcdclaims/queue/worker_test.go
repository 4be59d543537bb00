package queue_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/fencing"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// works runs a worker until the returned function is called.
func (w *world) works(q *queue.Queue, cfg queue.WorkerConfig) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- q.Work(ctx, cfg) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("work: %v", err)
		}
	})
}

// noText is an error that cannot be printed if it is nil.
type noText struct{ text string }

func (n *noText) Error() string { return n.text }

func TestWorkerOutcomes(t *testing.T) {
	virtually(t, func(w *world) {
		core, logs := observer.New(zap.WarnLevel)
		q := w.queue(queue.Config{Logger: zap.New(core)})
		handlers := map[string]queue.Handler{
			"ok": func(ctx context.Context, l *queue.Delivery) error {
				token, ok := fencing.FromContext(ctx)
				if !ok || token != l.Token() || fencing.Check(ctx) != nil || l.Topic() != "ok" || l.Queue() != "q" || l.Attempt() != 1 {
					return fmt.Errorf("context or lease: %v %v", token, l)
				}
				return nil
			},
			"error": func(context.Context, *queue.Delivery) error {
				return etcdclaims.RetryAfter(errors.New("no luck"), time.Hour)
			},
			"panic":  func(context.Context, *queue.Delivery) error { panic("at the disco") },
			"goexit": func(context.Context, *queue.Delivery) error { runtime.Goexit(); return nil },
			"snooze": func(context.Context, *queue.Delivery) error { return queue.SnoozeFor(time.Hour) },
			"never":  func(context.Context, *queue.Delivery) error { return etcdclaims.Permanent(errors.New("poison")) },
			"slow":   func(ctx context.Context, _ *queue.Delivery) error { <-ctx.Done(); return ctx.Err() },
			"deaf":   func(context.Context, *queue.Delivery) error { time.Sleep(time.Minute); return nil },
			"no text": func(context.Context, *queue.Delivery) error {
				var none *noText
				return none
			},
			"own": func(ctx context.Context, l *queue.Delivery) error { return l.Discard(ctx, "by itself") },
		}
		topics := []string{"unknown"}
		for topic := range handlers {
			topics = append(topics, topic)
		}
		for _, topic := range topics {
			w.enqueue(q, topic, queue.Topic(topic), queue.MaxAttempts(2))
		}
		stop := w.works(q, queue.WorkerConfig{Concurrency: 20, Handlers: handlers, Timeout: 10 * sec})
		time.Sleep(15*sec + 500*time.Millisecond)
		for topic, want := range map[string]struct {
			where queue.Where
			err   string
		}{
			"ok": {queue.Completed, ""}, "error": {queue.Later, "no luck"}, "panic": {"", "at the disco"}, "goexit": {"", "Goexit"},
			"snooze": {queue.Later, ""}, "never": {queue.Dead, "poison"}, "slow": {"", "longer than its timeout of 10s"},
			"deaf": {"", "did not stop"}, "no text": {"", "nil"}, "own": {queue.Dead, "by itself"}, "unknown": {queue.Dead, `no handler for topic "unknown"`},
		} {
			info := w.look(q, topic)
			if want.where != "" && info.Where != want.where {
				t.Errorf("%s is %s, want %s", topic, info.Where, want.where)
			}
			switch {
			case want.err == "" && len(info.History) > 0, want.err != "" && len(info.History) == 0:
				t.Errorf("%s has the history %v", topic, info.History)
			case want.err != "" && !strings.Contains(info.History[0].Error, want.err):
				t.Errorf("%s failed with %q, want %q", topic, info.History[0].Error, want.err)
			}
		}
		stop()
		time.Sleep(2 * time.Minute) // the deaf ones return
		if logs.FilterMessageSnippet("no handler").Len() != 1 || logs.FilterMessageSnippet("does not stop").Len() == 0 {
			t.Errorf("logged: %v", logs.All())
		}
	})
}

// No item waits while a worker idles, no more than Concurrency run at once, and a
// stop drains without burning an attempt.
func TestWorkersShare(t *testing.T) {
	virtually(t, func(w *world) {
		var running, most, done atomic.Int64
		handler := func(ctx context.Context, l *queue.Delivery) error {
			for n := running.Add(1); ; {
				if m := most.Load(); m >= n || most.CompareAndSwap(m, n) {
					break
				}
			}
			defer running.Add(-1)
			time.Sleep(sec)
			done.Add(1)
			return nil
		}
		q := w.queue(queue.Config{})
		var items []queue.Item
		for range 200 {
			items = append(items, queue.NewItem(nil))
		}
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)
		var stops []func()
		begin := time.Now()
		for range 4 {
			stops = append(stops, w.works(w.queue(queue.Config{}), queue.WorkerConfig{Concurrency: 5, Handler: handler}))
		}
		for done.Load() < 100 {
			time.Sleep(50 * time.Millisecond)
		}
		stops[0]()
		stops[1]()
		for done.Load() < 200 {
			time.Sleep(50 * time.Millisecond)
		}
		w.want(most.Load(), int64(20))
		if d := time.Since(begin); d > 18*sec { // 5 s with twenty, 10 s with ten, and what the stop cost
			t.Errorf("took %v", d)
		}
		for _, stop := range stops {
			stop()
		}
		st, err := q.Stats(w.Context())
		w.ok(err)
		w.want(st.Ready+st.Taken+st.Dead, 0)
	})
}

// An outage is survived: work goes on when etcd is back, and nothing was asked in a
// busy loop meanwhile.
func TestWorkerOutage(t *testing.T) {
	virtually(t, func(w *world) {
		core, logs := observer.New(zap.InfoLevel)
		q, host := w.process(queue.Config{Logger: zap.New(core)})
		p := w.queue(queue.Config{})
		done := make(chan string, 10)
		stop := w.works(q, queue.WorkerConfig{Handler: func(_ context.Context, l *queue.Delivery) error { done <- l.ID(); return nil }})
		defer stop()
		w.enqueue(p, "a")
		<-done
		host.Cut()
		time.Sleep(10 * time.Minute)
		w.enqueue(p, "b")
		host.Heal()
		begin := time.Now()
		<-done
		if d := time.Since(begin); d > 3*sec {
			t.Errorf("work went on after %v", d)
		}
		if n := logs.FilterMessage("cannot claim; retrying").Len(); n > 1 {
			t.Errorf("the outage was logged %d times", n)
		}
	})
}

func TestWorkerConfig(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		h := func(context.Context, *queue.Delivery) error { return nil }
		for name, cfg := range map[string]queue.WorkerConfig{
			"no handler": {}, "nil handler": {Handlers: map[string]queue.Handler{"a": nil}}, "concurrency": {Handler: h, Concurrency: -1},
			"batch": {Handler: h, Batch: -1}, "lease": {Handler: h, TTL: time.Millisecond},
			"stop timeout": {Handler: h, StopTimeout: -1}, "middleware": {Handler: h, Middleware: []queue.Middleware{nil}},
		} {
			ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
			if err := q.Work(ctx, cfg); err == nil {
				t.Errorf("a worker with bad %s was accepted", name)
			}
			cancel()
		}
	})
}
