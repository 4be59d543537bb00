package calendar

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

// Dates returns the calendar of some days in a time zone. A date is written as
// "2026-12-25", or as "12-25" for each year. "02-29" covers leap years only. A range such
// as "2026-12-24..2027-01-06" or "12-24..01-06" means each of its days, from the first to the
// last. The ranges of a calendar have at most 10,000 days together.
//
// The text of the calendar names the zone and the dates, in order. For more than ten
// dates it has their number and a hash instead. A range has the text of its days.
//
// Dates returns an error if the zone is unknown or depends on the machine, as with [In].
// It also does if a date is invalid, a range ends before it begins, or the ranges have
// too many days.
func Dates(zone string, dates ...string) (Calendar, error) {
	loc, err := LoadZone(zone)
	if err != nil {
		return nil, fmt.Errorf("calendar: Dates in zone %.100q: %w", zone, err)
	}
	set := make(map[string]bool, len(dates))
	inRanges := 0
	for _, d := range dates {
		first, last, layout, err := dateRange(d)
		if err != nil {
			return nil, fmt.Errorf("calendar: Dates: %.100q %w", d, err)
		}
		if !first.Equal(last) {
			if inRanges += int(last.Sub(first)/(24*time.Hour)) + 1; last.Before(first) {
				inRanges += 366
			}
		}
		if inRanges > mostRangeDays {
			return nil, fmt.Errorf("calendar: Dates: %.100q and the ranges before it have %d days; the limit is %d", d, inRanges, mostRangeDays)
		}
		for at := range daysOf(first, last) {
			set[at.Format(layout)] = true
		}
	}
	return namedDays{dayCalendar{loc, func(at time.Time) bool {
		date := at.Format(time.DateOnly)
		return set[date] || set[date[len("2006-"):]]
	}}, datesText(zone, set)}, nil
}

// mostRangeDays is how many days the ranges of a calendar can have together.
const mostRangeDays = 10_000

// daysOf yields the days of a range. A range that ends before it begins spans the end of a
// year; all its days are yielded in the year of its first, which is a leap year.
func daysOf(first, last time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		wraps := last.Before(first)
		for at := first; yield(at) && !at.Equal(last); {
			if at = at.AddDate(0, 0, 1); wraps && at.Year() != first.Year() {
				at = at.AddDate(-1, 0, 0)
			}
		}
	}
}

// dateRange parses a date, or a range of dates. Dates of each year are in a leap year, so
// the last is before the first if the range spans the end of a year. The layout is that of
// a date.
func dateRange(text string) (first, last time.Time, layout string, err error) {
	from, to, isRange := strings.Cut(text, "..")
	if !isRange {
		to = from
	}
	layout = time.DateOnly
	var year string
	if len(from) == len("12-25") {
		layout, year = "01-02", "2000-" // a leap year
	}
	first, err = time.Parse(time.DateOnly, year+from)
	if err == nil {
		last, err = time.Parse(time.DateOnly, year+to)
	}
	switch {
	case isRange && len(from) != len(to):
		return first, last, layout, errors.New("has a year at one end only")
	case err != nil:
		return first, last, layout, errors.New("is not a date; want 2026-12-25, or 12-25 for each year, or a range such as 12-24..12-26")
	case year == "" && last.Before(first):
		return first, last, layout, errors.New("ends before it begins")
	}
	return first, last, layout, nil
}

// datesText returns the text of a calendar of dates.
func datesText(zone string, set map[string]bool) string {
	const most = 10
	all := slices.Sorted(maps.Keys(set))
	text := strings.Join(all, ",")
	if len(all) > most {
		text = fmt.Sprintf("%d dates %x", len(all), sha256.Sum256([]byte(text)))[:40]
	}
	return fmt.Sprintf("dates(%s: %s)", zone, text)
}

// Days returns the calendar of the days in a time zone for which covers returns true.
// The argument of covers is the first instant of the day that was asked about, or a
// later one, in the zone: use its date, and not its time. The result must depend on the
// date alone, and covers must be safe for concurrent use.
//
// The calendar has no text. So a [Job] with such a calendar needs a Revision, which must
// change with the function.
//
// Days returns an error if covers is nil, or if the zone is unknown or depends on the
// machine, as with [In].
//
// [Job]: https://pkg.go.dev/github.com/etcdclaims/claims/sched#Job
func Days(zone string, covers func(day time.Time) bool) (Calendar, error) {
	loc, err := LoadZone(zone)
	if err == nil && covers == nil {
		err = errors.New("the function is nil")
	}
	if err != nil {
		return nil, fmt.Errorf("calendar: Days in zone %.100q: %w", zone, err)
	}
	return dayCalendar{loc, covers}, nil
}

// dayCalendar is a calendar of whole days.
type dayCalendar struct {
	zone   *time.Location
	covers func(at time.Time) bool
}

// namedDays is a calendar of days whose text is known.
type namedDays struct {
	dayCalendar
	text string
}

func (d namedDays) String() string { return d.text }

// Covers returns the end of the day of t, or the next change of the clocks if that is
// earlier.
func (d dayCalendar) Covers(t time.Time) (covered bool, until time.Time) {
	now := spanFrom(d.zone, t.Unix())
	wall := t.Unix() + now.offset
	midnight := wall - modulo(wall, day) + day
	return d.covers(t.In(d.zone)), time.Unix(min(now.end, midnight-now.offset), 0).UTC()
}
