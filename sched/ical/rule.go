package ical

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	goical "github.com/emersion/go-ical"
)

const (
	firstYear     = 1900 // in which a rule can begin
	mostInterval  = 1000 // the greatest INTERVAL of a rule
	mostPositions = 10   // in BYSETPOS
	mostRules     = 1000 // in a file
	lastWeek      = 51   // RFC 5545 and programs differ about the days of later weeks around New Year
)

// frequency is the FREQ of a rule.
type frequency string

const (
	yearly  frequency = "YEARLY"
	monthly frequency = "MONTHLY"
	weekly  frequency = "WEEKLY"
	daily   frequency = "DAILY"
)

var weekdays = map[string]time.Weekday{
	"SU": time.Sunday, "MO": time.Monday, "TU": time.Tuesday, "WE": time.Wednesday, "TH": time.Thursday,
	"FR": time.Friday, "SA": time.Saturday,
}

// rule is an RRULE. An empty set matches all days.
type rule struct {
	start     time.Time // the wall clock's
	freq      frequency
	interval  int
	count     int // 0 if the rule has no COUNT
	weekStart time.Weekday
	months    numbers
	monthDays numbers
	yearDays  numbers
	weeks     numbers
	positions numbers
	byDay     bool
	weekdays  [7]*numbers // of BYDAY; an empty set has each such day
}

// mostNumber is the greatest number in a rule's lists: days of a year.
const mostNumber = 366

// numbers is a set of numbers. Negative ones count from the end.
type numbers struct {
	in  [2*mostNumber + 1]bool
	len int
}

func (s *numbers) add(n int) {
	if !s.in[n+mostNumber] {
		s.in[n+mostNumber] = true
		s.len++
	}
}

// has reports whether the set has the one that is number n of all.
func (s *numbers) has(n, all int) bool { return s.in[n+mostNumber] || s.in[n-all-1+mostNumber] }

// numbered reports whether BYDAY has numbers.
func (r *rule) numbered() bool {
	return slices.ContainsFunc(r.weekdays[:], func(s *numbers) bool { return s != nil && s.len > 0 })
}

// parseRule parses the rule of an event that starts at a moment. The function reports
// whether a moment is after its UNTIL.
func parseRule(text string, start moment) (r *rule, afterUntil func(moment) bool, err error) {
	r = &rule{start: start.wall, interval: 1, weekStart: time.Monday}
	afterUntil = func(moment) bool { return false }
	parts := make(map[string]bool)
	for part := range strings.SplitSeq(strings.TrimSuffix(text, ";"), ";") {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case parts[name]:
			return nil, nil, fmt.Errorf("%.20s appears more than once", name)
		case value == "" && name != "":
			return nil, nil, fmt.Errorf("%.20s is empty", name)
		}
		parts[name] = true
		if name == "UNTIL" {
			afterUntil, err = until(value, start)
		} else {
			err = r.set(name, value)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	switch {
	case r.freq == "":
		return nil, nil, errors.New("FREQ is required")
	case parts["UNTIL"] && parts["COUNT"]:
		return nil, nil, errors.New("UNTIL and COUNT exclude each other")
	case start.wall.Year() < firstYear || !start.wall.Before(horizon):
		return nil, nil, fmt.Errorf("DTSTART of a rule must be in the years %d to %d", firstYear, horizon.Year()-1)
	}
	if err := r.supported(); err != nil {
		return nil, nil, err
	}
	r.complete()
	return r, afterUntil, nil
}

// set sets a part of the rule.
func (r *rule) set(name, value string) (err error) {
	var known bool
	switch name {
	case "FREQ":
		if r.freq = frequency(value); r.freq != daily && r.freq != weekly && r.freq != monthly && r.freq != yearly {
			return fmt.Errorf("FREQ=%.20s is not supported; want DAILY, WEEKLY, MONTHLY or YEARLY", value)
		}
	case "WKST":
		if r.weekStart, known = weekdays[value]; !known {
			return fmt.Errorf("WKST=%.20s is not a weekday; want one such as MO", value)
		}
	case "COUNT":
		r.count, err = positive(name, value, math.MaxInt32)
	case "INTERVAL":
		r.interval, err = positive(name, value, mostInterval)
	case "BYMONTH":
		err = r.months.addList(name, value, 1, 12)
	case "BYMONTHDAY":
		err = r.monthDays.addList(name, value, -31, 31)
	case "BYYEARDAY":
		err = r.yearDays.addList(name, value, -mostNumber, mostNumber)
	case "BYWEEKNO":
		err = r.weeks.addList(name, value, 1, lastWeek)
	case "BYSETPOS":
		err = r.positions.addList(name, value, -mostNumber, mostNumber)
	case "BYDAY":
		err = r.setWeekdays(value)
	default:
		err = fmt.Errorf("%.20s is not supported", name)
	}
	return err
}

// positive parses a number from 1 to most.
func positive(name, value string, most int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s=%.20s is out of range; want 1 to %d", name, value, most)
	}
	return n, nil
}

// addList parses a list of numbers from least to most, without 0.
func (s *numbers) addList(name, value string, least, most int) error {
	from := strconv.Itoa(least)
	if least < 0 {
		from += " to -1, or from 1"
	}
	for text := range strings.SplitSeq(value, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n == 0 || n < least || n > most {
			return fmt.Errorf("%s has the value %.20q; want numbers from %s to %d", name, text, from, most)
		}
		s.add(n)
	}
	return nil
}

// setWeekdays parses BYDAY.
func (r *rule) setWeekdays(value string) error {
	plain := false
	for text := range strings.SplitSeq(value, ",") {
		number := text[:max(len(text)-2, 0)]
		day, known := weekdays[text[len(number):]]
		if !known {
			return fmt.Errorf("BYDAY has the value %.20q; want weekdays such as MO or -1MO", text)
		}
		if r.weekdays[day] == nil {
			r.weekdays[day] = new(numbers)
		}
		if plain = plain || number == ""; number == "" {
			continue
		}
		if err := r.weekdays[day].addList("BYDAY", number, -53, 53); err != nil {
			return err
		}
	}
	if r.byDay = true; plain && r.numbered() {
		return errors.New("BYDAY has days with and without numbers")
	}
	return nil
}

// supported returns an error for a rule that RFC 5545 forbids, or about whose days programs
// differ.
func (r *rule) supported() error {
	only := func(part string) error { return fmt.Errorf("%s not supported with FREQ=%s", part, r.freq) }
	switch {
	case r.weeks.len > 0 && r.freq != yearly:
		return only("BYWEEKNO is")
	case r.yearDays.len > 0 && r.freq != yearly:
		return only("BYYEARDAY is")
	case r.monthDays.len > 0 && r.freq == weekly:
		return only("BYMONTHDAY is")
	case r.positions.len > 0 && r.freq != monthly && r.freq != yearly:
		return only("BYSETPOS is")
	case r.positions.len > mostPositions:
		return fmt.Errorf("BYSETPOS has more than %d values", mostPositions)
	case r.numbered() && r.freq != monthly && r.freq != yearly:
		return only("numbers in BYDAY are")
	case r.numbered() && r.weeks.len > 0:
		return errors.New("numbers in BYDAY are not supported with BYWEEKNO")
	}
	return nil
}

// complete adds what the rule takes from the start of its event.
func (r *rule) complete() {
	switch weeks := r.weeks.len > 0; {
	case r.byDay || r.monthDays.len+r.yearDays.len > 0 || r.freq == daily:
	case r.freq == weekly || weeks:
		r.byDay, r.weekdays[r.start.Weekday()] = true, new(numbers)
	default:
		if r.freq == yearly && r.months.len == 0 {
			r.months.add(int(r.start.Month()))
		}
		r.monthDays.add(r.start.Day())
	}
}

// until returns the function that reports whether a moment is after the UNTIL of a rule. A
// date includes the whole day.
func until(text string, start moment) (afterUntil func(moment) bool, err error) {
	last, err := zones(nil).moments(goical.Prop{Name: "UNTIL", Value: text}, start.zone)
	switch {
	case err != nil:
		return nil, err
	case len(last) != 1:
		return nil, fmt.Errorf("UNTIL=%.80s is not one value", text)
	case start.day && !last[0].day: // zones would decide whether the last day is one
		return nil, fmt.Errorf("UNTIL=%.80s is a time, and DTSTART a date", text)
	case last[0].day:
		end := last[0].wall.AddDate(0, 0, 1)
		return func(m moment) bool { return !m.wall.Before(end) }, nil
	}
	end := last[0].unix()
	return func(m moment) bool { return m.unix() > end }, nil
}
