package jobstate

import (
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched/calendar"
)

// Instants are some instants, as a calendar.
type Instants []time.Time

// Covers reports whether the instant is one of them.
func (i Instants) Covers(t time.Time) (bool, time.Time) { return i.Have(t), t.Add(1) }

// Have reports whether the instant is one of them.
func (i Instants) Have(t time.Time) bool { return slices.ContainsFunc(i, t.Equal) }

// Without returns the schedule, which may be nil, without some of its instants.
func Without(s calendar.Schedule, some Instants) calendar.Schedule {
	if s == nil || len(some) == 0 {
		return s
	}
	return calendar.Except(s, some)
}

// Has reports whether the schedule has the instant.
func Has(s calendar.Schedule, at time.Time) bool { return s.Next(at.Add(-1)).Equal(at) }

// Whole returns the schedule without the calendars of Except and Only.
func Whole(s calendar.Schedule) calendar.Schedule {
	if g, is := s.(guarded); is {
		return guarded{Whole(g.Schedule), g.panicked}
	}
	for {
		filtered, is := s.(interface{ Whole() calendar.Schedule })
		if !is {
			return s
		}
		s = filtered.Whole()
	}
}

// Text returns a schedule as text.
func Text(s calendar.Schedule) string {
	if s, ok := s.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", s)
}

// guarded is a schedule of another package, or one with a calendar of a function.
type guarded struct {
	calendar.Schedule
	panicked func(cause any)
}

// Guard returns a schedule that has no further instant where the given one panics, after it has
// called a function with the cause. A panic would end the owner of a group, and then each process
// that becomes the owner. Schedules of this module are returned as they are.
func Guard(s calendar.Schedule, panicked func(cause any)) calendar.Schedule {
	if _, ours := s.(tick.Counter); ours {
		return s
	}
	return guarded{s, panicked}
}

// Next returns the zero Time if the schedule panics.
func (g guarded) Next(t time.Time) (next time.Time) {
	defer func() {
		if p := recover(); p != nil {
			g.panicked(p)
			next = time.Time{}
		}
	}()
	return g.Schedule.Next(t)
}

// String returns the text of the schedule.
func (g guarded) String() string { return Text(g.Schedule) }
