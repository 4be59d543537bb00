package calendar

import (
	"fmt"
	"time"
)

// Calendar is a set of instants, such as the public holidays of a country. [Dates] and
// [Days] return calendars of whole days. A calendar with a String method identifies its
// content by that text, so that a scheduler detects changes; see [Except].
type Calendar interface {
	// Covers reports whether t is in the set. All instants after t and before until
	// have the same answer. A zero until means that all later instants have it. The
	// result must depend on t alone. Covers must be safe for concurrent use.
	Covers(t time.Time) (covered bool, until time.Time)
}

// Except returns the instants of s that c does not cover. An instant that c covers is
// not moved to another day; it is not due. Except panics if s or c is nil.
//
// The schedule has a String method if both s and c have one. Its text changes when c
// does. [Cron] cannot parse that text.
func Except(s Schedule, c Calendar) Schedule { return filter(s, c, false) }

// Only returns the instants of s that c covers. It is otherwise like [Except].
func Only(s Schedule, c Calendar) Schedule { return filter(s, c, true) }

// mostPeriods is how many periods of a calendar one search visits: 54 years of days.
const mostPeriods = 20_000

// filtered is the schedule of Except and Only.
type filtered struct {
	Schedule
	calendar Calendar
	keep     bool // whether covered instants are kept; otherwise they are left out
}

// namedFiltered is a filtered schedule whose text is known.
type namedFiltered struct{ filtered }

func filter(s Schedule, c Calendar, keep bool) Schedule {
	if s == nil || c == nil {
		panic("calendar: Except and Only need a schedule and a calendar")
	}
	f := filtered{s, c, keep}
	_, named := s.(fmt.Stringer)
	if _, both := c.(fmt.Stringer); named && both {
		return namedFiltered{f}
	}
	return f
}

// Next returns the first instant after t. It returns the zero Time if the next 20,000
// periods of the calendar have no instant to return: 54 years for a calendar of days.
func (f filtered) Next(t time.Time) time.Time {
	for range mostPeriods {
		next := f.Schedule.Next(t)
		if !next.After(t) {
			break
		}
		covered, until := f.calendar.Covers(next)
		switch {
		case covered == f.keep:
			return next
		case until.IsZero():
			return time.Time{}
		}
		if t = next; until.After(next) {
			t = until.Add(-1)
		}
	}
	return time.Time{}
}

// Whole returns the schedule without the calendar.
func (f filtered) Whole() Schedule { return f.Schedule }

// OnStart reports whether the schedule is @reboot.
func (f filtered) OnStart() bool {
	s, ok := f.Schedule.(interface{ OnStart() bool })
	return ok && s.OnStart()
}

// String returns "<schedule> EXCEPT <calendar>" or "<schedule> ONLY <calendar>".
func (f namedFiltered) String() string {
	word := "EXCEPT"
	if f.keep {
		word = "ONLY"
	}
	return fmt.Sprintf("%v %s %v", f.Schedule, word, f.calendar)
}
