package record

import (
	"fmt"
	"slices"
	"time"
)

// begun is the record of an attempt that follows the record prev, which is nil for new work. With anew
// its attempts count from here.
func begun(prev *Record, anew bool) Record {
	r := Record{State: Claimed, Attempt: 1}
	if prev != nil {
		r.Attempt, r.Earlier, r.Error, r.Stack = prev.Attempt+1, prev.Earlier, prev.Error, prev.Stack
		if anew {
			r.Earlier = prev.Attempt
		}
	}
	return r
}

// IsOver reports whether the work is not begun now, except in one of the states of again.
func (r Record) IsOver(now time.Time, again []State) bool {
	over := r.State == Done || r.State == Dead || r.State == Failed && r.NotBefore.After(now)
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

// Buried is the record of an orphan that may not be begun again.
func (r Record) Buried(why string, now time.Time) Record {
	r.State, r.Ended, r.Error, r.Stack = Dead, now.UTC(), why, ""
	return r
}

// Failure is why an attempt has failed, and what follows.
type Failure struct {
	Error, Stack string
	Permanent    bool                            // no attempt may follow
	Limit        int                             // of attempts, no limit if not positive
	After        func(attempt int) time.Duration // how long the next attempt must wait
}

// Failed is the record of an attempt that has failed.
func (r Record) Failed(f Failure, now time.Time) Record {
	r.State, r.Error, r.Stack = Failed, limitText(f.Error, maxErrorBytes), limitText(f.Stack, maxStackBytes)
	r.Ended = now.UTC() // NotBefore counts from it, and is never before it
	if f.Permanent || f.Limit > 0 && r.tries() >= f.Limit {
		r.State = Dead
	} else {
		r.NotBefore = now.Add(f.After(r.tries())).UTC()
	}
	return r
}

// Done is the record of an attempt that has completed the work.
func (r Record) Done(result string, now time.Time) Record {
	r.State, r.Result, r.Ended, r.Error, r.Stack = Done, result, now.UTC(), "", ""
	return r
}

// GivenBack is the record of an attempt that does not count. none is true if no earlier attempt is left to record.
func (r Record) GivenBack(prev Record, now time.Time) (out Record, none bool) {
	r.State, r.Ended, r.Attempt = Free, now.UTC(), r.Attempt-1
	r.Error, r.Stack = prev.Error, prev.Stack
	return r, r.Attempt == 0
}

// Retried is the record after Runner.Retry.
func (r Record) Retried(now time.Time) Record {
	if r.State == Orphaned {
		r.Ended = now.UTC()
		if r.Error == "" {
			r.Error = "its owner is gone"
		}
	}
	r.State, r.Earlier, r.NotBefore = Free, r.Attempt, time.Time{}
	return r
}

// Lasts returns how long the work must be remembered beyond its retention.
func (r Record) Lasts() time.Duration {
	if r.State == Failed {
		return r.NotBefore.Sub(r.Ended)
	}
	return 0
}
