package sched

import (
	"time"
)

// due is what a job's schedule and its policies ask for at one moment.
type due struct {
	// high is what the high-water mark becomes, the zero Time if nothing is due.
	high time.Time
	// run is the nominal time of the tick to admit, if any. One that is not the
	// newest leaves others due.
	run time.Time
	// missed is how many ticks before it, or before high, are given up.
	missed int
	// late says that high is a tick past its StartDeadline, and so not run.
	late bool
}

// countMost is how far missed ticks are counted.
const countMost = 100_000

// due says what is to be done about the ticks after the high-water mark, at the
// time now. How many ticks it looks at is bounded, however long ago the mark is.
func (j Job) due(high, now time.Time, grace time.Duration) due {
	if !now.After(high) {
		return due{} // the clock was put back: wait
	}
	newest, ok := j.newest(high, now)
	if !ok {
		return due{}
	}
	pick := newest
	switch policy := j.CatchUp.(type) {
	case All:
		from := high
		if policy.Window > 0 {
			// Until just before the window: a tick at its edge is in it.
			from = later(high, now.Add(-policy.Window).Add(-1))
		}
		if kept := j.lastOnes(from, newest, policy.max()); len(kept) > 0 {
			pick = kept[0]
		} else {
			return due{high: newest, missed: j.count(high, newest)} // all are too old
		}
	case Skip:
		if now.Sub(j.actual(newest)) > grace {
			return due{high: newest, missed: j.count(high, newest)}
		}
	}
	d := due{high: pick, run: pick, missed: j.count(high, pick.Add(-1))}
	if j.tooLate(pick, now) {
		d.run, d.late = time.Time{}, true
	}
	return d
}

// tooLate reports whether a tick may not start any more.
func (j Job) tooLate(nominal, now time.Time) bool {
	return j.StartDeadline > 0 && now.Sub(nominal) > j.StartDeadline
}

// newest returns the newest tick after high that is to start by now.
func (j Job) newest(high, now time.Time) (time.Time, bool) {
	kept := j.lastOnes(high, now, 2)
	for len(kept) > 0 {
		last := kept[len(kept)-1]
		if !j.actual(last).After(now) {
			return last, true
		}
		kept = kept[:len(kept)-1] // its jitter is not over
	}
	return time.Time{}, false
}

// lastOnes returns the newest ticks after from and not after to, at most limit of
// them, oldest first. It looks back in steps that grow, so that it does not pass
// all ticks of a year to find the last.
func (j Job) lastOnes(from, to time.Time, limit int) []time.Time {
	for back := time.Minute; ; back *= 4 {
		start := to.Add(-back)
		if !start.After(from) || back > 200*365*24*time.Hour/4 {
			start = from
		}
		kept, _ := newest(j.Schedule, start, to, limit)
		if len(kept) == limit || start.Equal(from) {
			return kept
		}
	}
}

// count returns how many ticks are after from and not after to, up to countMost.
func (j Job) count(from, to time.Time) int {
	n := 0
	for range Between(j.Schedule, from, to) {
		if n++; n == countMost {
			break
		}
	}
	return n
}

// next returns when the job is to be looked at again, the zero Time for never.
func (j Job) next(high time.Time) time.Time {
	nominal := j.Schedule.Next(high)
	if nominal.IsZero() || !nominal.After(high) {
		return time.Time{}
	}
	return j.actual(nominal)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
