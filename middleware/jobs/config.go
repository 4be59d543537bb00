package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/middleware"
)

// Config says how jobs of a queue run under claims. The zero value refuses a job
// at once whose key is held.
type Config struct {
	// Wait is how long a job may wait in line for its key. 0: not at all.
	// Negative: as long as its context allows. It takes a worker's place while it
	// waits.
	Wait time.Duration
	// LastAttempt reports whether the queue would give a job up that is not run
	// now: then it waits for as long as its context allows. Default: never.
	LastAttempt func(ctx context.Context) bool
	// NotRun makes what the queue is told of a job that was not run, since its
	// claim was not to be had: the error matches fencing.ErrHeld if another holds
	// the key, and else says what went wrong. Return what the queue takes for
	// "later, and it does not count"; nil says that the job is done. What is
	// returned to the queue matches both, the error and what NotRun makes of it.
	// Default: the error. A key that is none is told as it is, since later it will
	// be none either.
	NotRun func(error) error
}

// IsFailure reports whether an error is one of a job that was run, or whose key
// can never be claimed: only such should count as attempts. It fits
// asynq.Config.IsFailure.
func IsFailure(err error) bool {
	var notRun *notRunError
	return err != nil && !errors.As(err, &notRun)
}

// passes reports whether claims let everything through, without etcd.
func passes(claims any) bool {
	if claims == nil {
		return true
	}
	p, ok := claims.(interface{ Passthrough() bool })
	return ok && p.Passthrough()
}

// call is a job and what is to be done for it.
type call[J, R any] struct {
	job J
	do  func(ctx context.Context) (R, error)
}

// result is what it came to. It is no error of the function that the claim is
// around: what a job's error says to its queue, such as "never again", must not be
// heard if the claim was lost.
type result[R any] struct {
	value R
	err   error
}

// exclusive returns what runs one job per key at a time.
func exclusive[J, R, O any](claims middleware.Claims[O], key func(J) string, cfg Config, opts []O) func(ctx context.Context, c call[J, R]) (R, error) {
	under := func(wait time.Duration) func(context.Context, call[J, R]) (result[R], error) {
		return middleware.Func(claims,
			func(c call[J, R]) string { return key(c.job) },
			func(ctx context.Context, c call[J, R]) (r result[R], _ error) {
				r.value, r.err = c.do(ctx)
				return r, nil
			}, middleware.FuncConfig{Wait: wait}, opts...)
	}
	run, wait := under(cfg.Wait), under(-1)
	return func(ctx context.Context, c call[J, R]) (none R, _ error) {
		run := run
		if cfg.LastAttempt != nil && cfg.LastAttempt(ctx) {
			run = wait
		}
		r, err := run(ctx, c)
		var notRun *middleware.NotRunError
		switch {
		case err == nil:
			return r.value, r.err
		case errors.As(err, &notRun):
			return none, cfg.tell(notRun)
		default:
			return none, &doubtError{err: err, job: r.err, canceled: ctx.Err() != nil}
		}
	}
}

// tell returns what the queue is told of a job that was not run.
func (cfg Config) tell(err *middleware.NotRunError) error {
	if errors.Is(err, middleware.ErrInvalidKey) {
		return err
	}
	var told error = err
	if cfg.NotRun != nil {
		if told = cfg.NotRun(err); told == nil {
			return nil
		}
	}
	return &notRunError{told: told, err: err}
}

// notRunError says that a job was not run. It is no error of the job, which may
// return a NotRunError of something that it tried.
type notRunError struct {
	told error
	err  *middleware.NotRunError
}

func (e *notRunError) Error() string {
	if errors.Is(e.told, e.err) {
		return e.told.Error()
	}
	return fmt.Sprintf("%v (%v)", e.told, e.err)
}

// Unwrap returns what the queue is told, and why.
func (e *notRunError) Unwrap() []error { return []error{e.told, e.err} }

// doubtError says that a job was run and must not be taken for done, since the
// claim was lost meanwhile. It matches what the loss does, and nothing of what the
// job itself returned.
type doubtError struct {
	err      error
	job      error
	canceled bool // the context of the job had ended, apart from the claim
}

func (e *doubtError) Error() string {
	s := "jobs: the claim was not held to the end, so that the outcome does not count: " + e.err.Error()
	if e.job != nil {
		s += "; the job returned: " + e.job.Error()
	}
	return s
}

// Is matches what the loss does, but context.Canceled only if the queue cancelled
// the job: watermill, say, does not log what does.
func (e *doubtError) Is(target error) bool {
	if target == context.Canceled {
		return e.canceled
	}
	return errors.Is(e.err, target)
}

// As finds what the loss has.
func (e *doubtError) As(target any) bool { return errors.As(e.err, target) }
