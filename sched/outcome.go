package sched

import "errors"

// Outcome is what happened to a tick.
type Outcome string

// The outcomes of ticks.
const (
	OutcomeOK          Outcome = "ok"          // the handler returned nil
	OutcomeFailed      Outcome = "failed"      // the handler returned an error
	OutcomePanicked    Outcome = "panicked"    // the handler panicked, or called runtime.Goexit
	OutcomeTimeout     Outcome = "timeout"     // the handler returned an error after its Timeout, or did not return within the drain
	OutcomeCancelled   Outcome = "cancelled"   // the handler returned an error after Cancel or CancelRunning
	OutcomeInterrupted Outcome = "interrupted" // the handler returned an error after its scheduler stopped, or while its claim was in doubt
	OutcomeLost        Outcome = "lost"        // the process died, or the claim was lost, before the run ended
	OutcomeSkipped     Outcome = "skipped"     // not run: another run was in progress, or too many ticks waited
	OutcomeWithdrawn   Outcome = "withdrawn"   // not run: Cancel took it back while it waited
	OutcomeReplaced    Outcome = "replaced"    // not run: CancelRunning preferred a newer tick
	OutcomeLate        Outcome = "late"        // not run: past its StartDeadline
	OutcomePaused      Outcome = "paused"      // not run: due while the job was paused; one record for all ticks of the pause
	OutcomeMissed      Outcome = "missed"      // not run: not admitted in time, and CatchUp leaves it out

	// OutcomeAbandoned is passed to Hooks.Finished only. The run ended, but its claim
	// was lost, so its outcome could not be recorded. The tick is recorded as lost or
	// run again.
	OutcomeAbandoned Outcome = "abandoned"
)

// bad reports whether the outcome counts for PauseOnFailure.
func (o Outcome) bad() bool {
	switch o {
	case OutcomeFailed, OutcomePanicked, OutcomeTimeout:
		return true
	}
	return false
}

// Errors of this package. Test with errors.Is.
var (
	// ErrCancelled is the cause of a handler's context that ended because the run was
	// cancelled.
	ErrCancelled = errors.New("the run was cancelled")
	// ErrStopped is the cause of a handler's context that ended because its scheduler
	// stopped.
	ErrStopped = errors.New("the scheduler was stopped")
	// ErrUnknownJob is returned when no owner of the group has registered the job, or
	// the job was removed by Forget or Undefine.
	ErrUnknownJob = errors.New("no such job")
	// ErrNotPaused is returned by Resume when the job is not paused.
	ErrNotPaused = errors.New("the job is not paused")
	// ErrPaused is returned by Pause when the job is paused already.
	ErrPaused = errors.New("the job is paused already")
	// ErrDecided is returned by ResetMark when all ticks up to the mark are decided.
	ErrDecided = errors.New("the ticks are decided already")
	// ErrNotAhead is returned by ResetMark when the high-water mark is not ahead of the clock.
	ErrNotAhead = errors.New("the high-water mark is not ahead of the clock")
	// ErrMayRepeat is returned by ResetMark when ticks may have run that would come due again.
	ErrMayRepeat = errors.New("ticks that may have run would come due again")
	// ErrStillRunning is returned by Forget when a run of the job is in progress.
	ErrStillRunning = errors.New("a run of the job is in progress")
	// ErrVersion is returned by Define and Undefine when the definition does not have the
	// version to replace: another process has changed, removed or made it.
	ErrVersion = errors.New("the definition has another version")
	// ErrRunning is returned by Run when the scheduler is running already.
	ErrRunning = errors.New("the scheduler is running already")
)
