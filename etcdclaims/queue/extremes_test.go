package queue_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// Callers that want as many items as there are, several at once, get them.
func TestClaimAll(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		got := make(chan int, 3)
		var wg sync.WaitGroup
		for range cap(got) {
			wg.Go(func() {
				b, err := q.Claim(w.Context(), math.MaxInt)
				if err != nil {
					w.Error(err)
				}
				got <- len(b.Deliveries)
			})
		}
		time.Sleep(sec)
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(q, id)
			time.Sleep(sec)
		}
		wg.Wait()
		w.want(<-got+<-got+<-got, 3)
	})
}

// The greatest numbers mean no limit, and not that the time is up at once.
func TestWorkerWithoutLimits(t *testing.T) {
	for name, cfg := range map[string]queue.WorkerConfig{
		"timeout":     {Timeout: math.MaxInt64},
		"grace":       {Timeout: time.Hour, Grace: math.MaxInt64},
		"stop":        {StopTimeout: math.MaxInt64, Grace: math.MaxInt64},
		"concurrency": {Concurrency: math.MaxInt},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q := w.queue(queue.Config{})
				w.enqueue(q, "a")
				cfg.Handler = func(context.Context, *queue.Delivery) error { time.Sleep(10 * sec); return nil }
				stop := w.works(q, cfg)
				defer stop()
				time.Sleep(15 * sec)
				w.want(w.look(q, "a").Where, queue.Completed)
				w.want(w.look(q, "a").Attempts, 1)
			})
		})
	}
}

// Options without a value leave the default as it is.
func TestZeroOptions(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{TTL: time.Hour, Backoff: func(int) time.Duration { return time.Minute }})
		w.enqueue(q, "a")
		b, err := q.TryClaim(w.Context(), 1, queue.TTL(0))
		w.ok(err)
		l := b.Deliveries[0]
		if d := l.Remaining(time.Now()); d < 50*time.Minute {
			t.Errorf("the lease lasts for %v", d)
		}
		out, err := l.Fail(w.Context(), errors.New("x"), queue.Backoff(nil))
		w.ok(err)
		w.want(time.Until(out.Until), time.Minute)
	})
}
