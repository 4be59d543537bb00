package sched

import (
	"fmt"
	"time"
)

// CatchUp says what happens to ticks that came due while nobody could admit
// them: [Skip], [Latest] or [All]. Nothing else is one.
type CatchUp interface{ catchUp() (string, error) }

// Overlap says what happens to a tick that comes due while a run of its job goes
// on, in whatever process: [Skip], [BufferOne], [BufferAll], [CancelRunning] or
// [Allow]. Nothing else is one.
type Overlap interface{ overlap() (string, error) }

// Skip leaves out. As a CatchUp: what could not be admitted within Config.Grace
// of the time at which it was to start is not run. As an Overlap, where it is the
// default: a tick is not run that comes due while a run of the job waits or goes
// on. Either way it is recorded.
type Skip struct{}

// Latest runs the newest missed tick, however late, and tells it how many were
// missed before it. It is the default CatchUp.
type Latest struct{}

// All runs missed ticks, the oldest first. Each is subject to the job's Overlap:
// with Skip the first would run and the others be left out, so All goes with
// BufferAll or Allow.
type All struct {
	// Max is how many are run: the newest. What is older is dropped, and
	// counted. Default: 100.
	Max int
	// Window is how old a tick may be, by its nominal time: what is older is
	// dropped, and counted. Default: no limit.
	Window time.Duration
}

// BufferOne lets one tick wait for the run that goes on. Further ones are left
// out, and recorded.
type BufferOne struct{}

// BufferAll lets ticks wait for the run that goes on, and runs them one after the
// other.
type BufferAll struct {
	// Max is how many may wait. Further ones are left out, and recorded.
	// Default: 100.
	Max int
}

// CancelRunning ends the context of the run that goes on, with ErrCancelled as
// its cause, and begins the new tick when that run's claim is gone: never on the
// request alone. A run that does not stop within a drain is shut out by its
// fence, and its claim lapses with its lease. Of ticks that wait for this only
// the newest is run.
type CancelRunning struct{}

// Allow lets runs of one job overlap. Each has a claim of its own then, and
// their fences do not order them.
type Allow struct{}

const (
	mostCaughtUp = 100_000 // of All.Max
	mostBuffered = 10_000  // of BufferAll.Max
	defaultMax   = 100
)

func (Skip) catchUp() (string, error)   { return "skip", nil }
func (Latest) catchUp() (string, error) { return "latest", nil }
func (a All) catchUp() (string, error) {
	if a.Max < 0 || a.Max > mostCaughtUp || a.Window < 0 {
		return "", fmt.Errorf("CatchUp All{Max: %d, Window: %v}: want a Max from 1 to %d, or 0 for %d, and no negative Window", a.Max, a.Window, mostCaughtUp, defaultMax)
	}
	return "all", nil
}

func (a All) max() int { return orDefault(a.Max) }

func (Skip) overlap() (string, error)          { return "skip", nil }
func (BufferOne) overlap() (string, error)     { return "buffer-one", nil }
func (CancelRunning) overlap() (string, error) { return "cancel-running", nil }
func (Allow) overlap() (string, error)         { return "allow", nil }
func (b BufferAll) overlap() (string, error) {
	if b.Max < 0 || b.Max > mostBuffered {
		return "", fmt.Errorf("Overlap BufferAll{Max: %d}: want a Max from 1 to %d, or 0 for %d", b.Max, mostBuffered, defaultMax)
	}
	return "buffer-all", nil
}

func (b BufferAll) max() int { return orDefault(b.Max) }

func orDefault(n int) int {
	if n == 0 {
		return defaultMax
	}
	return n
}

// Delivery says what happens to a run whose process died.
type Delivery int

const (
	// AtMostOnce records the run as lost: whether it did anything is not known.
	// It is the default.
	AtMostOnce Delivery = iota
	// AtLeastOnce runs the tick again, with Attempt one greater, up to
	// Job.MaxAttempts. What the handler does must bear that: pass [Tick.ID] on as
	// an idempotency key.
	AtLeastOnce
)

var deliveryNames = []string{AtMostOnce: "at-most-once", AtLeastOnce: "at-least-once"}

// String returns "at-most-once" or "at-least-once".
func (d Delivery) String() string { return policyName(deliveryNames, d) }
