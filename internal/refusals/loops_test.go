package refusals_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/sched"
)

type stepFunc = func(ctx context.Context, key string) error

// each is a loop that needs no preparation.
func each(step func(ctx context.Context, w *world, key string) error) func(w *world) stepFunc {
	return func(w *world) stepFunc {
		return func(ctx context.Context, key string) error { return step(ctx, w, key) }
	}
}

func nothing(context.Context) error { return nil }

// ofClaims are the loops of package etcdclaims.
var ofClaims = []loop{
	{name: "Client.Acquire", begin: each(func(ctx context.Context, w *world, key string) error {
		_, err := w.claims.Acquire(ctx, key)
		return err
	})},
	{name: "Client.Acquire in line", begin: each(func(ctx context.Context, w *world, key string) error {
		held, err := w.other.TryAcquire(ctx, key)
		if err != nil {
			return err
		}
		time.AfterFunc(refusing/2, func() { _ = held.Release(context.Background()) })
		_, err = w.claims.Acquire(ctx, key)
		return err
	})},
	{name: "Client.TryAcquire", fails: true, begin: each(func(ctx context.Context, w *world, key string) error {
		_, err := w.claims.TryAcquire(ctx, key)
		return err
	})},
	{name: "Client.Run", begin: each(func(ctx context.Context, w *world, key string) error {
		return w.claims.Run(ctx, key, nothing)
	})},
	{name: "Client.Begin", begin: each(func(ctx context.Context, w *world, key string) error {
		work, err := w.claims.Begin(ctx, key)
		if err != nil {
			return err
		}
		return work.Complete(ctx)
	})},
	{name: "Client.RunWork", begin: each(func(ctx context.Context, w *world, key string) error {
		return w.claims.RunWork(ctx, key, func(context.Context, *etcdclaims.Work) error { return nil })
	})},
	{name: "Client.RunForResult", begin: each(func(ctx context.Context, w *world, key string) error {
		_, _, err := w.claims.RunForResult(ctx, key, func(context.Context) ([]byte, error) { return nil, nil })
		return err
	})},
	{name: "Locks.TryAcquire", fails: true, begin: each(func(ctx context.Context, w *world, key string) error {
		_, ok, err := w.claims.Locks().TryAcquire(ctx, key, "owner", time.Minute)
		if err == nil && !ok {
			err = errors.New("it is not locked")
		}
		return err
	})},
	{name: "Locks.Release", fails: true, begin: each(func(ctx context.Context, w *world, key string) error {
		if _, _, err := w.other.Locks().TryAcquire(ctx, key, "owner", time.Minute); err != nil {
			return err
		}
		return second(w.claims.Locks().Release(ctx, key, "owner"))
	})},
	{name: "Claim.Release", settles: true, begin: held(func(ctx context.Context, c *etcdclaims.Claim) error { return c.Release(ctx) })},
	{name: "Claim.Note", begin: held(func(ctx context.Context, c *etcdclaims.Claim) error { return c.Note(ctx, []byte("n")) })},
	{name: "Claim.Owns", begin: held(func(ctx context.Context, c *etcdclaims.Claim) error { return owns(c.Owns(ctx)) })},
	{name: "Claim.Renew", begin: held(func(ctx context.Context, c *etcdclaims.Claim) error { return c.Renew(ctx) })},
	{name: "renewals and verification", begin: func(w *world) stepFunc {
		claim, err := w.claims.Acquire(w.Context(), "kept")
		if err != nil {
			w.Fatal(err)
		}
		return func(ctx context.Context, _ string) error {
			time.Sleep(refusing + 15*time.Second)
			return owns(claim.Owns(ctx))
		}
	}},
	{name: "Work.Complete", begin: worked(func(ctx context.Context, work *etcdclaims.Work) error { return work.Complete(ctx) })},
	{name: "Work.Fail", begin: worked(func(ctx context.Context, work *etcdclaims.Work) error {
		_, err := work.Fail(ctx, errors.New("it failed"))
		return err
	})},
	{name: "Work.Release", begin: worked(func(ctx context.Context, work *etcdclaims.Work) error { return work.Release(ctx) })},
	{name: "Client.Lookup", begin: each(func(ctx context.Context, w *world, key string) error {
		_, err := w.claims.Lookup(ctx, key)
		return err
	})},
	{name: "Client.List", begin: each(func(ctx context.Context, w *world, _ string) error {
		for _, err := range w.claims.List(ctx, "") {
			return err
		}
		return nil
	})},
	{name: "Client.Records", begin: each(func(ctx context.Context, w *world, _ string) error {
		for _, err := range w.claims.Records(ctx, "") {
			return err
		}
		return nil
	})},
	{name: "Client.Line", begin: each(func(ctx context.Context, w *world, key string) error {
		_, err := w.claims.Line(ctx, key)
		return err
	})},
	{name: "Client.History", begin: each(func(ctx context.Context, w *world, key string) error {
		_, err := w.claims.History(ctx, key)
		return err
	})},
	{name: "Client.ForceRelease", begin: each(func(ctx context.Context, w *world, key string) error {
		if _, err := w.other.Acquire(ctx, key); err != nil {
			return err
		}
		return w.claims.ForceRelease(ctx, key, "a test")
	})},
	{name: "Client.Watch", begin: func(w *world) stepFunc {
		seen := make(chan string, 1000)
		runs := w.background(func(ctx context.Context) error {
			for e, err := range w.claims.Watch(ctx, "") {
				if err != nil {
					return err
				}
				seen <- e.Info.Key
			}
			return ctx.Err()
		})
		return func(ctx context.Context, key string) error {
			if _, err := w.other.Acquire(ctx, key); err != nil {
				return err
			}
			return sees(ctx, seen, key, runs)
		}
	}},
}

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
		schedule, err := sched.Every(time.Second, 0)
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
	{name: "Queue.Leased", begin: ofQueue(func(ctx context.Context, q *queue.Queue) error { return firstError(q.Taken(ctx)) })},
	{name: "Queue.Pause", begin: ofQueue(func(ctx context.Context, q *queue.Queue) error {
		return unless(queue.ErrPaused)(nil, q.Pause(ctx, "a test"))
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

func second(_ any, err error) error { return err }

// unless returns the error of a call, unless it is the one that the call has without a refusal.
func unless(expected error) func(_ any, err error) error {
	return func(_ any, err error) error {
		if errors.Is(err, expected) {
			return nil
		}
		return err
	}
}

func firstError[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// owns turns the result of Owns into an error.
func owns(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("it is not owned")
	}
	return err
}

// held returns a loop that does something with a claim of the key.
func held(do func(ctx context.Context, c *etcdclaims.Claim) error) func(w *world) stepFunc {
	return func(w *world) stepFunc {
		var claims []*etcdclaims.Claim
		for n := range 100 {
			claim, err := w.claims.Acquire(w.Context(), fmt.Sprint("held/", n))
			if err != nil {
				w.Fatal(err)
			}
			claims = append(claims, claim)
		}
		return func(ctx context.Context, _ string) error {
			claim := claims[0]
			claims = claims[1:]
			return do(ctx, claim)
		}
	}
}

// worked returns a loop that does something with an attempt at work.
func worked(do func(ctx context.Context, work *etcdclaims.Work) error) func(w *world) stepFunc {
	return func(w *world) stepFunc {
		var works []*etcdclaims.Work
		for n := range 100 {
			work, err := w.claims.Begin(w.Context(), fmt.Sprint("work/", n))
			if err != nil {
				w.Fatal(err)
			}
			works = append(works, work)
		}
		return func(ctx context.Context, _ string) error {
			work := works[0]
			works = works[1:]
			return do(ctx, work)
		}
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

// sees waits until something came through a channel, and fails if the loop has ended.
func sees(ctx context.Context, seen <-chan string, what string, runs func() error) error {
	for {
		select {
		case got := <-seen:
			if got == what {
				return runs()
			}
		case <-ctx.Done():
			if err := runs(); err != nil {
				return err
			}
			return fmt.Errorf("%q has not come", what)
		}
	}
}

func emptied(c chan string) chan string {
	for len(c) > 0 {
		<-c
	}
	return c
}

// A loop ends with a refusal that would be repeated, or goes on. It reports no success of what was refused, and never hangs.
func TestLoopsEndWithRefusals(t *testing.T) {
	t.Parallel()
	for _, l := range slices.Concat(ofClaims, ofOthers) {
		t.Run(strings.ReplaceAll(l.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			ends(t, l)
		})
	}
}

func TestLoopsOutliveRefusals(t *testing.T) {
	t.Parallel()
	for _, l := range slices.Concat(ofClaims, ofOthers) {
		t.Run(strings.ReplaceAll(l.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			outlives(t, l)
		})
	}
}

// sharing are methods that have no loop of their own, by the loop through which they send requests.
// The calls of theCalls are no loops.
var sharing = map[string]string{
	"Client.Acquire": "Claim.Bind",
	"Client.TryAcquire": `Client.TryBegin Client.TryRun Client.TryRunForResult Client.TryRunWork Client.TryAcquireAll Client.TryAcquireEach
		Queue.TryClaim`,
	"Client.Run":          "Claim.Run",
	"Client.RunWork":      "Work.Run",
	"Client.Lookup":       "Client.Lines Client.Owns Client.Record",
	"Client.List":         "Client.Sessions",
	"Client.Records":      "Client.Orphans",
	"Client.ForceRelease": "Client.ForceReleaseTerm",
	"Claim.Release":       "Client.ReleaseAll Client.Close Queue.Close Member.Leave",
	"Work.Complete":       "Work.CompleteWith",
	"Queue.Claim":         "Lease.Complete Lease.Discard Lease.Fail Lease.Release Lease.Snooze Lease.Heartbeat Lease.Note Queue.Adopt",
	"Queue.Enqueue":       "Queue.EnqueueAll",
	"Queue.Pause":         "Queue.Resume",
	"Scheduler.Inspect":   "Scheduler.Definition Scheduler.Explain",
	"a member of a group": "Member.Admit",
	"Locks.TryAcquire":    "Locks.Renew Locks.IsLocked Locks.Owner Locks.ReleaseAll",
	"none":                `View.Call View.Watch`, // they send nothing, and end with ctx only
}

// Loops that must not be missing above, of the types whose methods send requests. A method that is
// added must be added there, to theCalls, or here with the loop that it shares.
func TestEveryLoopIsTried(t *testing.T) {
	t.Parallel()
	tried, shares := map[string]bool{}, map[string]bool{}
	for _, l := range slices.Concat(ofClaims, ofOthers) {
		tried[l.name] = true
	}
	for _, c := range theCalls {
		tried[c.name] = true
	}
	for loop, names := range sharing {
		if !tried[loop] && loop != "none" {
			t.Errorf("%s is no loop", loop)
		}
		for _, shared := range strings.Fields(names) {
			shares[shared] = true
		}
	}
	own := map[string]bool{"Work.Complete": true, "Work.Fail": true, "Work.Release": true, "Work.CompleteWith": true, "Work.Run": true}
	for _, of := range []any{
		(*etcdclaims.Client)(nil), (*etcdclaims.Claim)(nil), (*etcdclaims.Work)(nil), (*queue.Queue)(nil), (*queue.Delivery)(nil),
		(*sched.Scheduler)(nil), (*group.Member)(nil), (*group.View)(nil), (*etcdclaims.Locks)(nil),
	} {
		typ := reflect.TypeOf(of)
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			name := typ.Elem().Name() + "." + m.Name
			if m.Type.NumIn() < 2 || m.Type.In(1) != reflect.TypeFor[context.Context]() || typ.Elem().Name() == "Work" && !own[name] {
				continue // the others of Work are those of its claim
			}
			if !tried[name] && !shares[name] {
				t.Errorf("%s is in no loop", name)
			}
		}
	}
}
