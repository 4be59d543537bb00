package sched

import (
	"errors"

	"github.com/etcdclaims/claims/internal/tick"
)

// Outcome is what happened to a tick.
type Outcome = tick.Outcome

// The outcomes of ticks.
const (
	OutcomeOK          Outcome = tick.OK        // the handler returned nil
	OutcomeFailed      Outcome = tick.Failed    // the handler returned an error, panicked ("panic: ..."), or called runtime.Goexit
	OutcomeTimeout     Outcome = tick.Timeout   // the handler returned an error after its Timeout, or did not return within the drain
	OutcomeCancelled   Outcome = tick.Cancelled // the handler returned an error after Cancel or CancelRunning, or Cancel took back a waiting tick
	OutcomeInterrupted Outcome = "interrupted"  // the handler returned an error after its scheduler stopped, or while its claim was in doubt
	OutcomeLost        Outcome = tick.Lost      // the process died, or the claim was lost, before the run ended
	OutcomeSkipped     Outcome = tick.Skipped   // not run: the Overlap leaves it out: for a run in progress, for waiting ticks, or for a newer tick
	OutcomeLate        Outcome = tick.Late      // not run: past its StartDeadline
	OutcomePaused      Outcome = "paused"       // not run: due while the job was paused; one record for all ticks of the pause
	OutcomeMissed      Outcome = tick.Missed    // not run: not admitted in time, and CatchUp leaves it out

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
