package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/middleware"
)

// errNotLocked is returned when a task is called without the lock of its job.
var errNotLocked = errors.New("jobs: the job is not locked")

// Locker is a gocron.Locker; L is gocron.Lock. At most one run of each job,
// identified by its name, is under way across all processes. Prefer Ticks: a lock
// does not know to which tick a run belongs.
type Locker[L interface {
	Unlock(ctx context.Context) error
}] struct {
	run  func(ctx context.Context, key string, fn func(ctx context.Context) error) error // nil: without claims
	host attach.Client

	mu    sync.Mutex
	locks map[string]*lock // held by this process, by key
}

// NewLocker returns a Locker.
//
//	locker := jobs.NewLocker[gocron.Lock](claims, etcdclaims.MinHold(30*time.Second))
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(locker.Task("report", report)), gocron.WithName("report"))
//
// Pass etcdclaims.MinHold as minHold. gocron unlocks as soon as the job returns.
// Without MinHold, a process whose clock is slow or whose timer fires late would
// find the key free, and run the same tick again. Choose a duration that is
// longer than the difference between the processes' clocks, and shorter than the
// time between ticks. It counts in full seconds, at least two. Use Ticks for jobs
// that run more often than every five seconds.
//
// gocron does not ask a locker if it has an elector; a Task is then not run.
//
// NewLocker panics if it cannot make an L. If claims is a passthrough, every lock succeeds at
// once.
func NewLocker[L interface {
	Unlock(ctx context.Context) error
}](claims middleware.Claims, minHold middleware.AcquireOption, opts ...middleware.AcquireOption) *Locker[L] {
	must[L](&lock{})
	l := &Locker[L]{locks: map[string]*lock{}, host: attach.Of(claims)}
	if !passthrough.Of(claims) {
		opts = append([]middleware.AcquireOption{minHold}, opts...)
		none := passthrough.Check(claims)
		l.run = func(ctx context.Context, key string, fn func(ctx context.Context) error) error {
			if none != nil {
				return none
			}
			return claims.TryRun(ctx, key, fn, opts...)
		}
	}
	return l
}

// Lock claims the key, which is the name of a job. If the key is held, the error
// is a *middleware.NotRunError and matches fencing.ErrHeld. After any error
// gocron does not run the job.
func (l *Locker[L]) Lock(ctx context.Context, key string) (none L, _ error) {
	if l.run == nil {
		return must[L](&lock{}), nil
	}
	k := &lock{key: key, host: l.host, unlocked: make(chan struct{}), ended: make(chan struct{})}
	locked := make(chan struct{})
	go func() {
		defer close(k.ended)
		k.err = l.run(ctx, key, func(ctx context.Context) error {
			k.ctx = ctx
			l.hold(k)
			defer l.drop(k)
			close(locked)
			<-k.unlocked // even if the claim is lost: the job is still running
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

// drop removes a lock, unless a later lock of the key has replaced it after a
// loss.
func (l *Locker[L]) drop(k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locks[k.key] == k {
		delete(l.locks, k.key)
	}
}

// Task returns fn as the task of the job with the name. Give the job the same
// name with gocron.WithName: gocron does not pass the lock to its task. The
// context carries the token. It ends with the claim, or with gocron's context. If
// the lock is lost before fn returns, the error matches fencing.ErrLost. Without
// a lock fn is not called, and Task returns an error. Task panics if fn
// is nil.
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
			return fmt.Errorf("%w: %q: give the job that name with gocron.WithName, "+
				"and remove any elector, with which gocron does not ask the locker", errNotLocked, job)
		}
		return during(ctx, k.ctx, fn)
	}
}

// take returns the lock of a job for one task. If a task is late, and its lock
// was lost and followed by another, it may take the other: then it runs in place
// of the other task, not beside it.
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
	host     attach.Client
}

// Unlock releases the key, and waits until it is released. It ignores its
// context, which has ended when the scheduler shuts down; the client of the
// claims limits the wait. The error matches fencing.ErrLost if the claim was lost
// earlier. gocron drops that error. It is logged by the Logger of an *etcdclaims.Client, and a Task returns it too.
func (k *lock) Unlock(context.Context) error {
	if k.unlocked == nil {
		return nil
	}
	k.once.Do(func() { close(k.unlocked) })
	<-k.ended
	if k.err != nil {
		k.host.Warn("lock lost before its job ended", k.err, "key", k.key)
	}
	return k.err
}

// during calls fn under a claim that another goroutine holds. The context of fn
// has the token and the check of held, and ends with either context.
func during(ctx, held context.Context, fn func(ctx context.Context) error) error {
	check := func() error { return fencing.Check(held) }
	token, _ := fencing.FromContext(held)
	err := check()
	if err == nil && held.Err() != nil { // the claim drains; AfterFunc could be too late for bound
		err = context.Cause(held)
	}
	if err != nil {
		return &middleware.NotRunError{Key: token.Key, Err: err}
	}
	ctx = fencing.WithCheck(fencing.NewContext(ctx, token), check)
	bound, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(held, func() { cancel(context.Cause(held)) })()
	if bound.Err() != nil {
		return &middleware.NotRunError{Key: token.Key, Err: context.Cause(bound)}
	}
	err = fn(bound)
	if lost := check(); lost != nil {
		return &doubtError{err: lost, job: err, canceled: ctx.Err() != nil}
	}
	return err
}
