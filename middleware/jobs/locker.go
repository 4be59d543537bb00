package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
)

// ErrNotLocked says that a task was called without the lock of its job.
var ErrNotLocked = errors.New("jobs: the job is not locked")

// Unlocker is gocron.Lock.
type Unlocker interface {
	Unlock(ctx context.Context) error
}

// Locker is a gocron.Locker, L being gocron.Lock. Of one job, by its name, at most
// one run is under way, in all processes. Prefer Ticks: a lock knows no ticks.
type Locker[L Unlocker] struct {
	run func(ctx context.Context, key string, fn func(ctx context.Context) error) error // nil: without claims

	mu    sync.Mutex
	locks map[string]*lock // held by this process, by key
}

// NewLocker makes a locker. The first option should be etcdclaims.MinHold: gocron
// unlocks when the job has returned, and a process whose clock is behind, or whose
// timer fired later, would find the key free and run the same tick again. So the
// key stays held for that long: longer than processes are apart, shorter than the
// time from tick to tick. It is in full seconds, of which etcd grants two at
// least: what runs more often than every five seconds needs Ticks.
//
//	locker := jobs.NewLocker[gocron.Lock](claims, etcdclaims.MinHold(30*time.Second))
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(locker.Task("report", report)), gocron.WithName("report"))
//
// gocron does not ask a locker where there is an elector; a Task is not run then.
//
// NewLocker panics if L is a type that it cannot make. With claims that are nil or
// a passthrough all is locked at once.
func NewLocker[L Unlocker, O any](claims middleware.Claims[O], minHold O, opts ...O) *Locker[L] {
	must[L](&lock{})
	l := &Locker[L]{locks: map[string]*lock{}}
	if !passes(claims) {
		opts = append([]O{minHold}, opts...)
		l.run = func(ctx context.Context, key string, fn func(ctx context.Context) error) error {
			return claims.TryRun(ctx, key, fn, opts...)
		}
	}
	return l
}

// Lock claims the key, which is the name of a job. If it is held the error is a
// *middleware.NotRunError and matches fencing.ErrHeld; after any error gocron does
// not run the job.
func (l *Locker[L]) Lock(ctx context.Context, key string) (none L, _ error) {
	if l.run == nil {
		return must[L](&lock{}), nil
	}
	k := &lock{key: key, unlocked: make(chan struct{}), ended: make(chan struct{})}
	locked := make(chan struct{})
	go func() {
		defer close(k.ended)
		k.err = l.run(ctx, key, func(ctx context.Context) error {
			k.ctx = ctx
			l.hold(k)
			defer l.drop(k)
			close(locked)
			<-k.unlocked // however long the job takes: it is not over before
			return nil
		})
	}()
	select {
	case <-locked:
		return must[L](k), nil
	case <-k.ended:
		return none, &middleware.NotRunError{Key: key, Err: k.err}
	}
}

func (l *Locker[L]) hold(k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks[k.key] = k
}

// drop is for a lock that another may have followed already, after a loss.
func (l *Locker[L]) drop(k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locks[k.key] == k {
		delete(l.locks, k.key)
	}
}

// Task returns fn, to be the task of the job of that name, which gocron.WithName
// gives it: gocron has no way for a locker to tell a task of the lock. The context carries the token and ends with the
// claim, or the one that gocron gives. If the lock is lost before fn has returned,
// the error matches fencing.ErrLost. Without a lock fn is not called, and the error
// matches ErrNotLocked.
func (l *Locker[L]) Task(job string, fn func(ctx context.Context) error) func(ctx context.Context) error {
	if fn == nil {
		panic("jobs: Task needs a function")
	}
	if l.run == nil {
		return fn
	}
	return func(ctx context.Context) error {
		k := l.take(job)
		if k == nil {
			return fmt.Errorf("%w: no lock of a job %q; give the job that name, by gocron.WithName; and a locker is not asked where there is an elector", ErrNotLocked, job)
		}
		return during(ctx, k.ctx, fn)
	}
}

// take returns the lock of a job for one task. A task that comes late, when its
// lock was lost and another's has followed, may take that: then it runs in place of
// the other, not beside it.
func (l *Locker[L]) take(job string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.locks[job]
	if k == nil || k.taken {
		return nil
	}
	k.taken = true
	return k
}

// lock is a gocron.Lock.
type lock struct {
	key      string
	ctx      context.Context // of the claim
	taken    bool            // by a task
	once     sync.Once
	unlocked chan struct{} // nil: without claims
	ended    chan struct{}
	err      error
}

// Unlock gives the key up and waits for that, for which the client of the claims
// has time of its own: gocron's context has ended when the scheduler is shut down,
// and counts for nothing. The error matches fencing.ErrLost if the claim was lost
// before; gocron drops it, but a Task returns it, too.
func (k *lock) Unlock(context.Context) error {
	if k.unlocked == nil {
		return nil
	}
	k.once.Do(func() { close(k.unlocked) })
	<-k.ended
	return k.err
}

// during calls fn under a claim that somebody else holds: with the token and the
// check of the context held, until either context ends.
func during(ctx, held context.Context, fn func(ctx context.Context) error) error {
	check := func() error { return fencing.Check(held) }
	token, _ := fencing.FromContext(held)
	if err := check(); err != nil {
		return &middleware.NotRunError{Key: token.Key, Err: err}
	}
	ctx = fencing.WithCheck(fencing.NewContext(ctx, token), check)
	bound, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(held, func() { cancel(context.Cause(held)) })()
	if bound.Err() != nil {
		return &middleware.NotRunError{Key: token.Key, Err: context.Cause(bound)}
	}
	err := fn(bound)
	if lost := check(); lost != nil {
		return &doubtError{err: lost, job: err, canceled: ctx.Err() != nil}
	}
	return err
}
