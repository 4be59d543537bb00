package tick

import (
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

// CatchUp is what is done about missed ticks. Package sched documents the policies.
type CatchUp int

// The policies about missed ticks.
const (
	Latest CatchUp = iota
	SkipMissed
	All // at most CatchUpMax, and those of the Window
)

// Overlap is what is done about a tick that comes due while a run is in progress. Package sched
// documents the policies.
type Overlap int

// The policies about such ticks.
const (
	Skip Overlap = iota
	BufferOne
	BufferAll // at most Buffer
	CancelRunning
	Allow
)

// Job is what decides about the ticks of a job.
type Job struct {
	Name     string
	Schedule calendar.Schedule
	Defined  int64 // the version of its definition; 0 for a job in code

	CatchUp       CatchUp
	CatchUpMax    int
	Window        time.Duration // 0 for no limit
	StartDeadline time.Duration // 0 for no limit
	Jitter        time.Duration

	Overlap Overlap
	Buffer  int

	Again          bool // AtLeastOnce: the tick of a run that is lost begins again
	MaxStarts      int
	PauseOnFailure int // 0 for never
	History        int
}

// Parallel reports whether runs of the job can overlap. Otherwise they share one claim.
func (j Job) Parallel() bool { return j.Overlap == Allow }

// NewestOnly reports whether any newer tick replaces the tick.
func (j Job) NewestOnly(id string) bool { return j.Overlap == CancelRunning && !IsBackfill(id) }

// Actual returns when the tick with the nominal time starts.
func (j Job) Actual(nominal time.Time) time.Time {
	if j.Jitter == 0 {
		return nominal
	}
	return nominal.Add(jitter(j.Name, nominal, j.Jitter, j.Schedule.Next(nominal)))
}

// First returns a tick of the job's schedule, for its first attempt.
func (j Job) First(nominal time.Time) Ready {
	return Ready{
		Version: Version, Job: j.Name, ID: NominalID(nominal), Nominal: nominal, Actual: j.Actual(nominal),
		Attempt: 1, Parallel: j.Parallel(),
	}
}
