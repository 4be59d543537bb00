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
