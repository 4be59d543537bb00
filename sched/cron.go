package sched

import (
	"fmt"
	"strings"
	"time"
)

// A cron is what Cron returns, other than for @every.
type cron struct {
	second, minute, hour, month field
	days                        days
	wallClock
}

// Cron returns the schedule that an expression stands for, of five fields or,
// with seconds in front, six:
//
//	second        0-59
//	minute        0-59
//	hour          0-23
//	day of month  1-31, or L, L-3, LW, L-3W, 15W
//	month         1-12 or JAN-DEC
//	day of week   0-7 or SUN-SAT, or 5L, 5#2; both 0 and 7 are Sunday
//
// Without the field of seconds it is due at second 0. A field is a list, with
// commas, of
//
//   - all values
//     a       one value
//     a-b     all from a to b; if b is less than a, over the end: 22-2, FRI-MON
//     a-b/n   every n-th of these, beginning with a
//     a/n     every n-th from a to the end of the range above
//     */n     every n-th, beginning with the least
//
// in upper or lower case. n is at most the number of values that the field has:
// "*/90" for minutes would not be every 90 minutes. (Every and @every are.) In
// the fields of days, ? is another way to write *.
//
// # Days
//
// As in cron: if neither field of days begins with a star, one of the two must
// match; otherwise both must. So "0 0 13 * FRI" is due on each 13th and on each
// Friday, but "0 0 */2 * FRI" on Fridays with an odd date. (The star rule is
// that of Vixie cron and cronie.)
//
// These letters have the meaning they have in Quartz, but days of the week are
// counted as in cron:
//
//	L     the last day of the month
//	L-3   three days before the last: the 28th in a month of 31
//	15W   the day from Monday to Friday that is nearest to the 15th, in the same
//	      month; none in a month without that day (31W in April)
//	LW    the last day from Monday to Friday; L-3W the one nearest to L-3
//	5L    the last Friday of the month, also FRIL
//	5#2   the second Friday, also FRI#2; none in a month without (5#5)
//
// They may stand in lists: "1,15,L". What never comes, such as 30 February, is
// an error.
//
// # Names
//
//	@hourly               0 * * * *
//	@daily, @midnight     0 0 * * *
//	@weekly               0 0 * * 0
//	@monthly              0 0 1 * *
//	@yearly, @annually    0 0 1 1 *
//	@every 1h30m          Every(90*time.Minute, 0)
//	@every 1h +5m         Every(time.Hour, 5*time.Minute)
//
// @every takes what [time.ParseDuration] does. Zone and policies do not matter
// to it.
//
// # Zone and policies
//
// In front of these, with a space between, may stand TZ= or CRON_TZ= and a zone
// as for [In], GAP= and a [GapPolicy] (fire, skip), FOLD= and a [FoldPolicy]
// (first, last, both), in any order:
//
//	TZ=America/New_York FOLD=both 30 1 * * *
//
// They win over the options, which serve as defaults for expressions from a
// configuration.
//
// A fault in the expression is reported as an [*ExprError]. Errors about options
// are plain.
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

// String returns an expression with all prefixes and six fields.
func (c *cron) String() string {
	return strings.Join([]string{
		"TZ=" + c.zone.String(), "GAP=" + c.gap.String(), "FOLD=" + c.fold.String(),
		seconds.text(c.second, nil),
		minutes.text(c.minute, nil),
		hours.text(c.hour, nil),
		dates.text(c.days.date, c.days.dateItems()),
		months.text(c.month, nil),
		weekdays.text(c.days.weekday, c.days.weekdayItems()),
	}, " ")
}

// ExprError says what is wrong with a cron expression, and where.
type ExprError struct {
	Expr    string
	Field   string // such as "minute" or "TZ"; empty: the expression as a whole
	Column  int    // of Expr, in bytes: 1 is the first
	Problem string // what is wrong, and what is allowed
}

func (e *ExprError) Error() string {
	var where string
	if e.Field != "" {
		where = e.Field + ", "
	}
	return fmt.Sprintf("sched: cron %.200q: %scolumn %d: %s", e.Expr, where, e.Column, e.Problem)
}
