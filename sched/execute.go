package sched

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/tick"
	"go.uber.org/zap"
)

// active is a run of this process, from the attempt to begin it on.
type active struct {
	job      Job
	run      run
	counting chan struct{} // of the job: has an element while a run counts its failure
	begun    bool          // whether it has its claim; only the goroutine of runs reads this

	// The following fields are set when it has its claim.

	value   string // the record of the run
	tick    Tick
	claim   *etcdclaims.Claim
	ctx     context.Context
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the run has ended, and is recorded or cannot be
	next    *ready        // the next attempt of the tick, when the run has ended; nil if there is none
	outcome Outcome       // when the run has ended
	stuck   atomic.Bool   // whether a note of a stuck handler was stored, or may have been
}

// runner carries out runs.
type runner struct {
	*group
	catalog  *catalog
	handlers context.Context // of runs; ends when the scheduler stops
	rescan   chan struct{}   // has an element when the owner should look for orphans
	// over is called when a run has ended, perhaps with a record although no handler was called.
	over func(a *active, never bool)
}

// drainLocal is how long a passthrough scheduler waits for handlers whose contexts
// have ended.
const drainLocal = 5 * time.Second

// over waits until the run has ended, and returns false if its claim ends first.
func (a *active) over() bool {
	gone := a.claim.Done()
	var patience <-chan time.Time
	if gone == nil { // no claim will shut the handler out
		patience = time.After(drainLocal)
	}
	select {
	case <-a.done:
		return true
	case <-gone:
		// The run itself may have just released the claim.
		patience = time.After(time.Second)
	case <-patience:
		return false
	}
	select {
	case <-a.done:
		return true
	case <-patience:
		return false
	}
}

// begins gives the run its claim, and its context.
func (a *active) begins(handlers context.Context, group string, r run, value string, cl *etcdclaims.Claim) {
	a.run, a.value, a.claim, a.done = r, value, cl, make(chan struct{})
	a.tick = Tick{
		Group: group, Job: r.Job, Nominal: r.Nominal.UTC(), Actual: r.Actual.UTC(), Admitted: r.Admitted, Attempt: r.Attempt,
		Missed: r.Missed, Manual: tick.IsManual(r.ID), Fence: cl.Fence(), Trace: r.Trace, Payload: unescaped(r.Payload), id: r.ID,
	}
	a.ctx, a.cancel = context.WithCancelCause(context.WithValue(handlers, tickKey{}, a.tick))
}

// cancelAsked ends the context of the run if it began before the cancellation. A newer tick
// does not cancel the runs of a backfill with Allow.
func (a *active) cancelAsked(key string, is live.KV) {
	beside := tick.IsBackfill(a.run.ID) && a.run.Parallel
	if !is.Gone && is.Rev > a.claim.Revision() && !(beside && strings.HasSuffix(key, "/newer")) {
		a.cancel(ErrCancelled)
	}
}

// execute calls the handler under the run's claim. It records the outcome before it
// gives the claim up.
func (x *runner) execute(a *active) {
	called := false
	x.running.Add(1)
	defer func() {
		a.cancel(nil)
		x.running.Add(-1)
		x.over(a, !called) // not if the scheduler stopped, or the claim was lost, just before
		close(a.done)
		if !x.claims.Passthrough() && !x.view.Get(x.keys.Run(a.job.Name, a.run.ID)).Gone {
			signal(x.rescan) // the owner must settle the record
		}
	}()
	if a.ctx.Err() != nil {
		called = x.giveBack(a)
		return
	}
	ctx := a.ctx
	if a.job.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.job.Timeout)
		defer cancel()
	}
	_ = a.claim.Run(ctx, func(ctx context.Context) error { // the record has the error
		called = true
		x.call(ctx, a)
		return nil
	})
}

// call calls the handler and records its outcome, also after a panic or Goexit.
func (x *runner) call(ctx context.Context, a *active) {
	if hook := x.cfg.Hooks.Began; hook != nil {
		hook(a.tick)
	}
	var err error
	returned := false
	watched := x.watchHandler(ctx, a)
	defer func() {
		watched()
		var outcome Outcome
		if returned {
			outcome = judge(ctx, err)
		} else {
			outcome, err = OutcomeFailed, errors.New("the handler called runtime.Goexit")
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
				x.log.Error("handler panicked", append(a.fields(), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))...)
			}
		}
		x.finish(a, outcome, err)
	}()
	handler := Handler(a.job.Handler)
	for _, wrap := range slices.Backward(x.cfg.Middleware) {
		handler = wrap(handler)
	}
	// The process may have stood still since the claim was acquired, or in the hook.
	if err = a.claim.Check(); err == nil {
		err = handler(ctx, a.tick)
	}
	returned = true
}

// watchHandler notes in etcd, while the run has its claim, that the handler does not
// return after its context ended. The returned function ends the watching.
func (x *runner) watchHandler(ctx context.Context, a *active) (end func()) {
	if x.claims.Passthrough() {
		return func() {}
	}
	returned := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(promptly):
			x.noteStuck(ctx, a)
		case <-returned:
		}
	})
	return sync.OnceFunc(func() { close(returned); stop() })
}

// fields returns the log fields that identify a run.
func (a *active) fields() []zap.Field {
	return []zap.Field{
		zap.String("job", a.job.Name), zap.String("tick", a.run.ID), zap.String("key", a.claim.Key()),
		zap.Int("attempt", a.run.Attempt), zap.Int64("fence", a.claim.Fence()),
	}
}

// judge returns the outcome of a handler that returned err.
func judge(ctx context.Context, err error) Outcome {
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		return OutcomeOK
	case cause == nil:
		return OutcomeFailed
	case errors.Is(cause, ErrCancelled):
		return OutcomeCancelled
	case errors.Is(cause, ErrStopped), errors.Is(cause, etcdclaims.ErrLost),
		errors.Is(cause, etcdclaims.ErrReleased), errors.Is(cause, etcdclaims.ErrClosed):
		return OutcomeInterrupted
	case errors.Is(cause, context.DeadlineExceeded):
		return OutcomeTimeout
	}
	return OutcomeFailed
}

// finish records how a run ended, if the run still has its claim. Otherwise the owner
// settles the run as if its process had died.
func (x *runner) finish(a *active, outcome Outcome, err error) {
	p := a.run.Past()
	p.Outcome, p.Fence, p.Ended = outcome, a.claim.Fence(), x.now()
	if err != nil {
		p.Error = limitText(errtext.Text(err))
	}
	a.outcome = outcome
	p.Again = outcome.Bad() && a.job.Retry.wants(err, a.run.Retries)
	p, rerr := x.recordEnd(a, p)
	fields := append(a.fields(), zap.Duration("took", p.Ended.Sub(p.Began)), zap.Bool("again", p.Again))
	switch {
	case rerr != nil:
		p.Outcome, p.Again = OutcomeAbandoned, false
		p.Error = limitText(fmt.Sprintf("the run ended as %s, but that could not be recorded: %v", outcome, rerr))
		x.log.Warn("end of a run not recorded", append(fields, zap.String("ended", string(outcome)), zap.Error(rerr))...)
	case outcome.Bad() && !p.Again && a.job.Retry.Max > 0:
		x.log.Error("run failed; its tick has no attempt left", append(fields, zap.String("outcome", string(outcome)), zap.Error(err))...)
	case err != nil:
		x.log.Warn("run ended with an error", append(fields, zap.String("outcome", string(outcome)), zap.Error(err))...)
	default:
		x.log.Debug("run ended", fields...)
	}
	if rerr == nil && a.next == nil {
		x.noteEnd(a.job, p)
	}
	if hook := x.cfg.Hooks.Finished; hook != nil {
		hook(entryOf(x.cfg.Group, p))
	}
}

// recordEnd replaces the record of a run in progress by the record of its outcome, which
// it returns.
func (x *runner) recordEnd(a *active, p past) (past, error) {
	switch {
	case p.Again:
		a.next = new(a.retried(p))
	case p.Outcome == OutcomeInterrupted && a.run.MayBeginAgain(a.job.rules):
		a.next = new(a.run.Again(p, "was interrupted"))
	}
	return x.end(context.WithoutCancel(a.ctx), a, p, a.next)
}

// retried returns the tick for its next attempt after a run that failed as p. The wait is
// stored as an instant and as a duration, so that a wrong clock cannot make it longer.
func (a *active) retried(p past) ready {
	next := a.run.Again(p, "failed")
	next.Last = nil // it is recorded
	next.Wait = a.job.Retry.wait(next.Retries)
	next.Retries++
	next.After = p.Ended.Add(next.Wait)
	return next
}

// giveBack makes a tick wait again whose handler was not called, unless the tick was
// withdrawn or replaced, and gives the claim up. Once the scheduler stops, it takes at most one
// drain. Then the owner settles the run as if its process had died.
func (x *runner) giveBack(a *active) bool {
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.ctx))
	defer context.AfterFunc(x.handlers, func() { time.AfterFunc(core.Of(x.claims).Drain(), cancel) })()
	p, err := x.end(ctx, a, past{Ended: x.now()}, &a.run.Ready)
	if err == nil && p.Outcome != "" {
		x.left(a.job, p)
	}
	release := func(context.Context) { defer cancel(); _ = a.claim.Release(ctx) } // one that cannot be released ends with its lease
	switch {
	case ctx.Err() == nil || x.claims.Passthrough():
		release(ctx)
	case !core.Of(x.claims).Go(release): // which takes a time of its own
		cancel() // Close releases it
	}
	return err == nil
}
