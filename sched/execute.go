package sched

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/retry"
	"go.uber.org/zap"
)

// active is a run of this process.
type active struct {
	job     Job
	run     run
	tick    Tick
	claim   *etcdclaims.Claim
	ctx     context.Context
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the run has ended, and is recorded or cannot be
	next    *ready        // the next attempt of the tick, when the run has ended; nil if there is none
	outcome Outcome       // when the run has ended
	all     *jobRuns      // the active runs of the job
	stuck   atomic.Bool   // whether a note of a stuck handler was stored, or may have been
}

// jobRuns holds the runs of one job that this process has.
type jobRuns struct {
	runs     map[*active]bool // the mutex of Scheduler guards it
	counting chan struct{}    // has an element while a run counts its failure
}

// all returns the runs, also of a job that has none.
func (r *jobRuns) all() map[*active]bool {
	if r == nil {
		return nil
	}
	return r.runs
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

func (s *Scheduler) newActive(handlers context.Context, j Job, r run, cl *etcdclaims.Claim) *active {
	a := &active{job: j, run: r, claim: cl, done: make(chan struct{})}
	a.tick = Tick{
		Group: s.cfg.Group, Job: j.Name, Nominal: r.Nominal.UTC(), Actual: r.Actual.UTC(), Admitted: r.Admitted, Attempt: r.Attempt,
		Missed: r.Missed, Manual: isManual(r.ID), Fence: cl.Fence(), Trace: r.Trace, id: r.ID,
	}
	a.ctx, a.cancel = context.WithCancelCause(withTick(handlers, a.tick))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active[r.Run] = a
	delete(s.trying, r.Run)
	id := keyspace.Digest(j.Name)
	if s.activeOf[id] == nil {
		s.activeOf[id] = &jobRuns{runs: make(map[*active]bool), counting: make(chan struct{}, 1)}
	}
	a.all = s.activeOf[id]
	a.all.runs[a] = true
	if s.view != nil {
		for _, key := range []string{s.keys.Cancel(j.Name), s.keys.Newer(j.Name)} { // put before the run was registered here
			a.cancelAsked(key, s.view.Get(key))
		}
	}
	return a
}

// load returns how many runs this process has.
func (s *Scheduler) load() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.active)
}

// runs reports whether a run of this process has its claim, or is about to begin.
func (s *Scheduler) runs(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, trying := s.trying[id]; trying {
		return true
	}
	a := s.active[id]
	return a != nil && a.claim.Err() == nil
}

// neverBegun reports whether an attempt of this process is known to have called no
// handler, although it may have left a record.
func (s *Scheduler) neverBegun(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, never := s.unbegun[id]
	return never
}

func (s *Scheduler) begunNever(id string, never bool) {
	const most = 10_000 // an attempt that is forgotten is recorded as lost
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.trying, id)
	if !never {
		delete(s.unbegun, id)
		return
	}
	if len(s.unbegunIDs) >= most {
		delete(s.unbegun, s.unbegunIDs[0])
		s.unbegunIDs = s.unbegunIDs[1:]
	}
	s.unbegun[id] = struct{}{}
	s.unbegunIDs = append(s.unbegunIDs, id)
}

// tries notes an attempt in progress, until it is active or known never to have begun.
func (s *Scheduler) tries(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trying[id] = struct{}{}
}

// cancelAsked ends the contexts of the runs that began before the cancellation.
func (s *Scheduler) cancelAsked(key string, is live.KV) {
	job, _ := s.view.JobOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.activeOf[job].all() {
		a.cancelAsked(key, is)
	}
}

// cancelAsked ends the context of the run if it began before the cancellation. A newer tick
// does not cancel the runs of a backfill with Allow.
func (a *active) cancelAsked(key string, is live.KV) {
	beside := isBackfill(a.run.ID) && a.run.Parallel
	if !is.Gone && is.Rev > a.claim.Revision() && !(beside && strings.HasSuffix(key, "/newer")) {
		a.cancel(ErrCancelled)
	}
}

// execute calls the handler under the run's claim. It records the outcome before it
// gives the claim up.
func (s *Scheduler) execute(a *active, value string) {
	called := false
	defer func() {
		if !called { // the scheduler stopped, or the claim was lost, just before
			s.begunNever(a.run.Run, true)
		}
		a.cancel(nil)
		s.mu.Lock()
		delete(s.active, a.run.Run)
		id := keyspace.Digest(a.job.Name)
		if delete(a.all.runs, a); len(a.all.runs) == 0 {
			delete(s.activeOf, id)
		}
		s.mu.Unlock()
		close(a.done)
		if !s.Passthrough() && !s.view.Get(s.keys.Run(a.job.Name, a.run.ID)).Gone {
			signal(s.rescan) // the owner must settle the record
		}
	}()
	if a.ctx.Err() != nil {
		called = s.giveBack(a, value)
		_ = a.claim.Release(context.WithoutCancel(a.ctx)) // a claim that cannot be released ends with its lease
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
		s.call(ctx, a, value)
		return nil
	})
}

// call calls the handler and records its outcome, also after a panic or Goexit.
func (s *Scheduler) call(ctx context.Context, a *active, value string) {
	if hook := s.cfg.Hooks.Began; hook != nil {
		hook(a.tick)
	}
	var err error
	returned := false
	watched := s.watchHandler(ctx, a, value)
	defer func() {
		watched()
		var outcome Outcome
		if returned {
			outcome = judge(ctx, err)
		} else {
			outcome, err = OutcomeFailed, errors.New("the handler called runtime.Goexit")
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
				s.log.Error("handler panicked", append(a.fields(), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))...)
			}
		}
		s.finish(a, value, outcome, err)
	}()
	handler := Handler(a.job.Handler)
	for _, wrap := range slices.Backward(s.cfg.Middleware) {
		handler = wrap(handler)
	}
	// The process may have stood still since the claim was acquired, or in the hook.
	if err = a.claim.Check(); err == nil {
		err = handler(ctx, a.tick)
	}
	returned = true
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
	case errors.Is(cause, ErrStopped), errors.Is(cause, etcdclaims.ErrLost), errors.Is(cause, etcdclaims.ErrReleased), errors.Is(cause, etcdclaims.ErrClosed):
		return OutcomeInterrupted
	case errors.Is(cause, context.DeadlineExceeded):
		return OutcomeTimeout
	}
	return OutcomeFailed
}

// finish records how a run ended, if the run still has its claim. Otherwise the owner
// settles the run as if its process had died.
func (s *Scheduler) finish(a *active, value string, outcome Outcome, err error) {
	p := a.run.Past()
	p.Outcome, p.Fence, p.Ended = outcome, a.claim.Fence(), s.now()
	if err != nil {
		p.Error = limitText(errtext.Text(err))
	}
	a.outcome = outcome
	p.Again = outcome.Bad() && a.job.Retry.wants(err, a.run.Retries)
	p, rerr := s.recordEnd(a, value, p)
	fields := append(a.fields(), zap.Duration("took", p.Ended.Sub(p.Began)), zap.Bool("again", p.Again))
	switch {
	case rerr != nil:
		p.Outcome, p.Again = OutcomeAbandoned, false
		p.Error = limitText(fmt.Sprintf("the run ended as %s, but that could not be recorded: %v", outcome, rerr))
		s.log.Warn("end of a run not recorded", append(fields, zap.String("ended", string(outcome)), zap.Error(rerr))...)
	case outcome.Bad() && !p.Again && a.job.Retry.Max > 0:
		s.log.Error("run failed; its tick has no attempt left", append(fields, zap.String("outcome", string(outcome)), zap.Error(err))...)
	case err != nil:
		s.log.Warn("run ended with an error", append(fields, zap.String("outcome", string(outcome)), zap.Error(err))...)
	default:
		s.log.Debug("run ended", fields...)
	}
	if rerr == nil && a.next == nil {
		s.noteEnd(a.job, p)
	}
	if hook := s.cfg.Hooks.Finished; hook != nil {
		hook(entryOf(s.cfg.Group, p))
	}
}

// recordEnd replaces the record of a run in progress by the record of its outcome, which
// it returns.
func (s *Scheduler) recordEnd(a *active, value string, p past) (past, error) {
	switch {
	case p.Again:
		next := a.retried(p)
		a.next = &next
	case p.Outcome == OutcomeInterrupted && a.run.MayBeginAgain(a.job.rules()):
		next := a.run.Again(p, "was interrupted")
		a.next = &next
	}
	return s.end(a, value, p, a.next)
}

// giveBack makes a tick wait again whose handler was not called, unless the tick was
// withdrawn or replaced.
func (s *Scheduler) giveBack(a *active, value string) bool {
	p, err := s.end(a, value, past{Ended: s.now()}, &a.run.Ready)
	if err == nil && p.Outcome != "" {
		s.left(a.job, p)
	}
	return err == nil
}

// wait pauses before the next try. It returns false if the claim ends.
func (s *Scheduler) wait(a *active, try int) bool {
	return retry.PauseUnless(context.WithoutCancel(a.ctx), a.claim.Done(), try) && a.claim.Err() == nil
}
