package calendar

import (
	"iter"
	"time"
)

// Schedule returns the instants at which something is due. The schedules of
// robfig/cron v3 and of River implement it, with two differences: they have their
// own rules where clocks change, and their fixed intervals count from t. Processes
// that call Next at different times therefore disagree on those intervals; use
// [Every] instead.
type Schedule interface {
	// Next returns the first instant after t, never t itself, or the zero Time if no
	// instant follows. The result must depend on t alone. Next must be safe for
	// concurrent use.
	Next(t time.Time) time.Time
}

// The bounds of all instants, in seconds of Unix time. The calendar repeats every
// 400 years, so a day that does not match from 2000 to 2399 never matches.
const (
	beginning int64 = -62135596800 // 1 January of year 1, 00:00:00 UTC: the zero Time; never due
	horizon   int64 = 13569465600  // 1 January 2400, 00:00:00 UTC; never due
)

// Must returns s, and panics if err is not nil. It is meant for schedules that are
// constants of the program:
//
//	var nightly = calendar.Must(calendar.Cron("30 2 * * *", calendar.In("Europe/Berlin")))
func Must(s Schedule, err error) Schedule {
	if err != nil {
		panic(err)
	}
	return s
}

// Between yields the instants of s after from and not after to, oldest first. It
// ends early if s returns an instant that is not after the one before.
func Between(s Schedule, from, to time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		last := from
		for t := s.Next(last); t.After(last) && !t.After(to); t = s.Next(last) {
			if !yield(t) {
				return
			}
			last = t
		}
	}
}

// clamp returns t, or the nearest time within the bounds. Nothing is due between
// the two.
func clamp(t time.Time) time.Time {
	switch sec := t.Unix(); { // unlike the methods that compare, right for every Time
	case sec < beginning:
		return time.Time{}
	case sec >= horizon:
		return time.Unix(horizon-1, 1e9-1)
	}
	return t
}
