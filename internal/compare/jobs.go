package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

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
	handled chan struct{} // with room for more than are ever handled and not waited for
	close   func()
}

// An openJobs opens somebody's queue with that many handlers. By defaults it looks for jobs
// as often as it does by default.
type openJobs func(ctx context.Context, address string, handlers int, defaults bool) (*jobQueue, error)

// jobCycle has workers enqueue some jobs each, and wait until as many are handled.
func jobCycle(of kind, open openJobs, each int) measurer {
	return drive(func(ctx context.Context, st *stage, n int) (*driven, error) {
		return visit(ctx, st, of, open, driven{shape: st.shape(n), each: each}, n*each, false)
	})
}

// pickUpJob measures the time from the call that enqueues a job to one of n handlers.
func pickUpJob(of kind, open openJobs) measurer {
	return drive(func(ctx context.Context, st *stage, n int) (*driven, error) {
		return visit(ctx, st, of, open, driven{shape: st.shape(1), each: 1}, n, true)
	})
}

// visit opens the queue for one measurement: what polls must not do so while others are measured.
func visit(ctx context.Context, st *stage, of kind, open openJobs, d driven, handlers int, defaults bool) (*driven, error) {
	s, err := st.server(ctx, of)
	if err != nil {
		return nil, err
	}
	q, err := open(ctx, s.address, handlers, defaults)
	if err != nil {
		return nil, err
	}
	d.sent, d.shut = none, q.close
	d.step = func(ctx context.Context, _ int) error { // it waits for as many jobs, its own or others
		err := q.enqueue(ctx, d.each)
		for i := 0; i < d.each && err == nil; i++ {
			err = heard(ctx, q.handled)
		}
		return err
	}
	return &d, nil
}

// openAsynq opens a queue in Redis. Unless by defaults, it looks for tasks every millisecond
// in place of every second.
func openAsynq(_ context.Context, at string, handlers int, defaults bool) (*jobQueue, error) {
	q := &jobQueue{handled: make(chan struct{}, 1<<16)}
	address := asynq.RedisClientOpt{Addr: at, PoolSize: redisConnections}
	name := fmt.Sprintf("compare-%016x", rand.Uint64())
	cfg := asynq.Config{
		Concurrency:       handlers,
		Queues:            map[string]int{name: 1},
		LogLevel:          asynq.FatalLevel,
		TaskCheckInterval: time.Millisecond,
	}
	if defaults {
		cfg.TaskCheckInterval = 0
	}
	s := asynq.NewServer(address, cfg)
	if err := s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		q.handled <- struct{}{}
		return nil
	})); err != nil {
		return nil, err
	}
	c := asynq.NewClient(address)
	q.enqueue = func(ctx context.Context, _ int) error { // one: it has no call for many
		_, err := c.EnqueueContext(ctx, asynq.NewTask("compare", []byte("payload")), asynq.Queue(name))
		return err
	}
	q.close = func() {
		s.Shutdown()
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

// openRiver opens a queue in Postgres. Unless by defaults, it fetches again after a
// millisecond in place of 100.
func openRiver(ctx context.Context, address string, handlers int, defaults bool) (*jobQueue, error) {
	// So many connections served it best on two cores: Postgres has a process for each.
	pool, err := pgxpool.New(ctx, fmt.Sprintf("postgres://%s@%s/postgres?sslmode=disable&pool_max_conns=64", postgresUser, address))
	if err != nil {
		return nil, err
	}
	q := &jobQueue{handled: make(chan struct{}, 1<<16)}
	c, err := startRiver(ctx, pool, handlers, defaults, q.handled)
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
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		_ = c.Stop(ctx)
		pool.Close()
	}
	return q, nil
}

func startRiver(
	ctx context.Context, pool *pgxpool.Pool, handlers int, defaults bool, handled chan<- struct{},
) (*river.Client[pgx.Tx], error) {
	driver, silent := riverpgxv5.New(pool), slog.New(slog.DiscardHandler)
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent})
	if err != nil {
		return nil, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "truncate river_job"); err != nil { // what the round before left
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{handled: handled})
	cfg := &river.Config{
		Logger:        silent,
		Workers:       workers,
		FetchCooldown: time.Millisecond,
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: handlers}},
	}
	if defaults {
		cfg.FetchCooldown = 0
	}
	c, err := river.NewClient(driver, cfg)
	if err != nil {
		return nil, err
	}
	return c, c.Start(context.WithoutCancel(ctx))
}
