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
	contest func(ctx context.Context, fn func(ctx context.Context) error) error // nil: without claims

	mu  sync.Mutex
	now *lead // nil while this process does not lead
}

// lead is one term.
type lead struct {
	held  context.Context
	tasks sync.WaitGroup // that run under it
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
		e.contest = func(ctx context.Context, fn func(ctx context.Context) error) error {
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
	if e.contest == nil {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return e.contest(ctx, func(held context.Context) error {
		l := &lead{held: held}
		e.set(l)
		<-held.Done()
		e.set(nil) // no task begins from here on
		l.tasks.Wait()
		return context.Cause(held)
	})
}

func (e *Elector) set(l *lead) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = l
}

// IsLeader returns nil if this process leads, by the clock's account now, and else
// an error that matches ErrNotLeader. It asks nobody.
func (e *Elector) IsLeader(context.Context) error {
	if e.contest == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now.err()
}

// err says why a term does not count.
func (l *lead) err() error {
	if l == nil || l.held.Err() != nil {
		return ErrNotLeader
	}
	if err := fencing.Check(l.held); err != nil {
		return errors.Join(ErrNotLeader, err)
	}
	return nil
}

// begin lets a task begin under the term, if there is one that counts.
func (e *Elector) begin() (*lead, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.now.err(); err != nil {
		return nil, err
	}
	e.now.tasks.Add(1)
	return e.now, nil
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
	if e.contest == nil {
		return fn
	}
	return func(ctx context.Context) error {
		l, err := e.begin()
		if err != nil {
			return err
		}
		defer l.tasks.Done()
		return during(ctx, l.held, fn)
	}
}
