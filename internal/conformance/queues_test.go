package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/middleware/jobs"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

type clientTx = pgx.Tx

// migrated puts River's tables into a Postgres.
func migrated(t *testing.T, server string) string {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	return server
}

// eventually waits until ok says so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// lose takes a claim away from its holder, and waits until it knows.
func lose(ctx context.Context, c *etcdclaims.Client, key string) {
	_ = admin.ForceRelease(context.Background(), c, key, "test")
	<-ctx.Done()
}

func TestAsynq(t *testing.T) {
	t.Parallel()
	redis := asynq.RedisClientOpt{Network: "unix", Addr: startRedis(t)}
	prefix := testetcd.Prefix(t)
	claims, other := newClaims(t, prefix), newClaims(t, prefix)
	var told atomic.Int64
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency: 8, IsFailure: jobs.IsFailure, LogLevel: asynq.FatalLevel,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
		DelayedTaskCheckInterval: 50 * time.Millisecond, TaskCheckInterval: 50 * time.Millisecond,
		ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
			if errors.Is(err, fencing.ErrHeld) {
				told.Add(1)
			}
		}),
	})
	mux := asynq.NewServeMux()
	mux.Use(jobs.Asynq[asynq.Handler](claims, func(t *asynq.Task) string { return string(t.Payload()) }, jobs.Config{
		LastAttempt: func(ctx context.Context) bool {
			retried, _ := asynq.GetRetryCount(ctx)
			limit, _ := asynq.GetMaxRetry(ctx)
			return retried >= limit
		},
	}))
	mux.HandleFunc("well", func(context.Context, *asynq.Task) error { return nil })
	mux.HandleFunc("lost", func(ctx context.Context, t *asynq.Task) error {
		if retried, _ := asynq.GetRetryCount(ctx); retried == 0 {
			lose(ctx, other, string(t.Payload()))
			return asynq.SkipRetry
		}
		return nil
	})
	mux.HandleFunc("panics", func(ctx context.Context, _ *asynq.Task) error {
		if retried, _ := asynq.GetRetryCount(ctx); retried == 0 {
			panic("own")
		}
		return nil
	})
	// Its handler goes on after asynq has given up on it.
	running, beside := atomic.Int64{}, atomic.Bool{}
	mux.HandleFunc("overdue", func(ctx context.Context, _ *asynq.Task) error {
		if running.Add(1) > 1 {
			beside.Store(true)
		}
		defer running.Add(-1)
		if retried, _ := asynq.GetRetryCount(ctx); retried == 0 {
			time.Sleep(2500 * time.Millisecond)
		}
		return nil
	})
	if err := server.Start(mux); err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	c, inspector := asynq.NewClient(redis), asynq.NewInspector(redis)
	defer c.Close()
	defer inspector.Close()
	enqueue := func(kind, key string, opts ...asynq.Option) (state func() *asynq.TaskInfo) {
		t.Helper()
		info, err := c.Enqueue(asynq.NewTask(kind, []byte(key)), append(opts, asynq.Retention(time.Hour))...)
		if err != nil {
			t.Fatal(err)
		}
		return func() *asynq.TaskInfo {
			info, err := inspector.GetTaskInfo(info.Queue, info.ID)
			if err != nil {
				t.Fatal(err)
			}
			return info
		}
	}
	done := func(state func() *asynq.TaskInfo, retried int) {
		t.Helper()
		eventually(t, "completed", func() bool { return state().State == asynq.TaskStateCompleted })
		if info := state(); info.Retried != retried {
			t.Errorf("%s: %d retries used up, want %d: %s", info.Type, info.Retried, retried, info.LastErr)
		}
	}

	held, err := other.TryAcquire(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	busy, last := enqueue("well", "held", asynq.MaxRetry(1)), enqueue("well", "held", asynq.MaxRetry(0))
	eventually(t, "refused three times", func() bool { return told.Load() >= 3 })
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	done(busy, 0)
	done(last, 0)
	done(enqueue("lost", "lost", asynq.MaxRetry(1)), 1)
	done(enqueue("panics", "panics", asynq.MaxRetry(1)), 1)
	done(enqueue("overdue", "overdue", asynq.MaxRetry(3), asynq.Timeout(time.Second)), 1)
	if beside.Load() {
		t.Error("a task ran beside itself")
	}
	if info := enqueue("well", "", asynq.MaxRetry(0)); true {
		eventually(t, "a key that is none is archived", func() bool { return info().State == asynq.TaskStateArchived })
	}
}

// A task that waits for its key, or for an answer of etcd, until its own deadline: it
// was never run, uses up no retry, and is not archived.
func TestAsynqDeadline(t *testing.T) {
	t.Parallel()
	if err := testetcd.Signals(); err != nil {
		t.Skip(err)
	}
	redis := asynq.RedisClientOpt{Network: "unix", Addr: startRedis(t)}
	server := testetcd.StartProcess(t)
	claims := claimtest.NewClient(t, process{server}, etcdclaims.Config{TTL: 30 * time.Second})
	held, err := claims.TryAcquire(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	var ran, told atomic.Int64
	mux := asynq.NewServeMux()
	mux.Use(jobs.Asynq[asynq.Handler](claims, func(t *asynq.Task) string { return string(t.Payload()) }, jobs.Config{Wait: -1}))
	mux.HandleFunc("job", func(context.Context, *asynq.Task) error { ran.Add(1); return nil })
	s := asynq.NewServer(redis, asynq.Config{
		Concurrency: 8, IsFailure: jobs.IsFailure, LogLevel: asynq.FatalLevel,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
		DelayedTaskCheckInterval: 50 * time.Millisecond, TaskCheckInterval: 50 * time.Millisecond,
		ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
			if jobs.IsFailure(err) {
				t.Errorf("a task that was not run: %v", err)
			}
			told.Add(1)
		}),
	})
	if err := s.Start(mux); err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown()
	c, inspector := asynq.NewClient(redis), asynq.NewInspector(redis)
	defer c.Close()
	defer inspector.Close()
	enqueue := func(key string) (info func() *asynq.TaskInfo) {
		t.Helper()
		task, err := c.Enqueue(asynq.NewTask("job", []byte(key)), asynq.MaxRetry(1), asynq.Timeout(2*time.Second), asynq.Retention(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return func() *asynq.TaskInfo {
			info, err := inspector.GetTaskInfo(task.Queue, task.ID)
			if err != nil {
				t.Fatal(err)
			}
			return info
		}
	}
	busy := enqueue("held")
	eventually(t, "given up three times, waiting", func() bool { return told.Load() >= 3 })
	server.Pause(t)
	told.Store(0)
	late := enqueue("late")
	eventually(t, "given up four times, in an outage", func() bool { return told.Load() >= 4 })
	if n := ran.Load(); n > 0 {
		t.Errorf("%d tasks ran", n)
	}
	server.Resume(t)
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, info := range map[string]func() *asynq.TaskInfo{"held": busy, "late": late} {
		eventually(t, name+" completed", func() bool { return info().State == asynq.TaskStateCompleted })
		if i := info(); i.Retried != 0 {
			t.Errorf("%s: %d retries used up: %s", name, i.Retried, i.LastErr)
		}
	}
	if n := ran.Load(); n != 2 {
		t.Errorf("%d runs of 2 tasks", n)
	}
}

// A job that waits in line counts as running for River, which works it beside when it
// takes it for stuck: so it does not wait for that long.
func TestRiverRescue(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), migrated(t, startPostgres(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	prefix := testetcd.Prefix(t)
	claims, other := newClaims(t, prefix), newClaims(t, prefix)
	const rescueAfter = 4 * time.Second
	var runs, snoozed atomic.Int64
	m := jobs.River(claims, argsKey, jobs.Config{Wait: -1, RescueAfter: rescueAfter, NotRun: func(error) error {
		snoozed.Add(1)
		return river.JobSnooze(100 * time.Millisecond)
	}})
	c, err := newRiver(pool, m, func(err error) { t.Errorf("told %v", err) }, func(context.Context, *river.Job[jobArgs]) error {
		runs.Add(1)
		return nil
	}, func(cfg *river.Config) { cfg.JobTimeout, cfg.RescueStuckJobsAfter = time.Second, rescueAfter })
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	held, err := other.TryAcquire(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.Insert(t.Context(), jobArgs{"held"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// River looks for stuck jobs when it starts, and then each half minute.
	for until := time.Now().Add(40 * time.Second); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if row, err := c.JobGet(t.Context(), job.Job.ID); err != nil || row.Attempt > 1 || len(row.Errors) > 0 {
			t.Fatalf("%+v, %v", row, err)
		}
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "completed", func() bool {
		row, err := c.JobGet(t.Context(), job.Job.ID)
		return err == nil && row.State == rivertype.JobStateCompleted && row.Attempt == 1
	})
	if runs.Load() != 1 || snoozed.Load() < 5 {
		t.Errorf("%d runs, snoozed %d times", runs.Load(), snoozed.Load())
	}
	if err := c.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestRiver(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), migrated(t, startPostgres(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	prefix := testetcd.Prefix(t)
	claims, other := newClaims(t, prefix), newClaims(t, prefix)
	var snoozed, runs atomic.Int64
	m := jobs.River(claims, argsKey, jobs.Config{NotRun: func(error) error {
		snoozed.Add(1)
		return river.JobSnooze(50 * time.Millisecond)
	}})
	causes := make(chan error, 9)
	c, err := newRiver(pool, m, func(error) {}, func(ctx context.Context, job *river.Job[jobArgs]) error {
		runs.Add(1)
		switch key := job.Args.Key; {
		case key == "lost" && job.Attempt == 1:
			lose(ctx, other, key)
			return river.JobCancel(errors.New("own"))
		case key == "panics" && job.Attempt == 1:
			panic("own")
		case key == "cancelled", key == "stopped":
			causes <- nil // it has begun
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	insert := func(key string) int64 {
		t.Helper()
		job, err := c.Insert(t.Context(), jobArgs{key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return job.Job.ID
	}
	ended := func(id int64, state rivertype.JobState, attempt int) {
		t.Helper()
		var row *rivertype.JobRow
		eventually(t, fmt.Sprint(state), func() bool {
			row, err = c.JobGet(context.Background(), id)
			return err == nil && row.State == state
		})
		if row.Attempt != attempt {
			t.Errorf("%s: attempt %d, want %d: %+v", row.EncodedArgs, row.Attempt, attempt, row.Errors)
		}
	}

	held, err := other.TryAcquire(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	busy := insert("held")
	eventually(t, "snoozed three times", func() bool { return snoozed.Load() >= 3 })
	if runs.Load() > 0 {
		t.Error("it runs")
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended(busy, rivertype.JobStateCompleted, 1)
	ended(insert("lost"), rivertype.JobStateCompleted, 2)
	ended(insert("panics"), rivertype.JobStateCompleted, 2)

	cancelled := insert("cancelled")
	<-causes
	if _, err := c.JobCancel(t.Context(), cancelled); err != nil {
		t.Fatal(err)
	}
	if cause := <-causes; !errors.Is(cause, rivertype.ErrJobCancelledRemotely) {
		t.Errorf("cause %v", cause)
	}
	ended(cancelled, rivertype.JobStateCancelled, 1)

	// A shutdown uses up no attempt.
	stopped := insert("stopped")
	<-causes
	if err := c.StopAndCancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-causes
	ended(stopped, rivertype.JobStateAvailable, 0)
}

// Two routers, as of two processes, get each message: it is handled by one at a
// time.
func TestWatermill(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	pubSub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	other := newClaims(t, prefix)
	var running, runs, failures, routed atomic.Int64
	handle := func(msg *message.Message) ([]*message.Message, error) {
		if running.Add(1) > 1 {
			t.Error("two at a time")
		}
		time.Sleep(short)
		running.Add(-1) // before the claim is taken away
		runs.Add(1)
		token, ok := fencing.FromContext(msg.Context())
		if !ok {
			t.Error("no token")
		}
		switch failures.Add(1) {
		case 1:
			lose(msg.Context(), other, token.Key)
		case 2:
			panic("own")
		}
		return []*message.Message{message.NewMessage(msg.UUID, nil)}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2)
	for i := range 2 {
		router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		router.AddMiddleware(middleware.Recoverer, func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				before := msg.Context()
				out, err := h(msg)
				if err == nil {
					routed.Add(1)
				}
				if msg.Context() != before || err != nil && len(out) > 0 {
					t.Errorf("a message keeps the claim's context, or is published: %v, %v", out, err)
				}
				return out, err
			}
		}, jobs.Watermill[message.HandlerFunc](newClaims(t, prefix), func(*message.Message) string { return "order" }, jobs.Config{Wait: -1}))
		router.AddHandler("handler", "in", pubSub, fmt.Sprint("out", i), pubSub, handle)
		go func() { ended <- router.Run(ctx) }()
		<-router.Running()
	}
	const messages = 10
	for i := range messages {
		if err := pubSub.Publish("in", message.NewMessage(fmt.Sprint(i), nil)); err != nil {
			t.Fatal(err)
		}
	}
	// Twice each, and two more: for the one that was lost, and the panic.
	eventually(t, "all messages handled", func() bool { return routed.Load() == 2*messages })
	if n := runs.Load(); n != 2*messages+2 {
		t.Errorf("%d runs of %d messages in two routers", n, messages)
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if err := pubSub.Close(); err != nil {
		t.Error(err)
	}
}
