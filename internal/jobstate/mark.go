package jobstate

import (
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched/calendar"
)

const (
	// Slack is how long after the TTL of the owner a tick that is due may be undecided: a
	// take-over, and a round of the new owner. A mark may be ahead of the clock for as long.
	Slack = 5 * time.Second
	// unknownAhead is how far a mark can be ahead of the clock of a process that does not know
	// the schedule.
	unknownAhead = time.Hour
	// mostDecided is how many ticks after a mark that was put back can be decided.
	mostDecided = 100
)

// Ahead returns how far a mark is ahead of the clock, and zero unless two instants of the
// schedule are in between. A single one may have run a little early, by a clock that is fast.
func Ahead(s calendar.Schedule, high, now time.Time) time.Duration {
	by := high.Sub(now)
	if by <= Slack {
		return 0
	}
	if s == nil {
		return max(0, by-unknownAhead)
	}
	first := s.Next(now)
	if second := s.Next(first); !first.After(now) || !second.After(first) || second.After(high) {
		return 0
	}
	return by
}

// AheadBy describes a mark that is ahead of the clock.
func (st State) AheadBy(by time.Duration) string {
	return fmt.Sprintf("the high-water mark %s is ahead of the clock by %v, and no tick runs before it: "+
		"the clock of an owner was ahead, or this one is behind; if this one is right, reset the mark", Stamp(st.High), by.Round(time.Second))
}

// Overtaken explains a tick that is before a mark that is ahead of the clock and may have no record:
// then it was decided before it came due, and does not run. It returns an empty text of any other.
func (st State) Overtaken(nominal, now time.Time, schedule calendar.Schedule) string {
	schedule = Without(schedule, st.Reset.Decided)
	by := Ahead(schedule, st.High, now)
	older := !st.Spec.Since.After(now) && !nominal.After(st.Spec.Since) // than this revision of the schedule
	if by == 0 || older || st.Paused != nil || schedule == nil || !Has(schedule, nominal) {
		return ""
	}
	return "not run: " + st.AheadBy(by)
}

// IsRecorded reports whether the scheduled tick has a record of its own.
func IsRecorded(records []tick.Past, nominal time.Time) bool {
	return slices.ContainsFunc(records, func(p tick.Past) bool {
		return p.Nominal.Equal(nominal) && !tick.IsManual(p.ID) && p.Outcome != tick.Missed
	})
}

// Reset is how far a mark can go back.
type Reset struct {
	From, To  time.Time
	Decided   Instants // the ticks after To that are decided, oldest first
	MayRepeat bool     // whether another tick after To may have run
}

// settled is a scheduled tick that is decided, as a record or a live key shows.
type settled struct {
	at     time.Time
	missed int  // the ticks before it that are known to have been given up
	whole  bool // whether it is itself one of those
}

// PlanReset computes how far the mark of a job can go back. It returns false if all ticks up to the
// mark are decided. The records are read after the state, so that a tick that ends in between is
// found.
func (st State) PlanReset(schedule calendar.Schedule, records []tick.Past, now time.Time) (is Reset, any bool) {
	j := tick.Job{Schedule: Without(schedule, st.Reset.Decided)}
	for _, nominal := range st.Reset.Decided {
		if nominal.After(now) {
			is.Decided = append(is.Decided, nominal)
		}
	}
	// Between two settled ticks nothing ran if the later one counts all of them as missed.
	var doubt time.Time // up to which a tick may have run
	prev := st.Spec.Born
	if st.High.Before(prev) {
		prev = st.High
	}
	prev = tick.Later(now, prev)
	for _, t := range append(st.settled(records, now), settled{at: st.High, whole: true}) {
		to := t.at
		if !t.whole {
			to = to.Add(-1)
			if Has(j.Schedule, t.at) {
				is.Decided = append(is.Decided, t.at)
			}
		}
		if n := j.Count(prev, to); n > t.missed || n >= tick.CountMost {
			doubt = to
		}
		prev = tick.Later(prev, t.at)
	}
	slices.SortFunc(is.Decided, time.Time.Compare)
	is.From, is.To = st.High, now
	if most := len(is.Decided) - mostDecided; most > 0 {
		is.To, is.Decided = is.Decided[most-1], is.Decided[most:]
	}
	next := tick.Job{Schedule: Without(schedule, is.Decided)}.DueAfter(is.To)
	is.MayRepeat = doubt.After(is.To)
	return is, !next.IsZero() && !next.After(st.High)
}

// settled returns the decided ticks after now and up to the mark, oldest first.
func (st State) settled(records []tick.Past, now time.Time) (all []settled) {
	at := make(map[time.Time]settled)
	add := func(id string, nominal time.Time, admitted int64, missed int, whole bool) {
		if tick.IsManual(id) || !nominal.After(now) || nominal.After(st.High) {
			return
		}
		if !nominal.After(st.Spec.Since) || admitted < st.ResetRev {
			missed = 0 // it counts ticks of another schedule, or of before the mark was put back
		}
		nominal = nominal.UTC()
		was, known := at[nominal]
		at[nominal] = settled{nominal, max(missed, was.missed), whole && (!known || was.whole)}
	}
	for _, w := range st.Waiting {
		add(w.ID, w.Nominal, w.AdmittedAt(), w.Missed, false)
	}
	for _, r := range st.Running {
		add(r.ID, r.Nominal, r.Admitted, r.Missed, false)
	}
	for _, p := range records {
		if p.Outcome == tick.Cancelled {
			p.Missed = 0 // it can count ticks that were admitted
		}
		add(p.ID, p.Nominal, p.Admitted, p.Missed, p.Outcome == tick.Missed || p.Outcome == paused)
	}
	for _, t := range at {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b settled) int { return a.at.Compare(b.at) })
	return all
}
