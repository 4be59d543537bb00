package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// served is what WorkMany has handled, in order.
type served struct {
	mu    sync.Mutex
	items []string // queue/id
}

func (s *served) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.items)
}

// workMany runs WorkMany on a machine of its own until the returned function is called.
func (w *world) workMany(concurrency int, takes time.Duration) (s *served, host *claimtest.Host, stop func()) {
	w.Helper()
	host = w.server.Host(w.T)
	claims := claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl})
	s = &served{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- queue.WorkMany(ctx, claims, queue.ManyConfig{
			Queue: func(name string) (queue.Config, bool) { return queue.Config{TTL: ttl}, name != "other" },
			Worker: queue.WorkerConfig{Concurrency: concurrency, Handler: func(_ context.Context, l *queue.Delivery) error {
				s.mu.Lock()
				s.items = append(s.items, l.Queue()+"/"+l.ID())
				s.mu.Unlock()
				time.Sleep(takes)
				return nil
			}},
		})
	}()
	return s, host, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("work: %v", err)
		}
	})
}

// A queue with ten thousand items delays one with one item by one turn, for each of
// many such queues, and queues that this process does not serve are left alone.
func TestManyQueuesAreServedInTurn(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		big, other := w.queue(queue.Config{Name: "big"}), w.queue(queue.Config{Name: "other"})
		n := 10_000
		if testing.Short() {
			n = 500
		}
		items := make([]queue.Item, n)
		for i := range items {
			items[i] = queue.NewItem(nil)
		}
		_, err := big.EnqueueAll(w.Context(), items)
		w.ok(err)
		w.enqueue(other, "left")
		s, _, stop := w.workMany(2, 100*time.Millisecond)
		defer stop()
		time.Sleep(5 * sec)
		for round := range 3 {
			before := len(s.all())
			for i := range 10 {
				w.enqueue(w.queue(queue.Config{Name: fmt.Sprint("small-", i)}), fmt.Sprint("one-", round))
			}
			time.Sleep(2 * sec)
			since := s.all()[before:]
			small := 0
			last := 0
			for i, item := range since {
				if item[:3] != "big" {
					small, last = small+1, i
				}
			}
			w.want(small, 10)
			// Ten of the small ones, and of the big one a few that came before, with each of
			// which the small ones take turns.
			if last > 25 {
				t.Errorf("the last of ten small queues was served after %d items: %v", last, since[:last+1])
			}
		}
		st, err := other.Stats(w.Context())
		w.ok(err)
		w.want(st.Ready, 1)
	})
}

// An item of a queue that was empty is handled at once. A queue that is empty for a
// while is forgotten and costs nothing, and is served again when it has an item.
func TestManyQueuesIdle(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		const queues = 20
		s, host, stop := w.workMany(4, 0)
		defer stop()
		var all []*queue.Queue
		for i := range queues {
			q := w.queue(queue.Config{Name: fmt.Sprint(i)})
			w.enqueue(q, "first")
			all = append(all, q)
		}
		time.Sleep(sec)
		w.want(len(s.all()), queues)
		w.enqueue(all[7], "second")
		time.Sleep(100 * time.Millisecond)
		w.want(len(s.all()), queues+1)
		time.Sleep(5 * time.Minute)
		w.want(len(w.under("/active/")), 0)
		sent := len(host.Sent(claimtest.Every))
		time.Sleep(10 * time.Minute)
		if n := len(host.Sent(claimtest.Every)) - sent; n > 61 { // a read each ten seconds
			t.Errorf("%d requests in ten minutes without work", n)
		}
		w.enqueue(all[3], "third")
		time.Sleep(sec)
		w.want(len(s.all()), queues+2)
	})
}

// Two processes share the items, and an outage of one loses none.
func TestManyQueuesOutage(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		a, host, stopA := w.workMany(2, 10*time.Millisecond)
		b, _, stopB := w.workMany(2, 10*time.Millisecond)
		p, q := w.queue(queue.Config{Name: "p"}), w.queue(queue.Config{Name: "q"})
		for i := range 100 {
			w.enqueue(p, fmt.Sprint(i))
			w.enqueue(q, fmt.Sprint(i))
			if i == 30 {
				host.Cut()
			}
			if i == 60 {
				host.Heal()
			}
			time.Sleep(sec)
		}
		time.Sleep(time.Minute)
		done := map[string]bool{}
		for _, item := range append(a.all(), b.all()...) {
			done[item] = true
		}
		w.want(len(done), 200)
		stopA()
		stopB()
		w.want(len(w.under("/taken/"))+len(w.under("/index/ready/")), 0)
	})
}

// The note that a queue has work does not go while an item is being added, whichever
// comes first.
func TestActiveWhileEnqueuing(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		for i := range 4 {
			q := w.queue(queue.Config{Name: fmt.Sprint(i)})
			keeper, host := w.process(queue.Config{Name: fmt.Sprint(i)})
			w.enqueue(q, "a")
			w.ok(w.claim(keeper).Complete(w.Context()))
			// What removes the note is on its way while an item is added.
			host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, DelayRequest: time.Duration(i*500) * time.Millisecond})
			time.Sleep(time.Minute)
			for n := 0; len(w.under("/active/")) > i; n++ {
				w.enqueue(q, fmt.Sprint(n), queue.Delay(time.Hour))
				w.ok(q.Cancel(w.Context(), fmt.Sprint(n)))
				time.Sleep(173 * time.Millisecond)
				if n > 30 {
					break
				}
			}
			w.enqueue(q, "b", queue.Delay(time.Hour))
			time.Sleep(2 * time.Minute)
			w.want(len(w.under("/active/")), i+1)
		}
	})
}

// Close of the client stops WorkMany as the end of its ctx does: a handler has its time, and
// its item is its own until it has returned.
func TestManyQueuesStopWithClient(t *testing.T) {
	own := func(string) (queue.Config, bool) { return queue.Config{TTL: ttl}, true }
	for name, cfg := range map[string]struct {
		queue func(name string) (queue.Config, bool)
		takes time.Duration
		took  time.Duration // after Close
	}{
		"stored, in time": {nil, 5 * sec, 5 * sec}, "own, in time": {own, 5 * sec, 5 * sec},
		"stored, stopped": {nil, time.Minute, 10 * sec}, "own, stopped": {own, time.Minute, 10 * sec},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				core, logs := observer.New(zap.WarnLevel)
				q := w.queue(queue.Config{})
				w.enqueue(q, "a")
				claims := claimtest.NewClient(w.T, w.server.Host(w.T), etcdclaims.Config{TTL: ttl, Logger: zap.New(core)})
				worked, completed := make(chan error, 1), make(chan error, 1)
				go func() {
					worked <- queue.WorkMany(w.Context(), claims, queue.ManyConfig{
						Queue: cfg.queue,
						Worker: queue.WorkerConfig{StopTimeout: 10 * sec, Timeout: time.Hour, Handler: func(ctx context.Context, l *queue.Delivery) error {
							select {
							case <-time.After(cfg.takes + sec):
							case <-ctx.Done():
								w.wantErr(context.Cause(ctx), queue.ErrStopped)
							}
							completed <- l.Complete(context.WithoutCancel(ctx))
							return nil
						}},
					})
				}()
				time.Sleep(sec)
				w.want(w.look(q, "a").Where, queue.Taken)
				begin := time.Now()
				w.ok(claims.Close(w.Context()))
				if took := time.Since(begin); took < cfg.took-sec || took > cfg.took+sec {
					t.Errorf("Close took %v, want %v", took, cfg.took)
				}
				w.ok(<-completed)
				w.ok(<-worked)
				w.want(w.look(q, "a").Where, queue.Completed)
				w.want(logs.Len(), 0)
			})
		})
	}
}

// What WorkMany has not finished when the ctx of Client.Close ends goes back without an attempt.
func TestManyQueuesGiveBackWhenCloseMustEnd(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		claims := claimtest.NewClient(w.T, w.server.Host(w.T), etcdclaims.Config{TTL: ttl})
		worked, ended := make(chan error, 1), make(chan error, 1)
		go func() {
			worked <- queue.WorkMany(w.Context(), claims, queue.ManyConfig{
				Worker: queue.WorkerConfig{Timeout: time.Hour, Handler: func(ctx context.Context, _ *queue.Delivery) error {
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return context.Cause(ctx)
				}},
			})
		}()
		time.Sleep(sec)
		w.want(w.look(q, "a").Where, queue.Taken)
		ctx, cancel := context.WithTimeout(w.Context(), 5*sec)
		defer cancel()
		begin := time.Now()
		w.ok(claims.Close(ctx))
		if took := time.Since(begin); took > 6*sec {
			t.Errorf("Close took %v", took)
		}
		w.wantErr(<-ended, etcdclaims.ErrClosed)
		w.ok(<-worked)
		info := w.look(q, "a")
		w.want(info.Where, queue.Ready)
		w.want(info.Attempts, 0)
	})
}
