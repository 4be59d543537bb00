package scenarios_test

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// ofOthers are the loops of the packages that are built on that.
var ofOthers = []loop{
	{name: "Queue.Enqueue", begin: func(w *world) stepFunc {
		q := w.newQueue(w.claims)
		return func(ctx context.Context, _ string) error {
			_, err := q.Enqueue(ctx, queue.NewItem(nil))
			return err
		}
	}},
	{name: "Queue.Claim", begin: func(w *world) stepFunc {
		q, producer := w.newQueue(w.claims), w.newQueue(w.other)
		return func(ctx context.Context, _ string) error {
			if _, err := producer.Enqueue(ctx, queue.NewItem(nil)); err != nil {
				return err
			}
			b, err := q.Claim(ctx, 1)
			if err != nil {
				return err
			}
			return b.Deliveries[0].Complete(ctx)
		}
	}},
	{name: "Queue.Waiting", begin: func(w *world) stepFunc {
		q := w.newQueue(w.claims)
		return func(ctx context.Context, _ string) error {
			for _, err := range q.Waiting(ctx) {
				return err
			}
			return nil
		}
	}},
	{name: "Queue.Stats", begin: func(w *world) stepFunc {
		q := w.newQueue(w.claims)
		return func(ctx context.Context, _ string) error {
			_, err := q.Stats(ctx)
			return err
		}
	}},
	{name: "Queue.Watch", begin: func(w *world) stepFunc {
		q, producer := w.newQueue(w.claims), w.newQueue(w.other)
		seen := make(chan string, 1000)
		runs := w.background(func(ctx context.Context) error {
			for e, err := range q.Watch(ctx) {
				if err != nil {
					return err
				}
				seen <- e.ID
			}
			return ctx.Err()
		})
		return func(ctx context.Context, _ string) error {
			time.Sleep(refusing + 5*time.Second) // it yields no events of before it read anew
			item := queue.NewItem(nil)
			if _, err := producer.Enqueue(ctx, item); err != nil {
				return err
			}
			return sees(ctx, seen, item.ID(), runs)
		}
	}},
	{name: "Queue.Work", begin: func(w *world) stepFunc {
		q := w.newQueue(w.claims)
		return worker(w, func(ctx context.Context, cfg queue.WorkerConfig) error { return q.Work(ctx, cfg) })
	}},
	{name: "queue.WorkMany", begin: func(w *world) stepFunc {
		return worker(w, func(ctx context.Context, cfg queue.WorkerConfig) error {
			return queue.WorkMany(ctx, w.claims, queue.ManyConfig{Worker: cfg})
		})
	}},
	{name: "Scheduler.Run", begin: func(w *world) stepFunc {
		s, err := sched.New(w.claims, sched.Config{Group: "default"})
		if err != nil {
			w.Fatal(err)
		}
		ran := make(chan string, 1000)
		schedule, err := calendar.Every(time.Second, 0)
		if err != nil {
			w.Fatal(err)
		}
		err = s.Add(sched.Job{Name: "job", Schedule: schedule, Handler: func(context.Context, sched.Tick) error {
			ran <- ""
			return nil
		}})
		if err != nil {
			w.Fatal(err)
		}
		runs := w.background(s.Run)
		return func(ctx context.Context, _ string) error {
			time.Sleep(refusing)
			return sees(ctx, emptied(ran), "", runs)
		}
	}},
	{name: "group.Join", begin: each(func(ctx context.Context, w *world, key string) error {
		m, err := group.Join(ctx, w.claims, group.Config{Group: key, Partitions: 1}, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
			<-ctx.Done()
			return nil
		})
		if err != nil {
			return err
		}
		return m.Leave(ctx)
	})},
	{name: "a member of a group", begin: func(w *world) stepFunc {
		owned := make(chan string, 1000)
		m, err := group.Join(w.Context(), w.claims, group.Config{Group: "g", Partitions: 2}, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
			for ctx.Err() == nil {
				owned <- ""
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
			return nil
		})
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(func() { _ = m.Leave(context.Background()) })
		return func(ctx context.Context, _ string) error {
			time.Sleep(refusing + 15*time.Second)
			return sees(ctx, emptied(owned), "", m.Err)
		}
	}},
	{name: "middleware.Singleton", begin: func(w *world) stepFunc {
		runs := w.background(func(ctx context.Context) error {
			lead := func(ctx context.Context) error { <-ctx.Done(); return nil }
			return middleware.Singleton(ctx, w.claims, "leader", lead, middleware.SingletonConfig{})
		})
		return func(ctx context.Context, _ string) error {
			time.Sleep(refusing + 15*time.Second)
			info, err := w.other.Lookup(ctx, "leader")
			if err == nil && !info.Held {
				err = errors.New("it does not lead")
			}
			return errors.Join(err, runs())
		}
	}},
	{name: "Queue.Look", begin: ofQueue(func(ctx context.Context, q *queue.Queue) error { return unless(queue.ErrNotFound)(q.Look(ctx, "x")) })},
	{name: "Queue.DeadLetters", begin: ofQueue(func(ctx context.Context, q *queue.Queue) error { return firstError(q.DeadLetters(ctx)) })},
	{name: "Queue.Taken", begin: ofQueue(func(ctx context.Context, q *queue.Queue) error { return firstError(q.Taken(ctx)) })},
	{name: "Queue.Pause", begin: ofQueue(func(ctx context.Context, q *queue.Queue) error {
		return unless(queue.ErrUnchanged)(nil, q.Pause(ctx, "a test"))
	})},
	{name: "Queue.Sweep", begin: ofQueue(func(ctx context.Context, q *queue.Queue) error { return second(q.Sweep(ctx)) })},
	{name: "queue.Names", begin: each(func(ctx context.Context, w *world, _ string) error { return firstError(queue.Names(ctx, w.claims)) })},
	{name: "Scheduler.Jobs", begin: ofScheduler(func(ctx context.Context, s *sched.Scheduler) error { return firstError(s.Jobs(ctx)) })},
	{name: "Scheduler.Inspect", begin: ofScheduler(func(ctx context.Context, s *sched.Scheduler) error {
		return unless(sched.ErrUnknownJob)(s.Inspect(ctx, "job"))
	})},
	{name: "Scheduler.History", begin: ofScheduler(func(ctx context.Context, s *sched.Scheduler) error { return firstError(s.History(ctx, "job")) })},
	{name: "Scheduler.Definitions", begin: ofScheduler(func(ctx context.Context, s *sched.Scheduler) error { return firstError(s.Definitions(ctx)) })},
	{name: "group.Names", begin: each(func(ctx context.Context, w *world, _ string) error { return firstError(group.Names(ctx, w.claims)) })},
	{name: "group.Read", begin: each(func(ctx context.Context, w *world, key string) error {
		return unless(group.ErrNoGroup)(group.Read(ctx, w.claims, key))
	})},
}

// ofQueue returns a loop that does something with a queue.
func ofQueue(do func(ctx context.Context, q *queue.Queue) error) func(w *world) stepFunc {
	return func(w *world) stepFunc {
		q := w.newQueue(w.claims)
		return func(ctx context.Context, _ string) error { return do(ctx, q) }
	}
}

// ofScheduler returns a loop that does something with a scheduler.
func ofScheduler(do func(ctx context.Context, s *sched.Scheduler) error) func(w *world) stepFunc {
	return func(w *world) stepFunc {
		s, err := sched.New(w.claims, sched.Config{Group: "default"})
		if err != nil {
			w.Fatal(err)
		}
		return func(ctx context.Context, _ string) error { return do(ctx, s) }
	}
}

// worker returns a loop that handles the items of a queue.
func worker(w *world, work func(ctx context.Context, cfg queue.WorkerConfig) error) stepFunc {
	producer := w.newQueue(w.other)
	handled := make(chan string, 1000)
	runs := w.background(func(ctx context.Context) error {
		return work(ctx, queue.WorkerConfig{Handler: func(_ context.Context, l *queue.Delivery) error {
			handled <- l.ID()
			return nil
		}})
	})
	return func(ctx context.Context, _ string) error {
		item := queue.NewItem(nil)
		if _, err := producer.Enqueue(ctx, item); err != nil {
			return err
		}
		return sees(ctx, handled, item.ID(), runs)
	}
}
