package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// A worker that is stopped in an outage stops as soon with many handlers as with one.
func TestStopInOutage(t *testing.T) {
	virtually(t, func(w *world) {
		const handlers = 40
		q, host := w.process(queue.Config{})
		for i := range handlers {
			w.enqueue(q, fmt.Sprint(i))
		}
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		running, end, done := make(chan struct{}, handlers), make(chan struct{}), make(chan error, 1)
		go func() {
			done <- q.Work(ctx, queue.WorkerConfig{Concurrency: handlers, Handler: func(context.Context, *queue.Delivery) error {
				running <- struct{}{}
				<-end
				return nil
			}})
		}()
		for range handlers {
			<-running
		}
		host.Cut()
		cancel()
		close(end)
		begun := time.Now()
		w.ok(<-done)
		if d := time.Since(begun); d > 2*ttl {
			t.Errorf("it took %v", d)
		}
	})
}

// Calls that come together in an outage fail together. One whose caller gave up does not
// fail the others.
func TestCallsTogetherInOutage(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		host.Cut()
		enqueue := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() { _, err := q.Enqueue(ctx, queue.NewItem(nil)); done <- err }()
			time.Sleep(time.Millisecond)
			return done
		}
		const calls = 20
		var all []<-chan error
		begun := time.Now()
		for range calls {
			all = append(all, enqueue(w.Context()))
		}
		for _, done := range all {
			w.wantErr(<-done, context.DeadlineExceeded)
		}
		if d := time.Since(begun); d > 10*sec {
			t.Errorf("%d calls took %v", calls, d)
		}
		short, cancel := context.WithTimeout(w.Context(), sec)
		defer cancel()
		first, second := enqueue(short), enqueue(w.Context())
		w.wantErr(<-first, context.DeadlineExceeded)
		host.Heal()
		w.ok(<-second)
	})
}

// In an outage that lasts, calls return an error soon, also if their context and their session
// last for long.
func TestCallsEndInOutage(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, q *queue.Queue) error{
		"enqueue": func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Enqueue(ctx, queue.NewItem(nil))
			return err
		},
		"claim":  func(ctx context.Context, q *queue.Queue) error { _, err := q.TryClaim(ctx, 1); return err },
		"sweep":  func(ctx context.Context, q *queue.Queue) error { _, err := q.Sweep(ctx); return err },
		"purge":  func(ctx context.Context, q *queue.Queue) error { _, err := q.Purge(ctx, time.Now()); return err },
		"pause":  func(ctx context.Context, q *queue.Queue) error { return q.Pause(ctx, "") },
		"cancel": func(ctx context.Context, q *queue.Queue) error { return q.Cancel(ctx, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{TTL: time.Hour})
				w.enqueue(q, "a")
				host.Cut()
				ctx, cancel := context.WithTimeout(w.Context(), 10*time.Minute)
				defer cancel()
				begun := time.Now()
				err := call(ctx, q)
				if d := time.Since(begun); err == nil || d > 30*sec {
					t.Errorf("after %v: %v", d, err)
				}
				if name == "enqueue" {
					w.wantErr(err, etcdclaims.ErrUnknown)
				}
			})
		})
	}
}

// What a claim of unknown outcome took is given back without an attempt, however long the
// outage is that follows, while the session lasts.
func TestUnknownClaimInLongOutage(t *testing.T) {
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{})
		w.want(len(w.tryClaim(p, 1)), 0) // keeps house from now on
		q, host := w.process(queue.Config{})
		b, err := q.TryClaim(w.Context(), 1, queue.TTL(time.Hour))
		w.ok(err)
		w.want(len(b.Deliveries), 0)
		w.enqueue(p, "a", queue.MaxAttempts(1))
		lost := host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
		time.AfterFunc(500*time.Millisecond, host.Cut)
		ctx, cancel := context.WithTimeout(w.Context(), sec)
		defer cancel()
		_, err = q.TryClaim(ctx, 1, queue.TTL(time.Hour))
		w.wantErr(err, context.DeadlineExceeded)
		w.want(lost.Hits(), 1)
		w.want(w.look(p, "a").Where, queue.Taken)
		time.Sleep(5 * time.Minute)
		host.Heal()
		time.Sleep(2 * time.Minute)
		info := w.look(p, "a")
		w.want(info.Where, queue.Ready)
		w.want(info.Attempts, 0)
	})
}
