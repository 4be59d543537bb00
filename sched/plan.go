package sched

import (
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

// plan is the decision that a job's schedule and policies require at one moment.
type plan struct {
	// high is the new high-water mark, or the zero Time if nothing is due.
	high time.Time
	// ticks are the ticks to decide about, oldest first. The last of them is high, and
	// more may be due after it. If ticks is empty, all ticks up to high are missed.
	ticks []time.Time
	// late reports whether the ticks are past their StartDeadline, and so not run.
	late bool
	// missed is how many ticks are given up: those before the first of ticks, or all up
	// to high if ticks is empty.
	missed int
}

// countMost is how far missed ticks are counted.
const countMost = 100_000

// plan returns the decision about the ticks after the high-water mark at the time now,
// for at most most ticks. The work is bounded, however old the mark is.
func (j Job) plan(high, now time.Time, grace time.Duration, most int) plan {
	if !now.After(high) {
		return plan{} // the clock was put back: wait
	}
	newest, ok := j.newest(high, now)
	if !ok {
		return plan{}
	}
	first := newest
	switch policy := j.CatchUp.(type) {
	case All:
		from := high
		if policy.Window > 0 {
			// Until just before the window: a tick at its edge is in it.
			from = later(high, now.Add(-policy.Window).Add(-1))
		}
		if !from.Before(newest) {
			return plan{high: newest, missed: j.count(high, newest)} // all are too old
		}
		if first = j.Schedule.Next(from); j.countTo(from, newest, policy.max()+1) > policy.max() {
			first = j.lastOnes(from, newest, policy.max())[0]
		}
	case SkipMissed:
		if now.Sub(j.actual(newest)) > grace {
			return plan{high: newest, missed: j.count(high, newest)}
		}
	}
	p := plan{missed: j.count(high, first.Add(-1)), late: j.tooLate(first, now)}
	for t := first; len(p.ticks) < most && !t.After(newest) && j.tooLate(t, now) == p.late; t = j.Schedule.Next(t) {
		if !t.After(p.high) {
			break // the schedule of another package went back, or ended
		}
		p.ticks, p.high = append(p.ticks, t), t
	}
	return p
}

// tooLate reports whether a tick is past its StartDeadline.
func (j Job) tooLate(nominal, now time.Time) bool {
	return j.StartDeadline > 0 && now.Sub(nominal) > j.StartDeadline
}

// newest returns the newest tick after high that should have started by now.
func (j Job) newest(high, now time.Time) (time.Time, bool) {
	kept := j.lastOnes(high, now, 2)
	for len(kept) > 0 {
		last := kept[len(kept)-1]
		if !j.actual(last).After(now) {
			return last, true
		}
		kept = kept[:len(kept)-1] // it starts later, because of its jitter
	}
	return time.Time{}, false
}

// lastOnes returns the newest ticks after from and not after to, at most limit of
// them, oldest first. It looks back in growing steps, so that it need not visit all
// ticks of a year to find the last.
func (j Job) lastOnes(from, to time.Time, limit int) []time.Time {
	for back := time.Minute; ; back *= 4 {
		start := to.Add(-back)
		if !start.After(from) || back > 200*365*24*time.Hour/4 {
			start = from
		}
		kept := newest(j.Schedule, start, to, limit)
		if len(kept) == limit || start.Equal(from) {
			return kept
		}
	}
}

// count returns how many ticks are after from and not after to, up to countMost.
func (j Job) count(from, to time.Time) int { return j.countTo(from, to, countMost) }

// countTo is count up to a limit.
func (j Job) countTo(from, to time.Time, limit int) int {
	if !from.Before(to) {
		return 0
	}
	if s, ok := j.Schedule.(counter); ok {
		return s.Count(from, to, limit)
	}
	n := 0
	for range calendar.Between(j.Schedule, from, to) {
		if n++; n >= limit {
			break
		}
	}
	return n
}

// countsFast reports whether ticks can be counted without visiting each.
func (j Job) countsFast() bool {
	_, ok := j.Schedule.(counter)
	return ok
}

// next returns when the job is due next, or the zero Time for never.
func (j Job) next(high time.Time) time.Time {
	nominal := j.Schedule.Next(high)
	if nominal.IsZero() || !nominal.After(high) {
		return time.Time{}
	}
	return j.actual(nominal)
}

// dueAfter returns the first instant after t at which the job is due, or zero if none follows.
func (j Job) dueAfter(t time.Time) time.Time {
	if next := j.Schedule.Next(t); next.After(t) {
		return next
	}
	return time.Time{}
}

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
