package sched

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Retry decides about a run that fails: its handler returns an error, panics, or returns
// an error after its Timeout. The tick then waits for another attempt, with Attempt one
// greater and the same Tick.ID. Each failed attempt is recorded; Entry.Again reports
// whether another one follows. A run whose handler did not return, or whose process died,
// is not tried again by Retry; see [Guarantee].
//
// A tick that waits for another attempt is a waiting tick: Overlap decides about ticks
// that come due in the meantime, and other waiting ticks begin after it. StartDeadline and
// Cancel apply to it. It outlives its process and the owner of the group.
// Pause does not affect it.
//
// To run a tick again that has no attempt left, call Backfill, from its nominal time to a
// nanosecond later.
type Retry struct {
	// Max is how many more attempts a tick has after its run failed. Attempts of
	// AtLeastOnce do not count. At most 100. Zero means no retries.
	Max int
	// Backoff is the wait before the first of these attempts. The wait doubles before
	// each further attempt, up to 32 times Backoff. Each wait is shortened at random, by
	// at most half, so that jobs that fail together do not begin together again. Default:
	// 1 s.
	Backoff time.Duration
	// On reports whether the tick has another attempt after a run with this error. The
	// error of a panic begins with "panic: ". It must not block. Nil means after each
	// error.
	On func(err error) bool
}

const (
	mostRetries    = 100
	defaultBackoff = time.Second
	patience       = 5 // the retries after which the delay no longer grows
)

func (r Retry) check() error {
	if r.Max < 0 || r.Max > mostRetries || r.Backoff < 0 {
		return fmt.Errorf("Retry{Max: %d, Backoff: %v} is invalid; "+
			"want a Max from 0 to %d, and no negative Backoff", r.Max, r.Backoff, mostRetries)
	}
	return nil
}

// wants reports whether a run that failed with err has another attempt, after the given
// number of retries.
func (r Retry) wants(err error, retries int) (again bool) {
	if retries >= r.Max {
		return false
	}
	defer func() {
		if recover() != nil {
			again = false // a function that panics has no opinion
		}
	}()
	return r.On == nil || r.On(err)
}

// wait returns how long a tick waits after the given number of retries.
func (r Retry) wait(retries int) time.Duration {
	d := min(cmp.Or(r.Backoff, defaultBackoff), math.MaxInt64>>patience) << min(retries, patience)
	return d/2 + rand.N(d/2+1)
}
