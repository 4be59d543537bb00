package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/middleware"
)

// Config configures how the jobs of a queue run under claims. The zero value
// refuses a job at once if its key is held.
type Config struct {
	// Wait is how long a job waits in line for its key. Zero means that it does
	// not wait. A negative value means that it waits as long as its context and
	// its queue allow: see Asynq and River. A waiting job occupies a worker.
	Wait time.Duration
	// LastAttempt reports whether the queue would discard a job that is not run
	// now. Such a job waits as long as its context and its queue allow. Default:
	// always false.
	LastAttempt func(ctx context.Context) bool
	// RescueAfter is the RescueStuckJobsAfter of River's Config; set both to the
	// same value. River considers a job stuck after that time, and works it a
	// second time. So a job that has not begun within half of it is not run,
	// whatever Wait is; the other half is for its work. Default: one hour, as in
	// River. Asynq and Watermill ignore it.
	RescueAfter time.Duration
	// NotRun returns the error that is reported to the queue for a job that was not
	// run. Its argument matches fencing.ErrHeld if another owner holds the key, and
	// otherwise is what went wrong. Return the queue's value for "later, without
	// counting the attempt". Nil means that the job is done. The error that the
	// queue receives matches both the argument and the returned error. Default:
	// the argument. NotRun is not called for an invalid key, because a retry
	// could not succeed.
	NotRun func(error) error
}

// IsFailure reports whether an attempt counts: the job was run, or its key can
// never be claimed. Use it as asynq.Config.IsFailure.
func IsFailure(err error) bool {
	var notRun *notRunError
	return err != nil && !errors.As(err, &notRun)
}

// call is a job and the function that runs it.
type call[J, R any] struct {
	job J
	do  func(ctx context.Context) (R, error)
}

// result is the outcome of a job. It is not an error of the function under the
// claim: the meaning of a job's error for its queue, such as "never again", must
// not count if the claim was lost.
type result[R any] struct {
	value R
	err   error
}

// exclusive returns a function that runs one job per key at a time. within
// returns how long a job may wait until it begins; later its queue gives it up,
// or gives it to another worker.
func exclusive[J, R any](claims middleware.Claims, key func(J) string, cfg Config,
	within func(ctx context.Context) time.Duration, opts []middleware.AcquireOption,
) func(ctx context.Context, c call[J, R]) (R, error) {
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
		p := newPatience(within(ctx))
		do, mine := c.do, ctx
		c.do = func(ctx context.Context) (R, error) {
			if !p.begin() {
				return none, nil
			}
			return do(ctx)
		}
		ctx = p.context(ctx)
		defer p.end()
		r, err := run(ctx, c)
		var notRun *middleware.NotRunError
		switch {
		case p.late:
			return none, cfg.notRun(&middleware.NotRunError{Key: key(c.job), Err: p})
		case err == nil:
			return r.value, r.err
		case errors.As(err, &notRun):
			return none, cfg.notRun(p.explain(ctx, notRun))
		default:
			return none, &doubtError{err: err, job: r.err, canceled: mine.Err() != nil}
		}
	}
}

// notRun returns the error that the queue receives for a job that was not run.
func (cfg Config) notRun(err *middleware.NotRunError) error {
	if errors.Is(err, middleware.ErrInvalidKey) {
		return err
	}
	var reported error = err
	if cfg.NotRun != nil {
		if reported = cfg.NotRun(err); reported == nil {
			return nil
		}
	}
	return &notRunError{reported: reported, err: err}
}

// notRunError is returned for a job that was not run. A job may itself return a
// middleware.NotRunError about something that it tried, so this is another type.
type notRunError struct {
	reported error // what NotRun returned
	err      *middleware.NotRunError
}

func (e *notRunError) Error() string {
	if errors.Is(e.reported, e.err) {
		return e.reported.Error()
	}
	return fmt.Sprintf("%v (%v)", e.reported, e.err)
}

// Unwrap returns the error that is reported to the queue, and the cause.
func (e *notRunError) Unwrap() []error { return []error{e.reported, e.err} }

// doubtError is returned for a job that was run, but does not count as done, because
// its claim was lost meanwhile. It matches what the loss matches, and nothing that the
// job itself returned.
type doubtError struct {
	err      error
	job      error
	canceled bool // the job's own context had ended, not only the claim's
}

func (e *doubtError) Error() string {
	s := "jobs: the job does not count as done, because its claim was lost: " + errtext.Inner(e.err)
	if e.job != nil {
		s += "; the job returned: " + e.job.Error()
	}
	return s
}

// Is matches what the loss matches. It matches context.Canceled only if the queue
// canceled the job: watermill, for example, does not log errors that match it.
func (e *doubtError) Is(target error) bool {
	if target == context.Canceled {
		return e.canceled
	}
	return errors.Is(e.err, target)
}

// As finds what the loss has.
func (e *doubtError) As(target any) bool { return errors.As(e.err, target) }
