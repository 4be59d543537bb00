package sched

import (
	"iter"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

// Schedule returns the instants at which a job is due. It has one method:
//
//	// Next returns the first instant after t, never t itself, or the zero Time
//	// if none follows. The result must depend on t alone. Next must be safe for
//	// concurrent use. If it panics, no instant follows, and the panic is logged.
//	Next(t time.Time) time.Time
//
// [Cron] and [Every] return schedules. Those of robfig/cron v3 and of River
// implement the interface too, with two differences: they have their own rules
// where clocks change, and their fixed intervals count from t, so that processes
// disagree on them. Use [Every] for fixed intervals.
type Schedule = calendar.Schedule

// CronOption is an option of [Cron]: [In], a [GapPolicy] or a [FoldPolicy].
type CronOption = calendar.CronOption

// ExprError describes a syntax error in a cron expression: the expression, the
// name of the field, the column in bytes, counted from 1, and the problem. [Cron]
// returns a *ExprError.
type ExprError = calendar.ExprError

// GapPolicy decides about the times that a clock skips when it is put forward. It
// is an option of [Cron], and applies to expressions that name times, such as
// "30 2 * * *".
type GapPolicy = calendar.GapPolicy

// The policies for gaps.
const (
	// GapFire is due once, at the first instant after the gap. It is the default.
	GapFire GapPolicy = calendar.GapFire
	// GapSkip is not due.
	GapSkip GapPolicy = calendar.GapSkip
)

// FoldPolicy decides about the times that a clock shows twice when it is put back.
// It is an option of [Cron], and applies to expressions that name times, such as
// "30 2 * * *".
type FoldPolicy = calendar.FoldPolicy

// The policies for folds.
const (
	// FoldFirst is due the first time. It is the default.
	FoldFirst FoldPolicy = calendar.FoldFirst
	// FoldLast is due the last time.
	FoldLast FoldPolicy = calendar.FoldLast
	// FoldBoth is due both times.
	FoldBoth FoldPolicy = calendar.FoldBoth
)

// Cron parses a cron expression and returns its schedule. The expression has five
// fields (minute, hour, day of month, month, day of week), or six with seconds in
// front:
//
//	30 2 * * MON-FRI    at 02:30 on weekdays
//	*/15 * * * *        every 15 minutes
//	0 18 LW * *         at 18:00 on the last weekday of each month
//	@daily              at 00:00; also @hourly, @weekly, @monthly, @yearly
//	@every 1h30m        as Every(90*time.Minute, 0)
//
// Times are UTC unless the option [In] or a prefix such as "TZ=Europe/Berlin "
// sets a zone. Cron returns an [*ExprError] if it cannot parse the expression, and
// another error if an option is invalid.
//
// [calendar.Cron] documents the whole syntax.
func Cron(expr string, options ...CronOption) (Schedule, error) {
	return calendar.Cron(expr, options...)
}

// Every returns the schedule of all instants phase + k*period after the Unix
// epoch, 1 January 1970 00:00 UTC, for all integers k. It depends on neither the
// process nor the machine. Every(time.Hour, 5*time.Minute) is due five minutes
// after each full hour of UTC. A phase of -5 minutes means five minutes before.
//
// Period and phase must be whole milliseconds, and the period at least one
// millisecond; otherwise Every returns an error.
func Every(period, phase time.Duration) (Schedule, error) {
	return calendar.Every(period, phase)
}

// In sets the time zone whose wall clock a [Cron] schedule follows, by its name in
// the tz database, such as "America/New_York". The default is "UTC".
//
// Cron returns an error if this machine does not know the zone. It also refuses
// "Local" and the other names for the zone to which a machine is set, because
// processes on different machines would disagree.
func In(zone string) CronOption { return calendar.In(zone) }

// Must returns s, and panics if err is not nil. It is meant for schedules that are
// constants of the program:
//
//	var nightly = sched.Must(sched.Cron("30 2 * * *", sched.In("Europe/Berlin")))
func Must(s Schedule, err error) Schedule { return calendar.Must(s, err) }

// Between yields the instants of s after from and not after to, oldest first. It
// ends early if s returns an instant that is not after the one before.
func Between(s Schedule, from, to time.Time) iter.Seq[time.Time] {
	return calendar.Between(s, from, to)
}

// Calendar is a set of instants, such as public holidays. [Dates] and [Days] return
// calendars; package [github.com/etcdclaims/claims/sched/calendar] documents the interface.
type Calendar = calendar.Calendar

// whole returns the schedule without the calendars of Except and Only.
func whole(s Schedule) Schedule {
	if g, is := s.(guarded); is {
		return guarded{whole(g.Schedule), g.told}
	}
	for {
		filtered, is := s.(interface{ Whole() Schedule })
		if !is {
			return s
		}
		s = filtered.Whole()
	}
}

// Dates returns the calendar of some days in a time zone. A date is written as
// "2026-12-25", or as "12-25" for each year. A range is written as
// "2026-12-24..2027-01-06" or "12-24..01-06". Dates returns an error if the zone, a date or a
// range is invalid. See [calendar.Dates].
func Dates(zone string, dates ...string) (Calendar, error) { return calendar.Dates(zone, dates...) }

// Days returns the calendar of the days in a time zone for which covers returns true. See
// [calendar.Days]. A job with such a calendar needs a Revision that changes with the
// function.
func Days(zone string, covers func(day time.Time) bool) (Calendar, error) {
	return calendar.Days(zone, covers)
}

// Except returns the instants of s that c does not cover. An instant that c covers is not
// moved to another day; it is not due. If c changes, the job has a new schedule: ticks of
// the old one are not caught up with. Other processes cannot compute when such a job is
// due, unless the job was added there, too.
func Except(s Schedule, c Calendar) Schedule { return calendar.Except(s, c) }

// Only returns the instants of s that c covers. It is otherwise like [Except].
func Only(s Schedule, c Calendar) Schedule { return calendar.Only(s, c) }

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
func newest(s Schedule, from, to time.Time, limit int) []time.Time {
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
	for t := range Between(s, from, to) {
		if len(kept) < limit {
			kept = append(kept, t)
			continue
		}
		kept[oldest] = t
		oldest = (oldest + 1) % limit
	}
	return append(kept[oldest:len(kept):len(kept)], kept[:oldest]...)
}
