package sched

import (
	"time"

	"github.com/etcdclaims/claims/internal/tick"
)

// rules returns what decides about the ticks of the job.
func (j Job) rules() tick.Job {
	is := tick.Job{
		Name: j.Name, Schedule: j.Schedule, Defined: j.defined, StartDeadline: j.StartDeadline, Jitter: j.Jitter,
		Again: j.Guarantee == AtLeastOnce, MaxStarts: j.MaxStarts, PauseOnFailure: j.PauseOnFailure, History: j.History,
	}
	switch policy := j.CatchUp.(type) {
	case SkipMissed:
		is.CatchUp = tick.SkipMissed
	case All:
		is.CatchUp, is.CatchUpMax, is.Window = tick.All, policy.max(), policy.Window
	}
	switch policy := j.Overlap.(type) {
	case BufferOne:
		is.Overlap = tick.BufferOne
	case BufferAll:
		is.Overlap, is.Buffer = tick.BufferAll, policy.max()
	case CancelRunning:
		is.Overlap = tick.CancelRunning
	case Allow:
		is.Overlap = tick.Allow
	}
	return is
}

func (j Job) plan(high, now time.Time, grace time.Duration, most int) tick.Plan {
	return j.rules().Plan(high, now, grace, most)
}

func (j Job) lastOnes(from, to time.Time, limit int) []time.Time {
	return j.rules().LastOnes(from, to, limit)
}

func (j Job) count(from, to time.Time) int { return j.rules().Count(from, to) }

func (j Job) dueAfter(t time.Time) time.Time { return j.rules().DueAfter(t) }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
