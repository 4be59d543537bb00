package ical

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	goical "github.com/emersion/go-ical"
	"github.com/teambition/rrule-go"
)

// horizon is the time from which on rules have no instances.
var horizon = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	firstYear     = 1900 // in which a rule can begin
	mostInterval  = 1000 // the greatest INTERVAL of a rule
	mostPositions = 10   // in BYSETPOS; the library builds a list of days for each
	mostRules     = 1000 // in a file; a rule with few instances takes milliseconds
	lastWeek      = 51   // the library misplaces days of later weeks around New Year
)

// ruleParts has the names of the parts of a rule, with UNTIL.
var ruleParts = []string{
	"FREQ", "UNTIL", "COUNT", "INTERVAL", "WKST", "BYDAY", "BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYSETPOS",
}

// recur returns the starts by the rule. The rule is evaluated on the wall clock, as if that
// were UTC.
func (e event) recur() (all []moment, err error) {
	// The library panics for some days that no month or year has.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the rule cannot be evaluated: %v", p)
		}
	}()
	option, afterUntil, err := e.option()
	if err != nil {
		return nil, err
	}
	rule, err := rrule.NewRRule(*option)
	if err != nil {
		return nil, err
	}
	for next := rule.Iterator(); len(all) <= mostInstances; {
		wall, ok := next()
		if len(all) == 0 && (!ok || !wall.Equal(e.start.wall)) {
			return nil, errors.New("DTSTART is not an instance of the rule")
		}
		m := moment{wall: wall, zone: e.start.zone, day: e.start.day}
		if !ok || afterUntil(m) {
			break
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, errors.New("UNTIL is before DTSTART")
	}
	return all, nil
}

// option parses the rule. The function reports whether a moment is after its UNTIL.
func (e event) option() (option *rrule.ROption, afterUntil func(moment) bool, err error) {
	afterUntil = func(moment) bool { return false }
	parts := make(map[string]bool)
	var rest []string
	for part := range strings.SplitSeq(strings.TrimSuffix(e.rule, ";"), ";") {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case !slices.Contains(ruleParts, name):
			return nil, nil, fmt.Errorf("%.20s is not supported", name)
		case parts[name]:
			return nil, nil, fmt.Errorf("%s appears more than once", name)
		case value == "":
			return nil, nil, fmt.Errorf("%s is empty", name)
		case (name == "COUNT" || name == "INTERVAL") && strings.Trim(value, "0") == "":
			return nil, nil, fmt.Errorf("%s is not positive", part)
		}
		parts[name] = true
		if name != "UNTIL" {
			rest = append(rest, part)
		} else if afterUntil, err = until(value, e.start); err != nil {
			return nil, nil, err
		}
	}
	if option, err = rrule.StrToROption(strings.Join(rest, ";")); err != nil {
		return nil, nil, err
	}
	// The library looks at each value of a list once for each day.
	for _, list := range []*[]int{&option.Bymonth, &option.Bymonthday, &option.Byyearday, &option.Byweekno, &option.Bysetpos} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	slices.SortFunc(option.Byweekday, func(a, b rrule.Weekday) int { return cmp.Or(cmp.Compare(a.Day(), b.Day()), cmp.Compare(a.N(), b.N())) })
	option.Byweekday = slices.Compact(option.Byweekday)
	switch {
	case parts["UNTIL"] && parts["COUNT"]:
		return nil, nil, errors.New("UNTIL and COUNT exclude each other")
	case e.start.wall.Year() < firstYear || !e.start.wall.Before(horizon):
		return nil, nil, fmt.Errorf("DTSTART of a rule must be in the years %d to %d", firstYear, horizon.Year()-1)
	}
	if err := supported(option); err != nil {
		return nil, nil, err
	}
	if parts["BYWEEKNO"] && !parts["BYDAY"] && !parts["BYMONTHDAY"] && !parts["BYYEARDAY"] {
		option.Byweekday = []rrule.Weekday{weekdays[e.start.wall.Weekday()]}
	}
	option.Dtstart, option.Until = e.start.wall, horizon.Add(-time.Second)
	return option, afterUntil, nil
}

var weekdays = [...]rrule.Weekday{rrule.SU, rrule.MO, rrule.TU, rrule.WE, rrule.TH, rrule.FR, rrule.SA}

// supported returns an error for a rule that RFC 5545 forbids, or that the library evaluates
// slowly or in another way.
func supported(option *rrule.ROption) error {
	numbered := 0
	for _, day := range option.Byweekday {
		if day.N() != 0 {
			numbered++
		}
	}
	switch freq := option.Freq; {
	case freq > rrule.DAILY:
		return fmt.Errorf("FREQ=%v is not supported; want DAILY, WEEKLY, MONTHLY or YEARLY", freq)
	case option.Interval < 0 || option.Interval > mostInterval:
		return fmt.Errorf("INTERVAL=%d is out of range; want 1 to %d", option.Interval, mostInterval)
	case option.Count < 0:
		return fmt.Errorf("COUNT=%d is negative", option.Count)
	case len(option.Byweekno) > 0 && freq != rrule.YEARLY:
		return fmt.Errorf("BYWEEKNO is not supported with FREQ=%v", freq)
	case len(option.Byyearday) > 0 && freq != rrule.YEARLY:
		return fmt.Errorf("BYYEARDAY is not supported with FREQ=%v", freq)
	case len(option.Bymonthday) > 0 && freq == rrule.WEEKLY:
		return errors.New("BYMONTHDAY is not supported with FREQ=WEEKLY")
	case len(option.Bysetpos) > 0 && freq > rrule.MONTHLY:
		return fmt.Errorf("BYSETPOS is not supported with FREQ=%v", freq)
	case len(option.Bysetpos) > mostPositions:
		return fmt.Errorf("BYSETPOS has more than %d values", mostPositions)
	case len(option.Byweekno) > 0 && (option.Byweekno[0] < 1 || slices.Max(option.Byweekno) > lastWeek):
		return fmt.Errorf("BYWEEKNO is supported from 1 to %d", lastWeek)
	case numbered > 0 && freq > rrule.MONTHLY:
		return fmt.Errorf("numbers in BYDAY are not supported with FREQ=%v", freq)
	case numbered > 0 && len(option.Byweekno) > 0:
		return errors.New("numbers in BYDAY are not supported with BYWEEKNO")
	case numbered > 0 && numbered < len(option.Byweekday):
		return errors.New("BYDAY has days with and without numbers")
	}
	return nil
}

// until returns the function that reports whether a moment is after the UNTIL of a rule. A
// date includes the whole day.
func until(text string, start moment) (afterUntil func(moment) bool, err error) {
	last, err := moments(goical.Prop{Name: "UNTIL", Value: text}, start.zone)
	switch {
	case err != nil:
		return nil, err
	case len(last) != 1:
		return nil, fmt.Errorf("UNTIL=%.80s is not one value", text)
	case last[0].day:
		end := last[0].wall.AddDate(0, 0, 1)
		return func(m moment) bool { return !m.wall.Before(end) }, nil
	}
	end := last[0].unix()
	return func(m moment) bool { return m.unix() > end }, nil
}
