package jobs

import (
	"context"
	"errors"
	"sync"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
)

// ErrNotLeader says that this process does not lead, as far as it knows.
var ErrNotLeader = errors.New("jobs: not the leader")

// Elector is a gocron.Elector: of all processes that Run one with the same key, one
// leads. Whether this one does is judged by the clock at each question, so that a
// process that was stopped, or cut off from etcd, says no by itself.
//
// gocron asks when a job is about to start, and not again. A job that runs on when
// the next process leads already is a Task's affair. And when the lead changes
// about a tick, both may run it, or neither: for that, wrap Ticks.Task in a Task.
type Elector struct {
	lead func(ctx context.Context, fn func(ctx context.Context) error) error // nil: without claims

	mu    sync.Mutex
	held  context.Context // of the term, nil while this process does not lead
	tasks *sync.WaitGroup // of the term
}

// NewElector makes an elector. With gocron it takes precedence over a locker, which
// is not asked then.
//
//	elector := jobs.NewElector(claims, "scheduler", middleware.SingletonConfig{})
//	go elector.Run(ctx)
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// With claims that are nil or a passthrough every process leads.
func NewElector[O any](claims middleware.Claims[O], key string, cfg middleware.SingletonConfig, opts ...O) *Elector {
	e := &Elector{}
	if !passes(claims) {
		e.lead = func(ctx context.Context, fn func(ctx context.Context) error) error {
			return middleware.Singleton(ctx, claims, key, fn, cfg, opts...)
		}
	}
	return e
}

// Run contests the key, and leads while it has it, until ctx ends: then it gives the
// key on, when the tasks that run under it have returned, and returns the cause of
// ctx. It ends before that only if it can never lead, as when the claims are closed:
// see middleware.Singleton. It is called once.
func (e *Elector) Run(ctx context.Context) error {
	if e.lead == nil {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return e.lead(ctx, func(held context.Context) error {
		tasks := &sync.WaitGroup{}
		e.set(held, tasks)
		<-held.Done()
		e.set(nil, nil)
		tasks.Wait()
		return context.Cause(held)
	})
}

func (e *Elector) set(held context.Context, tasks *sync.WaitGroup) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held, e.tasks = held, tasks
}

// IsLeader returns nil if this process leads, by the clock's account now, and else
// an error that matches ErrNotLeader. It asks nobody.
func (e *Elector) IsLeader(context.Context) error {
	if e.lead == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leads()
}

func (e *Elector) leads() error {
	if e.held == nil || e.held.Err() != nil {
		return ErrNotLeader
	}
	if err := fencing.Check(e.held); err != nil {
		return errors.Join(ErrNotLeader, err)
	}
	return nil
}

// Task returns fn, to run while this process leads: its context carries the token of
// the term and ends with it, or with the one that it is called with. If this process
// does not lead, fn is not called, and the error matches ErrNotLeader. If the lead
// was lost before fn had returned the error matches fencing.ErrLost. The key is not
// given on before fn has returned.
func (e *Elector) Task(fn func(ctx context.Context) error) func(ctx context.Context) error {
	if fn == nil {
		panic("jobs: Task needs a function")
	}
	if e.lead == nil {
		return fn
	}
	return func(ctx context.Context) error {
		e.mu.Lock()
		err := e.leads()
		held, tasks := e.held, e.tasks
		if err == nil {
			tasks.Add(1)
		}
		e.mu.Unlock()
		if err != nil {
			return err
		}
		defer tasks.Done()
		return during(ctx, held, fn)
	}
}
