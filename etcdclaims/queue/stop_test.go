package queue_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A handler whose queue is closed by its own process is told so, in the cause of its context
// and by the verbs, and it is no warning.
func TestCloseUnderHandler(t *testing.T) {
	virtually(t, func(w *world) {
		core, logs := observer.New(zap.InfoLevel)
		q := w.queue(queue.Config{Logger: zap.New(core)})
		w.enqueue(q, "a")
		ended := make(chan error, 1)
		stop := w.works(q, queue.WorkerConfig{Timeout: time.Hour, Handler: func(ctx context.Context, l *queue.Delivery) error {
			<-ctx.Done()
			err := l.Complete(context.Background())
			for _, e := range []error{context.Cause(ctx), err, l.Err(), l.Check()} {
				w.wantErr(e, etcdclaims.ErrClosed)
				w.wantErr(e, etcdclaims.ErrLost)
				w.wantErr(e, queue.ErrExpired)
			}
			ended <- context.Cause(ctx)
			return err
		}})
		time.Sleep(sec)
		go stop()
		time.Sleep(sec)
		w.ok(q.Close(w.Context()))
		w.want((<-ended).Error(), "queue closed, its items are given back")
		time.Sleep(sec)
		w.want(w.look(w.queue(queue.Config{}), "a").Attempts, 0)
		if logs.FilterLevelExact(zap.WarnLevel).Len() > 0 || logs.FilterMessage("item given back, as the queue is closed").Len() != 1 {
			t.Errorf("logged: %v", logs.All())
		}
	})
}

// A lease that was lost is not one that was given back, also if the queue is closed later.
func TestLossBeforeClose(t *testing.T) {
	virtually(t, func(w *world) {
		late, host := w.process(queue.Config{})
		w.enqueue(late, "a")
		l := w.claim(late)
		host.Cut()
		time.Sleep(2 * ttl)
		host.Heal()
		w.ok(late.Close(w.Context()))
		w.wantErr(l.Err(), queue.ErrExpired)
		if errors.Is(l.Err(), etcdclaims.ErrClosed) {
			t.Errorf("lost with %v", l.Err())
		}
	})
}

// With StopTimeout a worker stops in time, whatever its handlers do, and what they did not
// finish is given back without an attempt.
func TestStopTimeout(t *testing.T) {
	testetcd.SkipRace(t)
	const bound = 20 * sec // and 5 s of Grace
	no := errors.New("no luck")
	for name, c := range map[string]struct {
		handler  func(ctx context.Context, l *queue.Delivery) error
		took     time.Duration // after the stop
		where    queue.Where
		attempts int
	}{
		"heeds the context":  {func(ctx context.Context, _ *queue.Delivery) error { <-ctx.Done(); return context.Cause(ctx) }, bound, queue.Ready, 0},
		"takes its Grace":    {func(ctx context.Context, _ *queue.Delivery) error { <-ctx.Done(); time.Sleep(4 * sec); return no }, bound + 4*sec, queue.Ready, 0},
		"ignores it":         {func(context.Context, *queue.Delivery) error { time.Sleep(time.Minute); return nil }, bound + 5*sec, queue.Ready, 0},
		"completes in time":  {func(context.Context, *queue.Delivery) error { time.Sleep(15 * sec); return nil }, 14 * sec, queue.Completed, 1},
		"fails in time":      {func(context.Context, *queue.Delivery) error { time.Sleep(15 * sec); return no }, 14 * sec, queue.Later, 1},
		"completes in Grace": {func(ctx context.Context, _ *queue.Delivery) error { <-ctx.Done(); return nil }, bound, queue.Completed, 1},
		"panics":             {func(ctx context.Context, _ *queue.Delivery) error { <-ctx.Done(); panic("boom") }, bound, queue.Later, 1},
		"fails for good":     {func(ctx context.Context, _ *queue.Delivery) error { <-ctx.Done(); return etcdclaims.Permanent(no) }, bound, queue.Dead, 1},
		"fails for an hour": {func(ctx context.Context, _ *queue.Delivery) error {
			<-ctx.Done()
			return etcdclaims.RetryAfter(no, time.Hour)
		}, bound, queue.Later, 1},
		"snoozes": {func(ctx context.Context, _ *queue.Delivery) error { <-ctx.Done(); return queue.SnoozeFor(time.Hour) }, bound, queue.Later, 0},
		"gives it back itself": {func(ctx context.Context, l *queue.Delivery) error {
			<-ctx.Done()
			return l.Release(context.Background())
		}, bound, queue.Ready, 0},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q := w.queue(queue.Config{Backoff: func(int) time.Duration { return time.Hour }})
				other := w.queue(queue.Config{})
				w.enqueue(q, "a")
				stop := w.works(q, queue.WorkerConfig{Timeout: 10 * time.Minute, StopTimeout: bound, Handler: func(ctx context.Context, l *queue.Delivery) error {
					defer func() {
						if ctx.Err() != nil {
							w.wantErr(context.Cause(ctx), queue.ErrStopped)
						}
					}()
					return c.handler(ctx, l)
				}})
				time.Sleep(sec)
				begin := time.Now()
				stop()
				if took := time.Since(begin); took < c.took-sec/2 || took > c.took+sec/2 {
					t.Errorf("stopped after %v, want %v", took, c.took)
				}
				i := w.look(other, "a")
				w.want(i.Where, c.where)
				w.want(i.Attempts, c.attempts)
				time.Sleep(time.Minute) // the deaf one returns
			})
		})
	}
}

// A handler that ignores the stop has lost its item: its writes are refused.
func TestStopTimeoutOutlivesFence(t *testing.T) {
	virtually(t, func(w *world) {
		q, other := w.queue(queue.Config{}), w.queue(queue.Config{})
		w.enqueue(q, "a")
		late := make(chan error, 2)
		stop := w.works(q, queue.WorkerConfig{Timeout: 10 * time.Minute, StopTimeout: sec, Handler: func(_ context.Context, l *queue.Delivery) error {
			time.Sleep(time.Minute)
			late <- l.Check()
			late <- l.Complete(context.Background())
			return nil
		}})
		time.Sleep(sec)
		stop()
		l := w.claim(other)
		w.want(l.Attempt(), 1)
		w.wantErr(<-late, etcdclaims.ErrReleased)
		w.wantErr(<-late, etcdclaims.ErrReleased)
		w.ok(l.Complete(w.Context()))
	})
}

// The bound holds while etcd does not answer: the item goes back when its lease ends.
func TestStopTimeoutInOutage(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		w.enqueue(q, "a")
		stop := w.works(q, queue.WorkerConfig{Timeout: 10 * time.Minute, StopTimeout: 2 * sec, Handler: func(ctx context.Context, _ *queue.Delivery) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}})
		time.Sleep(sec)
		host.Cut()
		begin := time.Now()
		stop()
		if took := time.Since(begin); took > 2*sec+ttl {
			t.Errorf("stopped after %v", took)
		}
		time.Sleep(2 * ttl)
		b, err := w.queue(queue.Config{}).Claim(w.Context(), 1)
		w.ok(err)
		w.want(ids(b.Deliveries), "a")
	})
}

// WorkMany stops in time, too, and not because a queue has no more work.
func TestStopTimeoutOfMany(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{Name: "many"})
		w.enqueue(q, "a")
		host := w.server.Host(w.T)
		claims := claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl})
		ctx, cancel := context.WithCancel(w.Context())
		done := make(chan error, 1)
		var cause error
		go func() {
			done <- queue.WorkMany(ctx, claims, queue.ManyConfig{Worker: queue.WorkerConfig{
				Timeout: time.Hour, StopTimeout: 2 * sec, Handler: func(ctx context.Context, _ *queue.Delivery) error {
					<-ctx.Done()
					cause = context.Cause(ctx)
					return cause
				},
			}})
		}()
		time.Sleep(sec)
		for _, key := range w.under("/active/") { // by somebody's hand
			_, err := w.server.Admin().Delete(context.Background(), key)
			w.ok(err)
		}
		time.Sleep(time.Minute)
		w.want(w.look(q, "a").Where, queue.Taken)
		begin := time.Now()
		cancel()
		w.ok(<-done)
		w.wantErr(cause, queue.ErrStopped)
		if took := time.Since(begin); took > 3*sec {
			t.Errorf("stopped after %v", took)
		}
		w.want(w.look(q, "a").Attempts, 0)
	})
}

// Each call of Close returns when the items are given back, also if another one does that.
func TestCloseTwice(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: 30 * sec})
		w.enqueue(q, "a")
		w.claim(q)
		host.Inject(claimtest.Fault{Times: -1, DelayRequest: sec / 2})
		go func() { w.ok(q.Close(w.Context())) }()
		time.Sleep(sec / 10)
		w.ok(q.Close(w.Context()))
		w.want(len(w.under("/taken/")), 0)
		time.Sleep(5 * sec)
	})
}

// A caller that asks for an item as the queue is closed gets an answer.
func TestAskMeetsClose(t *testing.T) {
	virtually(t, func(w *world) {
		claims, times := etcdClaims(w), 1000
		if testing.Short() {
			times = 100
		}
		for range times {
			q, err := queue.New(claims, queue.Config{Name: "q"})
			w.ok(err)
			ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
			done := make(chan error, 1)
			go func() {
				_, err := q.Claim(ctx, 1)
				done <- err
			}()
			for range rand.N(40) {
				runtime.Gosched()
			}
			w.ok(q.Close(w.Context()))
			w.wantErr(<-done, etcdclaims.ErrClosed)
			cancel()
		}
	})
}

// Work returns Timeout plus Grace after its ctx ended, also if a handler never returns.
func TestWorkReturnsWithoutItsHandler(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		release, began, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		defer close(release)
		go func() {
			done <- q.Work(ctx, queue.WorkerConfig{Concurrency: 1, Timeout: 3 * sec, Grace: sec, Handler: func(context.Context, *queue.Delivery) error {
				close(began)
				<-release
				return nil
			}})
		}()
		<-began
		cancel()
		begin := time.Now()
		w.ok(<-done)
		if d := time.Since(begin); d > 4*sec+100*time.Millisecond {
			t.Errorf("returned after %v", d)
		}
	})
}

// Close takes no longer with many sessions than with one, also while etcd does not answer.
func TestCloseOfSessionsInOutage(t *testing.T) {
	for name, ended := range map[string]bool{"ctx": false, "ctx ended": true} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{})
				for i := range 4 {
					w.enqueue(q, string(rune('a'+i)))
					b, err := q.TryClaim(w.Context(), 1, queue.TTL(time.Minute+time.Duration(i)*sec))
					w.ok(err)
					w.want(len(b.Deliveries), 1)
				}
				host.Cut()
				ctx, cancel := context.WithCancel(w.Context())
				defer cancel()
				if ended {
					cancel()
				}
				begin := time.Now()
				if err := q.Close(ctx); err == nil {
					t.Error("Close returned nil")
				}
				if took := time.Since(begin); took > 15*sec+sec/10 {
					t.Errorf("Close took %v", took)
				}
			})
		})
	}
}
