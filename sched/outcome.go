package sched

import (
	"errors"

	"github.com/etcdclaims/claims/internal/tick"
)

// Outcome is what happened to a tick.
type Outcome = tick.Outcome

// The outcomes of ticks.
const (
	// OutcomeOK means that the handler returned nil.
	OutcomeOK Outcome = tick.OK
	// OutcomeFailed means that the handler returned an error, panicked ("panic: ..."), or called
	// runtime.Goexit.
	OutcomeFailed Outcome = tick.Failed
	// OutcomeTimeout means that the handler returned an error after its Timeout, or did not return
	// within the drain.
	OutcomeTimeout Outcome = tick.Timeout
	// OutcomeCancelled means that the handler returned an error after Cancel or CancelRunning, or that
	// Cancel took back a waiting tick.
	OutcomeCancelled Outcome = tick.Cancelled
	// OutcomeInterrupted means that the handler returned an error after its scheduler stopped, or while
	// its claim was in doubt.
	OutcomeInterrupted Outcome = "interrupted"
	// OutcomeLost means that the process died, or the claim was lost, before the run ended.
	OutcomeLost Outcome = tick.Lost
	// OutcomeSkipped means that the tick did not run, because the Overlap left it out: for a run in
	// progress, for waiting ticks, or for a newer tick.
	OutcomeSkipped Outcome = tick.Skipped
	// OutcomeLate means that the tick did not run, because its StartDeadline had passed.
	OutcomeLate Outcome = tick.Late
	// OutcomePaused means that the tick did not run, because it was due while the job was paused. All
	// ticks of a pause have one record.
	OutcomePaused Outcome = "paused"
	// OutcomeMissed means that the tick did not run: it was not admitted in time, and CatchUp left it
	// out.
	OutcomeMissed Outcome = tick.Missed

	// OutcomeAbandoned is passed to Hooks.Finished only. The run ended, but its claim
	// was lost, so its outcome could not be recorded. The tick is recorded as lost or
	// run again.
	OutcomeAbandoned Outcome = "abandoned"
)

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
	// ErrUnchanged is returned by Pause when the job is paused already, by Resume when it is
	// not paused, and by ResetMark when there is no mark to put back.
	ErrUnchanged = errors.New("nothing to change")
	// ErrMayRepeat is returned by ResetMark when ticks may have run that would come due again.
	ErrMayRepeat = errors.New("ticks that may have run would come due again")
	// ErrStillRunning is returned by Forget when a run of the job is in progress.
	ErrStillRunning = errors.New("a run of the job is in progress")
	// ErrVersion is returned by Define and Undefine when the definition does not have the
	// version to replace: another process has changed, removed or made it.
	ErrVersion = errors.New("the definition has another version")
)
