package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/middleware"
)

// ErrNotLeader is returned when this process does not lead, judged by the local
// clock.
var ErrNotLeader = errors.New("jobs: not the leader")

// Elector is a gocron.Elector. Of all processes that run an Elector with the same
// key, one leads. IsLeader asks the local clock each time, so a process that was
// suspended, or is cut off from etcd, stops leading by itself.
//
// gocron asks only when a job is about to start. A job may still be running when
// the next process leads: use Task. When the leadership changes near a tick, both
// processes may run the tick, or neither: wrap Ticks.Task in a Task.
type Elector struct {
	contest func(ctx context.Context, fn func(ctx context.Context) error) error // nil: without claims

	mu  sync.Mutex
	now *lead // nil while this process does not lead
}

// lead is one term of leadership.
type lead struct {
	held  context.Context
	tasks sync.WaitGroup // tasks running under it
}

// NewElector returns an Elector. gocron does not ask a locker if it has an
// elector.
//
//	elector := jobs.NewElector(claims, "scheduler", middleware.SingletonConfig{})
//	go elector.Run(ctx)
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// If claims is a passthrough, every process leads.
func NewElector(claims middleware.Claims, key string, cfg middleware.SingletonConfig, opts ...middleware.AcquireOption) *Elector {
	e := &Elector{}
	if !passthrough.Of(claims) {
		e.contest = func(ctx context.Context, fn func(ctx context.Context) error) error {
			return middleware.Singleton(ctx, claims, key, fn, cfg, opts...)
		}
	}
	return e
}

// Run contests the key, and leads while it holds the key, until ctx ends. Then it
// releases the key once the tasks that run under it have returned, and returns an
// error that matches the cause of ctx (errors.Is). It returns earlier only if it can never lead, for example
// because the claims are closed: see middleware.Singleton. Call Run once.
func (e *Elector) Run(ctx context.Context) error {
	if e.contest == nil {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return e.contest(ctx, func(held context.Context) error {
		l := &lead{held: held}
		e.set(l)
		<-held.Done()
		e.set(nil) // no further task begins
		l.tasks.Wait()
		return context.Cause(held)
	})
}

func (e *Elector) set(l *lead) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = l
}

// IsLeader returns nil if this process leads now, judged by the local clock, and
// otherwise an error that matches ErrNotLeader. It sends nothing.
func (e *Elector) IsLeader(context.Context) error {
	if e.contest == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now.err()
}

// err returns why this term does not count, or nil.
func (l *lead) err() error {
	if l == nil || l.held.Err() != nil {
		return ErrNotLeader
	}
	if err := fencing.Check(l.held); err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, err) // in one line
	}
	return nil
}

// begin registers a task under the present term, if there is one.
func (e *Elector) begin() (*lead, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.now.err(); err != nil {
		return nil, err
	}
	e.now.tasks.Add(1)
	return e.now, nil
}

// Task returns a function that runs fn while this process leads. The context of
// fn carries the token of the term. It ends with the term, or with the caller's
// context. If this process does not lead, fn is not called, and the error matches
// ErrNotLeader. If the leadership was lost before fn returned, the error matches
// fencing.ErrLost. The key is not released before fn has returned. Task panics if
// fn is nil.
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
