package work

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/errtext"
)

// What follows from the state of a record, and what a record becomes: without I/O and without a
// clock of its own.

// begun is the record of an attempt that follows the record prev, which is nil for new work. With anew
// its attempts count from here.
func begun(prev *Record, anew bool) Record {
	r := Record{State: StateClaimed, Attempt: 1}
	if prev != nil {
		r.Attempt, r.Earlier, r.Error, r.Stack = prev.Attempt+1, prev.Earlier, prev.Error, prev.Stack
		if anew {
			r.Earlier = prev.Attempt
		}
	}
	return r
}

// isOver reports whether the work is not begun now, except with Again in one of the states.
func (r Record) isOver(now time.Time, again []State) bool {
	over := r.State == StateDone || r.State == StateDead || r.State == StateFailed && r.NotBefore.After(now)
	return over && !slices.Contains(again, r.State)
}

// buries returns why an orphan may not be begun again, or "".
func (r Record) buries(limit int) string {
	switch {
	case r.AtMostOnce:
		return "its owner is gone, and it may run at most once"
	case limit > 0 && r.tries() >= limit:
		return fmt.Sprintf("its owner is gone, in the last of %d attempts", limit)
	}
	return ""
}

// buried is the record of an orphan that may not be begun again.
func (r Record) buried(why string, now time.Time) Record {
	r.State, r.Ended, r.Error, r.Stack = StateDead, now.UTC(), why, ""
	return r
}

// failed is the record of an attempt that has failed.
func (r Record) failed(cause error, cfg Config, now time.Time) Record {
	if cause == nil {
		cause = errors.New("failed without a cause")
	}
	r.State, r.Error, r.Stack = StateFailed, limitText(errtext.Text(cause), maxErrorBytes), ""
	if panicked, ok := errors.AsType[*panicError](cause); ok {
		r.Stack = limitText(string(panicked.Stack), maxStackBytes)
	}
	r.Ended = now.UTC() // NotBefore counts from it, and is never before it
	after, given := etcdclaims.RetryDelay(cause)
	switch {
	case etcdclaims.IsPermanent(cause), cfg.MaxAttempts > 0 && r.tries() >= cfg.MaxAttempts:
		r.State = StateDead
	case given:
		r.NotBefore = now.Add(after).UTC()
	default:
		r.NotBefore = now.Add(cfg.Backoff(r.tries())).UTC()
	}
	return r
}

// givenBack is the record of an attempt that does not count. none is true if no earlier attempt is left to record.
func (r Record) givenBack(prev Record, now time.Time) (out Record, none bool) {
	r.State, r.Ended, r.Attempt = StateFree, now.UTC(), r.Attempt-1
	r.Error, r.Stack = prev.Error, prev.Stack
	return r, r.Attempt == 0
}

// retried is the record after Retry.
func (r Record) retried(now time.Time) Record {
	if r.State == StateOrphaned {
		r.Ended = now.UTC()
		if r.Error == "" {
			r.Error = "its owner is gone"
		}
	}
	r.State, r.Earlier, r.NotBefore = StateFree, r.Attempt, time.Time{}
	return r
}

// lasts returns how long the work must be remembered beyond its retention.
func (r Record) lasts() time.Duration {
	if r.State == StateFailed {
		return r.NotBefore.Sub(r.Ended)
	}
	return 0
}
