package sched

import (
	"cmp"
	"fmt"
	"time"
)

// CatchUp decides about missed ticks: ticks that came due while no owner could admit
// them. The policies are [SkipMissed], [Latest] and [All]. No other type implements it.
type CatchUp interface{ catchUp() (string, error) }

// Overlap decides about a tick that comes due while a run of its job is in progress
// in any process. The policies are [Skip], [BufferOne], [BufferAll], [CancelRunning]
// and [Allow]. No other type implements it.
type Overlap interface{ overlap() (string, error) }

// SkipMissed runs the newest due tick if that is admitted within Config.Grace of the time
// at which it should start. It leaves out the others, and records them.
type SkipMissed struct{}

// Skip leaves out a tick that comes due while a run of the job waits or is in progress,
// and records it. Skip is the default Overlap.
type Skip struct{}

// Latest runs the newest missed tick, however late it is. Tick.Missed is the number
// of missed ticks before it. Latest is the default CatchUp.
type Latest struct{}

// All runs missed ticks, oldest first. The job's Overlap applies to them. It must be Allow,
// or a BufferAll with a Max of at least that of All: any other, also the default, would leave
// out most of the missed ticks. Add and Define refuse it.
type All struct {
	// Max is the greatest number of missed ticks to run: the newest ones. Older ticks
	// are dropped, and counted in Tick.Missed. At most 100,000. Default: 100.
	Max int
	// Window is how old a missed tick can be, by its nominal time. Older ticks are
	// dropped, and counted in Tick.Missed. Zero means no limit.
	Window time.Duration
}

// check returns an error if the Overlap leaves out missed ticks that All is to run.
func (a All) check(overlap Overlap) error {
	name, _ := overlap.overlap()
	switch policy := overlap.(type) {
	case Allow:
		return nil
	case BufferAll:
		if policy.max() < a.max() {
			return fmt.Errorf("CatchUp All runs up to %d missed ticks, and the Overlap buffer-all lets only %d wait; "+
				"set both to the same Max", a.max(), policy.max())
		}
		return nil
	}
	if a.max() == 1 {
		return nil
	}
	return fmt.Errorf("CatchUp All runs up to %d missed ticks, and the Overlap %s would leave out most of them; "+
		"set Overlap to BufferAll or Allow, or CatchUp to Latest", a.max(), name)
}

// BufferOne lets one tick wait for the run in progress. Further ticks are left out,
// and recorded.
type BufferOne struct{}

// BufferAll lets ticks wait for the run in progress, and runs them one after the
// other.
type BufferAll struct {
	// Max is how many ticks can wait. Further ticks are left out, and recorded. At
	// most 10,000. Default: 100.
	Max int
}

// CancelRunning ends the context of the run in progress, with ErrCancelled as its
// cause. The new tick begins when the claim of that run is gone, not before. A run
// that does not stop within a drain keeps the new tick waiting until its lease has ended.
// The scheduler stops waiting for its handler, and later writes that carry its fence are
// refused. Of the ticks that wait in the meantime only the newest is run.
type CancelRunning struct{}

// Allow lets runs of one job overlap. Each run has a claim of its own. The fences of
// different ticks are not in order, and can be equal.
type Allow struct{}

const (
	mostCaughtUp = 100_000 // of All.Max
	mostBuffered = 10_000  // of BufferAll.Max
	defaultMax   = 100
)

func (SkipMissed) catchUp() (string, error) { return "skip-missed", nil }
func (Latest) catchUp() (string, error)     { return "latest", nil }
func (a All) catchUp() (string, error) {
	if a.Max < 0 || a.Max > mostCaughtUp || a.Window < 0 {
		return "", fmt.Errorf("CatchUp All{Max: %d, Window: %v} is invalid; "+
			"want a Max from 1 to %d, or 0 for %d, and no negative Window", a.Max, a.Window, mostCaughtUp, defaultMax)
	}
	return "all", nil
}

func (a All) max() int { return cmp.Or(a.Max, defaultMax) }

func (Skip) overlap() (string, error)          { return "skip", nil }
func (BufferOne) overlap() (string, error)     { return "buffer-one", nil }
func (CancelRunning) overlap() (string, error) { return "cancel-running", nil }
func (Allow) overlap() (string, error)         { return "allow", nil }
func (b BufferAll) overlap() (string, error) {
	if b.Max < 0 || b.Max > mostBuffered {
		return "", fmt.Errorf("Overlap BufferAll{Max: %d} is invalid; want a Max from 1 to %d, or 0 for %d", b.Max, mostBuffered, defaultMax)
	}
	return "buffer-all", nil
}

func (b BufferAll) max() int { return cmp.Or(b.Max, defaultMax) }

// Guarantee decides about a run whose process died.
type Guarantee int

const (
	// AtMostOnce records the run as lost. Whether its handler did its work is unknown.
	// It is the default.
	AtMostOnce Guarantee = iota
	// AtLeastOnce runs the tick again, with Attempt one greater, up to
	// Job.MaxStarts. The handler must tolerate that: pass [Tick.ID] on as an
	// idempotency key.
	AtLeastOnce
)

var guaranteeNames = []string{AtMostOnce: "at-most-once", AtLeastOnce: "at-least-once"}

// String returns "at-most-once" or "at-least-once".
func (d Guarantee) String() string {
	if int(d) < 0 || int(d) >= len(guaranteeNames) {
		return fmt.Sprintf("unknown(%d)", int(d))
	}
	return guaranteeNames[d]
}
