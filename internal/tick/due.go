package tick

import (
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

// Plan is the decision that a job's schedule and policies require at one moment.
type Plan struct {
	// High is the new high-water mark, or the zero Time if nothing is due.
	High time.Time
	// Ticks are the ticks to decide about, oldest first. The last of them is High, and
	// more may be due after it. If there are none, all ticks up to High are missed.
	Ticks []time.Time
	// Late reports whether the ticks are past their StartDeadline, and so not run.
	Late bool
	// Missed is how many ticks are given up: those before the first of Ticks, or all up
	// to High if there are none.
	Missed int
}

// CountMost is how far missed ticks are counted.
const CountMost = 100_000

// Plan returns the decision about the ticks after the high-water mark at the time now,
// for at most most ticks. The work is bounded, however old the mark is.
func (j Job) Plan(high, now time.Time, grace time.Duration, most int) Plan {
	if !now.After(high) {
		return Plan{} // the clock was put back: wait
	}
	newest, ok := j.newest(high, now)
	if !ok {
		return Plan{}
	}
	first := newest
	switch j.CatchUp {
	case All:
		from := high
		if j.Window > 0 {
			// Until just before the window: a tick at its edge is in it.
			from = Later(high, now.Add(-j.Window).Add(-1))
		}
		if !from.Before(newest) {
			return Plan{High: newest, Missed: j.Count(high, newest)} // all are too old
		}
		if first = j.Schedule.Next(from); j.CountTo(from, newest, j.CatchUpMax+1) > j.CatchUpMax {
			first = j.LastOnes(from, newest, j.CatchUpMax)[0]
		}
	case SkipMissed:
		if now.Sub(j.Actual(newest)) > grace {
			return Plan{High: newest, Missed: j.Count(high, newest)}
		}
	}
	p := Plan{Missed: j.Count(high, first.Add(-1)), Late: j.TooLate(first, now)}
	for t := first; len(p.Ticks) < most && !t.After(newest) && j.TooLate(t, now) == p.Late; t = j.Schedule.Next(t) {
		if !t.After(p.High) {
			break // the schedule of another package went back, or ended
		}
		p.Ticks, p.High = append(p.Ticks, t), t
	}
	return p
}

// TooLate reports whether a tick is past its StartDeadline.
func (j Job) TooLate(nominal, now time.Time) bool {
	return j.StartDeadline > 0 && now.Sub(nominal) > j.StartDeadline
}

// newest returns the newest tick after high that should have started by now.
func (j Job) newest(high, now time.Time) (time.Time, bool) {
	kept := j.LastOnes(high, now, 2)
	for len(kept) > 0 {
		last := kept[len(kept)-1]
		if !j.Actual(last).After(now) {
			return last, true
		}
		kept = kept[:len(kept)-1] // it starts later, because of its jitter
	}
	return time.Time{}, false
}

// LastOnes returns the newest ticks after from and not after to, at most limit of
// them, oldest first. It looks back in growing steps, so that it need not visit all
// ticks of a year to find the last.
func (j Job) LastOnes(from, to time.Time, limit int) []time.Time {
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

// Count returns how many ticks are after from and not after to, up to CountMost.
func (j Job) Count(from, to time.Time) int { return j.CountTo(from, to, CountMost) }

// CountTo is count up to a limit.
func (j Job) CountTo(from, to time.Time, limit int) int {
	if !from.Before(to) {
		return 0
	}
	if s, ok := j.Schedule.(Counter); ok {
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

// CountsFast reports whether ticks can be counted without visiting each.
func (j Job) CountsFast() bool {
	_, ok := j.Schedule.(Counter)
	return ok
}

// Next returns when the job is due next, or the zero Time for never.
func (j Job) Next(high time.Time) time.Time {
	nominal := j.Schedule.Next(high)
	if nominal.IsZero() || !nominal.After(high) {
		return time.Time{}
	}
	return j.Actual(nominal)
}

// DueAfter returns the first instant after t at which the job is due, or zero if none follows.
func (j Job) DueAfter(t time.Time) time.Time {
	if next := j.Schedule.Next(t); next.After(t) {
		return next
	}
	return time.Time{}
}

// A Counter is a schedule that counts its instants without visiting each. The
// schedules of Cron and Every are counters.
type Counter interface {
	// Count returns how many instants are after from and not after to, at most
	// limit.
	Count(from, to time.Time, limit int) int
}

// newest returns the newest instants of s after from and not after to, at most
// limit of them, oldest first. It keeps at most limit instants in memory. For
// Every it takes time in proportion to limit; any other schedule is asked for each
// instant between from and to.
func newest(s calendar.Schedule, from, to time.Time, limit int) []time.Time {
	if s, ok := s.(interface {
		Newest(from, to time.Time, limit int) []time.Time
	}); ok {
		return s.Newest(from, to, limit)
	}
	if limit <= 0 {
		return nil
	}
	var kept []time.Time
	oldest := 0 // when kept is full, it is a ring
	for t := range calendar.Between(s, from, to) {
		if len(kept) < limit {
			kept = append(kept, t)
			continue
		}
		kept[oldest] = t
		oldest = (oldest + 1) % limit
	}
	return append(kept[oldest:len(kept):len(kept)], kept[:oldest]...)
}

// Later returns the later of two instants.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
