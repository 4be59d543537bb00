package calendar

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Dates returns the calendar of some days in a time zone. A date is written as
// "2026-12-25", or as "12-25" for each year. "02-29" covers leap years only.
//
// The text of the calendar names the zone and the dates, in order. For more than ten
// dates it has their number and a hash instead.
//
// Dates returns an error if the zone is unknown or depends on the machine, as with
// [In], or if a date is invalid.
func Dates(zone string, dates ...string) (Calendar, error) {
	loc, err := LoadZone(zone)
	if err != nil {
		return nil, fmt.Errorf("calendar: Dates in zone %.100q: %w", zone, err)
	}
	set := make(map[string]bool, len(dates))
	for _, d := range dates {
		full := d
		if len(d) == len("12-25") {
			full = "2000-" + d // a leap year
		}
		if _, err := time.Parse(time.DateOnly, full); err != nil {
			return nil, fmt.Errorf("calendar: Dates: %.100q is not a date; want 2026-12-25, or 12-25 for each year", d)
		}
		set[d] = true
	}
	return namedDays{dayCalendar{loc, func(at time.Time) bool {
		date := at.Format(time.DateOnly)
		return set[date] || set[date[len("2006-"):]]
	}}, datesText(zone, set)}, nil
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
