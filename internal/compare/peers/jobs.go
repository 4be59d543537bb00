package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/internal/compare/load"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// jobQueue enqueues jobs, and has them handled by workers of its own. handled gets a
// value as each handler ends. That is before the library notes it, which happens in the
// background: in favor of the libraries.
type jobQueue struct {
	enqueue func(ctx context.Context, n int) error
	handled chan struct{} // nil if nothing is handled
	close   func()
}

// mostHandled is more than is ever handled and not waited for.
const mostHandled = 1 << 16

func newJobQueue(o load.Order) *jobQueue {
	q := &jobQueue{}
	if o.Handlers > 0 {
		q.handled = make(chan struct{}, mostHandled)
	}
	return q
}

func openJobs(ctx context.Context, o load.Order) (*jobQueue, error) {
	switch o.Client {
	case load.Asynq:
		return openAsynq(o)
	case load.River:
		return openRiver(ctx, o)
	}
	return nil, fmt.Errorf("no queue %q", o.Client)
}

// step has the worker enqueue jobs, and wait until as many are handled, its own or
// others.
func (q *jobQueue) step(ctx context.Context, each int) error {
	if err := q.enqueue(ctx, each); err != nil || q.handled == nil {
		return err
	}
	for range each {
		select {
		case <-q.handled:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// openAsynq opens a queue in Redis. Unless its pick-up is measured, which is that of its
// defaults, it looks for tasks every millisecond in place of every second.
func openAsynq(o load.Order) (*jobQueue, error) {
	q := newJobQueue(o)
	address := asynq.RedisClientOpt{Addr: o.Address, PoolSize: redisConnections}
	name := fmt.Sprintf("compare-%016x", rand.Uint64())
	c := asynq.NewClient(address)
	cfg := asynq.Config{Concurrency: o.Handlers, Queues: map[string]int{name: 1}, LogLevel: asynq.FatalLevel, TaskCheckInterval: time.Millisecond}
	if o.Defaults {
		cfg.TaskCheckInterval = 0
	}
	stop := func() {}
	if o.Handlers > 0 {
		s := asynq.NewServer(address, cfg)
		if err := s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			q.handled <- struct{}{}
			return nil
		})); err != nil {
			return nil, err
		}
		stop = s.Shutdown
	}
	one := func(ctx context.Context) error {
		_, err := c.EnqueueContext(ctx, asynq.NewTask("compare", []byte("payload")), asynq.Queue(name))
		return err
	}
	q.enqueue = func(ctx context.Context, n int) error { // it has no call for many
		if n == 1 {
			return one(ctx)
		}
		errs := make(chan error, n)
		for range n {
			go func() { errs <- one(ctx) }()
		}
		var failed error
		for range n {
			if err := <-errs; err != nil {
				failed = err
			}
		}
		return failed
	}
	q.close = func() {
		stop()
		_ = c.Close()
	}
	return q, nil
}

type riverArgs struct {
	Payload []byte `json:"payload"`
}

func (riverArgs) Kind() string { return "compare" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	handled chan<- struct{}
}

func (w *riverWorker) Work(context.Context, *river.Job[riverArgs]) error {
	w.handled <- struct{}{}
	return nil
}

// openRiver opens a queue in Postgres. Unless its pick-up is measured, which is that of
// its defaults, it fetches again after a millisecond in place of 100.
func openRiver(ctx context.Context, o load.Order) (*jobQueue, error) {
	pool, err := pgxpool.New(ctx, fmt.Sprintf("postgres://%s@%s/postgres?sslmode=disable&pool_max_conns=%d",
		load.PostgresUser, o.Address, rowConnections))
	if err != nil {
		return nil, err
	}
	q := newJobQueue(o)
	c, err := startRiver(ctx, pool, o, q.handled)
	if err != nil {
		pool.Close()
		return nil, err
	}
	q.enqueue = func(ctx context.Context, n int) error {
		args := riverArgs{Payload: []byte("payload")}
		if n == 1 {
			_, err := c.Insert(ctx, args, nil)
			return err
		}
		many := make([]river.InsertManyParams, n)
		for i := range many {
			many[i].Args = args
		}
		_, err := c.InsertManyFast(ctx, many)
		return err
	}
	q.close = func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if o.Handlers > 0 {
			_ = c.Stop(ctx)
		}
		pool.Close()
	}
	return q, nil
}

func startRiver(ctx context.Context, pool *pgxpool.Pool, o load.Order, handled chan<- struct{}) (*river.Client[pgx.Tx], error) {
	driver := riverpgxv5.New(pool)
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent()})
	if err != nil {
		return nil, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "truncate river_job"); err != nil { // what the round before left
		return nil, err
	}
	if o.Handlers == 0 {
		return river.NewClient(driver, &river.Config{Logger: silent()})
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{handled: handled})
	cfg := &river.Config{
		Logger: silent(), Workers: workers, FetchCooldown: time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: o.Handlers}},
	}
	if o.Defaults {
		cfg.FetchCooldown = 0
	}
	c, err := river.NewClient(driver, cfg)
	if err != nil {
		return nil, err
	}
	return c, c.Start(context.WithoutCancel(ctx))
}

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
