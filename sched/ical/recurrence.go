package ical

import (
	"errors"
	"fmt"
	"iter"
	"time"
)

// horizon is the time from which on rules have no instances.
var horizon = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// mostDays bounds what the rules of a file cost. A million days take 20 ms.
const mostDays = 10_000_000

var errTooManyDays = fmt.Errorf("the rules of the file, up to this one, span more than %d days; "+
	"let rules begin later, or end with UNTIL", mostDays)

// recurrence evaluates the rules of a file, on the wall clock. Equal rules are evaluated once.
type recurrence struct {
	known    map[string][]moment // by the rule and its start
	examined int                 // days
}

// starts returns the starts by the rule of an event, of which the caller changes none.
func (c *recurrence) starts(e event) (all []moment, err error) {
	id := e.rule + " " + e.start.text()
	if all, known := c.known[id]; known {
		return all, nil
	}
	r, afterUntil, err := parseRule(e.rule, e.start)
	if err != nil {
		return nil, err
	}
	for wall := range r.instances(&c.examined) {
		if len(all) == 0 && !wall.Equal(e.start.wall) {
			break
		}
		m := moment{wall: wall, zone: e.start.zone, day: e.start.day}
		if afterUntil(m) {
			if len(all) == 0 {
				return nil, errors.New("UNTIL is before DTSTART")
			}
			break
		}
		if all = append(all, m); len(all) == r.count || len(all) > mostInstances {
			break
		}
	}
	switch {
	case c.examined > mostDays:
		return nil, errTooManyDays
	case len(all) == 0:
		return nil, errors.New("DTSTART is not an instance of the rule")
	}
	c.known[id] = all
	return all, nil
}

// instances returns the starts by the rule from the first on, in their order, until the
// horizon or until too many days were examined.
func (r *rule) instances(examined *int) iter.Seq[time.Time] {
	year, month := r.start.Year(), r.start.Month()
	if r.freq == yearly { // positions count from the first day of the period
		month = time.January
	}
	clock := r.start.Sub(r.start.Truncate(24 * time.Hour))
	return func(yield func(time.Time) bool) {
		var period []time.Time
		for ; year < horizon.Year() && *examined <= mostDays; year, month = year+int(month)/12, month%12+1 {
			if r.hasMonth(year, month) {
				var days int
				period, days = r.appendDays(period, year, month)
				*examined += days
			}
			if r.positions.len > 0 && r.freq == yearly && month != time.December {
				continue // the period goes on
			}
			for i, date := range period {
				at := date.Add(clock)
				if at.Before(r.start) || r.positions.len > 0 && !r.positions.has(i+1, len(period)) {
					continue
				}
				if !yield(at) {
					return
				}
			}
			period = period[:0]
		}
	}
}

// hasMonth reports whether days of the month can match.
func (r *rule) hasMonth(year int, month time.Month) bool {
	years := year - r.start.Year()
	months := 12*years + int(month-r.start.Month())
	switch {
	case r.months.len > 0 && !r.months.has(int(month), 12):
		return false
	case r.freq == yearly:
		return years%r.interval == 0
	case r.freq == monthly:
		return months%r.interval == 0
	}
	return true
}

// day is a day of the calendar.
type day struct {
	day     int // of its month
	ofMonth int // how many days its month has
	yearDay int
	ofYear  int // how many days its year has
	weekday time.Weekday
	since   int // days since the start of the rule
}

// appendDays appends the days of a month that match. It also returns how many days it examined.
func (r *rule) appendDays(all []time.Time, year int, month time.Month) ([]time.Time, int) {
	first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	d := day{
		ofMonth: first.AddDate(0, 1, -1).Day(),
		yearDay: first.YearDay(),
		ofYear:  time.Date(year, time.December, 31, 0, 0, 0, 0, time.UTC).YearDay(),
		weekday: first.Weekday(),
		since:   int((first.Unix() - r.start.Truncate(24*time.Hour).Unix()) / secondsPerDay),
	}
	for d.day = 1; d.day <= d.ofMonth; d.day++ {
		if r.has(&d) {
			all = append(all, first.AddDate(0, 0, d.day-1))
		}
		d.yearDay, d.weekday, d.since = d.yearDay+1, (d.weekday+1)%7, d.since+1
	}
	return all, d.ofMonth
}

// has reports whether a day matches, of a month that can.
func (r *rule) has(d *day) bool {
	switch {
	case r.freq == daily && d.since%r.interval != 0:
	case r.freq == weekly && (d.since+daysAfter(r.weekStart, r.start.Weekday()))/7%r.interval != 0:
	case r.monthDays.len > 0 && !r.monthDays.has(d.day, d.ofMonth):
	case r.yearDays.len > 0 && !r.yearDays.has(d.yearDay, d.ofYear):
	case r.weeks.len > 0 && !r.weeks.has(r.week(d), mostNumber):
	case r.byDay && !r.hasWeekday(d):
	default:
		return true
	}
	return false
}

// week returns the number of the day's week. Week 1 has at least four days of its year.
func (r *rule) week(d *day) int {
	middle := d.yearDay + 3 - daysAfter(r.weekStart, d.weekday)
	switch {
	case middle < 1:
		return lastWeek + 1 // of the year before
	case middle > d.ofYear:
		return 1
	}
	return (middle-1)/7 + 1
}

// hasWeekday reports whether BYDAY has the day. Its numbers count the weekdays of the month,
// or those of the year for a yearly rule without BYMONTH.
func (r *rule) hasWeekday(d *day) bool {
	list := r.weekdays[d.weekday]
	if list == nil || list.len == 0 {
		return list != nil
	}
	n, all := d.day, d.ofMonth
	if r.freq == yearly && r.months.len == 0 {
		n, all = d.yearDay, d.ofYear
	}
	first, last := (n-1)/7+1, (all-n)/7+1
	return list.has(first, first+last-1)
}

// daysAfter returns how many days a weekday is after the start of its week.
func daysAfter(weekStart, is time.Weekday) int { return int(is-weekStart+7) % 7 }
