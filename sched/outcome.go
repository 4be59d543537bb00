package sched

import "errors"

// Outcome says what became of a tick.
type Outcome string

// What becomes of ticks.
const (
	OutcomeOK          Outcome = "ok"
	OutcomeFailed      Outcome = "failed"      // the handler returned an error
	OutcomePanicked    Outcome = "panicked"    // it panicked, or called runtime.Goexit
	OutcomeTimeout     Outcome = "timeout"     // it returned an error after its Timeout
	OutcomeCancelled   Outcome = "cancelled"   // it returned an error after Cancel or CancelRunning
	OutcomeInterrupted Outcome = "interrupted" // it returned an error after its scheduler was stopped, or its claim was in doubt
	OutcomeLost        Outcome = "lost"        // its process died, or its claim was lost, before it had ended
	OutcomeSkipped     Outcome = "skipped"     // not run: another run was going on, or too many waited
	OutcomeWithdrawn   Outcome = "withdrawn"   // not run: Cancel took it back while it waited
	OutcomeReplaced    Outcome = "replaced"    // not run: CancelRunning preferred a newer one
	OutcomeLate        Outcome = "late"        // not run: past its StartDeadline
	OutcomeMissed      Outcome = "missed"      // not run: it could not be admitted in time, and CatchUp leaves it out

	// OutcomeAbandoned is told to Hooks.Finished only: the run ended, and that could
	// not be recorded since its claim was lost. The record says lost, or it is
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

// What calls can end with, and what ends contexts. Test with errors.Is.
var (
	// ErrCancelled is the cause of the end of a handler's context whose run was
	// cancelled.
	ErrCancelled = errors.New("sched: the run was cancelled")
	// ErrStopped is the cause of the end of a handler's context whose scheduler was
	// stopped.
	ErrStopped = errors.New("sched: the scheduler was stopped")
	// ErrUnknownJob says that there is no such job in the group: no owner has ever
	// had it.
	ErrUnknownJob = errors.New("sched: no such job")
	// ErrNotPaused says that the job to resume is not paused.
	ErrNotPaused = errors.New("sched: the job is not paused")
	// ErrPaused says that the job to pause is paused already.
	ErrPaused = errors.New("sched: the job is paused already")
	// ErrRunning says that Run was called for a scheduler that runs.
	ErrRunning = errors.New("sched: the scheduler runs already")
)
