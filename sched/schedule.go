package sched

import (
	"slices"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

// whole returns the schedule without the calendars of Except and Only.
func whole(s calendar.Schedule) calendar.Schedule {
	if g, is := s.(guarded); is {
		return guarded{whole(g.Schedule), g.told}
	}
	for {
		filtered, is := s.(interface{ Whole() calendar.Schedule })
		if !is {
			return s
		}
		s = filtered.Whole()
	}
}

// has reports whether the schedule has the instant.
func has(s calendar.Schedule, at time.Time) bool { return s.Next(at.Add(-1)).Equal(at) }

// instants are some instants, as a calendar.
type instants []time.Time

func (i instants) Covers(t time.Time) (bool, time.Time) { return i.have(t), t.Add(1) }

func (i instants) have(t time.Time) bool { return slices.ContainsFunc(i, t.Equal) }

// without returns the schedule, which may be nil, without some of its instants.
func without(s calendar.Schedule, some instants) calendar.Schedule {
	if s == nil || len(some) == 0 {
		return s
	}
	return calendar.Except(s, some)
}

// A counter is a schedule that counts its instants without visiting each. The
// schedules of Cron and Every are counters.
type counter interface {
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
