package calendar

import (
	"fmt"
	"strings"
	"time"
)

// A cron is a parsed cron expression. @every makes an interval instead.
type cron struct {
	second, minute, hour, month field
	days                        days
	years                       years
	wallClock
}

// repeats reports whether the schedule follows the wall clock whatever it shows,
// instead of naming times of the day.
func (c *cron) repeats() bool { return c.minute.star || c.hour.star }

// Cron parses a cron expression and returns its schedule. The expression has
// five fields, or six with seconds in front, or seven with years at the end too:
//
//	second        0-59
//	minute        0-59
//	hour          0-23
//	day of month  1-31, or L, L-3, LW, L-3W, 15W
//	month         1-12 or JAN-DEC
//	day of week   0-7 or SUN-SAT, or 5L, 5#2; both 0 and 7 are Sunday
//	year          1970-2199
//
// Without the seconds field the schedule is due at second 0, without the years field
// in every year. A field is a comma-separated list of these items; names may be in
// lower case:
//
//	a       the value a
//	a-b     the values from a to b; if b is less than a, the range wraps: 22-2, FRI-MON
//	a-b/n   every n-th of these values, starting with a
//	a/n     every n-th value from a to the greatest value of the field
//	*       all values
//	*/n     every n-th value, starting with the least
//
// n is at most the number of values of the field. "*/90" in the minute field is
// an error, because it would not be every 90 minutes; use [Every] or @every. In
// the two day fields, ? means the same as *.
//
// # Days
//
// If either day field begins with a star, a day must match both fields. Otherwise
// it must match at least one. So "0 0 13 * FRI" is due on each 13th and on each
// Friday, and "0 0 */2 * FRI" is due on Fridays with an odd date. This is the rule
// of Vixie cron and cronie. A + in front of the days of the week demands both: "0 0
// 13 * +FRI" is due on each Friday the 13th.
//
// The letters mean the same as in Quartz, but the days of the week have the
// numbers of cron, and the letters must be upper case:
//
//	L     the last day of the month
//	L-3   three days before the last: the 28th in a month of 31
//	15W   the weekday, Monday to Friday, that is nearest to the 15th in the same
//	      month; no day in a month without that date (31W in April)
//	LW    the last weekday, Monday to Friday; L-3W is the weekday nearest to L-3
//	5L    the last Friday of the month, also FRIL, 5#L and FRI#L
//	5#2   the second Friday, also FRI#2; no day in a month without one (5#5)
//
// Lists can contain them: "1,15,L". Cron returns an error if no day can ever
// match, as for 30 February.
//
// # Names
//
//	@hourly               0 * * * *
//	@daily, @midnight     0 0 * * *
//	@weekly               0 0 * * 0
//	@monthly              0 0 1 * *
//	@yearly, @annually    0 0 1 1 *
//	@reboot               never; package sched makes it [sched.Job].RunOnStart
//	@every 1h30m          Every(90*time.Minute, 0)
//	@every 1h +5m         Every(time.Hour, 5*time.Minute)
//	@at 2027-01-01T09:00:00Z   [At] this instant, and at no other
//
// These names must be lower case. The durations of @every have the syntax of [time.ParseDuration], and the
// instant of @at that of RFC 3339. Both ignore the zone and the policies.
//
// # Zone and policies
//
// Prefixes can set the time zone and the policies: TZ= or CRON_TZ= with a zone
// as for [In], GAP= with a [GapPolicy] (fire, skip), and FOLD= with a
// [FoldPolicy] (first, last, both). They come first, in any order, with spaces
// between:
//
//	TZ=America/New_York FOLD=both 30 1 * * *
//
// A prefix overrides the option of the same meaning. Options can therefore serve
// as defaults for expressions from a configuration file.
//
// Cron returns an [*ExprError] if it cannot parse the expression, and another
// error if an option is invalid.
func Cron(expr string, options ...CronOption) (Schedule, error) {
	clock := wallClock{zone: time.UTC}
	for _, o := range options {
		if err := o.apply(&clock); err != nil {
			return nil, err
		}
	}
	p := parser{expr: expr, clock: clock}
	return p.parse()
}

// String returns the canonical expression, with all prefixes and six fields, or
// seven if it names years.
func (c *cron) String() string {
	fields := []string{
		"TZ=" + c.zone.String(), "GAP=" + c.gap.String(), "FOLD=" + c.fold.String(),
		seconds.text(c.second, nil),
		minutes.text(c.minute, nil),
		hours.text(c.hour, nil),
		dates.text(c.days.date, c.days.dateItems()),
		months.text(c.month, nil),
		c.days.plus() + weekdays.text(c.days.weekday, c.days.weekdayItems()),
	}
	if c.years.named {
		fields = append(fields, c.years.text())
	}
	return strings.Join(fields, " ")
}

// A reboot is due at no time: the start of a process is not one.
type reboot struct{}

func (reboot) Next(time.Time) time.Time { return time.Time{} }

func (reboot) Count(time.Time, time.Time, int) int { return 0 }

// OnStart reports that what has this schedule is due when it starts.
func (reboot) OnStart() bool { return true }

func (reboot) String() string { return "@reboot" }

// ExprError describes a syntax error in a cron expression, and its position.
type ExprError struct {
	Expr    string // the expression, with its prefixes
	Field   string // the name of the field, such as "minute" or "TZ"; empty if the error concerns the whole expression
	Column  int    // the position in Expr, in bytes, counted from 1
	Problem string // the fault, and the values that are allowed
}

// Error returns a message with the expression, cut off after 200 bytes, and the
// field, column and problem.
func (e *ExprError) Error() string {
	var where string
	if e.Field != "" {
		where = e.Field + ", "
	}
	return fmt.Sprintf("calendar: cron %.200q: %scolumn %d: %s", e.Expr, where, e.Column, e.Problem)
}
