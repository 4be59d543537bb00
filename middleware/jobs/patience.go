package jobs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/etcdclaims/claims/middleware"
)

// unbounded is the patience of a queue that lets a job wait forever.
const unbounded = time.Duration(math.MaxInt64)

// patience is how long a queue lets a job wait before it begins. As an error, it
// reports that the job had not begun by then.
type patience struct {
	lasts  time.Duration
	since  time.Time
	giveUp context.CancelCauseFunc
	timer  *time.Timer
	late   bool  // the key was acquired too late
	err    error // why the key could not be acquired earlier
}

func newPatience(lasts time.Duration) *patience {
	return &patience{lasts: lasts, since: time.Now().Round(0)} // without the monotonic clock: queues use the wall clock
}

// context returns the context in which the job waits and runs.
func (p *patience) context(ctx context.Context) context.Context {
	ctx, p.giveUp = context.WithCancelCause(ctx)
	p.timer = time.AfterFunc(p.lasts, func() { p.giveUp(p) })
	return ctx
}

// begin reports whether the job may begin. From then on the patience does not end
// its context. After a suspend the timer is late, so begin also compares the
// time.
func (p *patience) begin() bool {
	p.late = !p.timer.Stop() || p.lasts != unbounded && time.Now().Round(0).Sub(p.since) >= p.lasts
	return !p.late
}

// end releases the context.
func (p *patience) end() {
	p.timer.Stop()
	p.giveUp(nil)
}

// explain returns why a job was not run. If the patience ended the wait, that is
// the cause: the job was not canceled.
func (p *patience) explain(ctx context.Context, err *middleware.NotRunError) *middleware.NotRunError {
	if context.Cause(ctx) != p { //nolint:errorlint // the cause is this very value
		return err
	}
	return &middleware.NotRunError{Key: err.Key, Err: &patience{lasts: p.lasts, err: err.Err}}
}

// Error returns how long the job could wait.
func (p *patience) Error() string {
	return fmt.Sprintf("not acquired within %v, after which the queue would have given the job up", p.lasts.Round(time.Millisecond))
}

// Is matches why the key could not be acquired, but not context.Canceled: the
// queue has not canceled the job.
func (p *patience) Is(target error) bool {
	return p == target || target != context.Canceled && p.err != nil && errors.Is(p.err, target)
}

// As finds why the key could not be acquired.
func (p *patience) As(target any) bool { return p.err != nil && errors.As(p.err, target) }
