package ical

import (
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
	firstYear    = 1900 // in which a rule can begin
	mostInterval = 1000 // the greatest INTERVAL of a rule
)

// event is a VEVENT that is not cancelled.
type event struct {
	uid      string
	instance *moment // the instance of the events with the UID that this one replaces
	start    moment
	length   length
	rule     string   // RRULE; empty if there is none
	also     []moment // RDATE
	except   []moment // EXDATE, and the instances that other events replace
}

// read returns the events of some components.
func read(components []*goical.Component, zone *time.Location) (events []event, err error) {
	replaced := make(map[string][]moment) // by UID: the instances that other events replace
	found := 0
	for _, c := range components {
		if c.Name != goical.CompEvent {
			continue
		}
		found++
		uid := strings.TrimSpace(value(c.Props, goical.PropUID))
		e, err := readEvent(c.Props, zone)
		if err == nil && e.instance != nil && uid == "" {
			err = errors.New("RECURRENCE-ID without a UID")
		}
		if err != nil {
			return nil, fmt.Errorf("event %.80q: %w", uid, err)
		}
		e.uid = uid
		if e.instance != nil {
			replaced[uid] = append(replaced[uid], *e.instance)
		}
		if strings.EqualFold(strings.TrimSpace(value(c.Props, goical.PropStatus)), string(goical.EventCancelled)) {
			continue
		}
		events = append(events, e)
	}
	if found == 0 {
		return nil, errors.New("the file has no events")
	}
	for i, e := range events {
		if e.instance == nil {
			events[i].except = append(e.except, replaced[e.uid]...)
		}
	}
	return events, nil
}

func value(props goical.Props, name string) string {
	if p := props.Get(name); p != nil {
		return p.Value
	}
	return ""
}

// readEvent reads an event.
func readEvent(props goical.Props, zone *time.Location) (e event, err error) {
	start, err := single(props, goical.PropDateTimeStart, zone)
	switch {
	case err != nil:
		return e, err
	case start == nil:
		return e, errors.New("DTSTART is missing")
	case props.Get("EXRULE") != nil:
		return e, errors.New("EXRULE is not supported")
	case len(props.Values(goical.PropRecurrenceRule)) > 1:
		return e, errors.New("more than one RRULE is not supported")
	}
	e.start = *start
	e.rule = strings.ToUpper(strings.TrimSpace(value(props, goical.PropRecurrenceRule)))
	if e.length, err = lengthOf(props, e.start, zone); err != nil {
		return e, err
	}
	for name, list := range map[string]*[]moment{goical.PropRecurrenceDates: &e.also, goical.PropExceptionDates: &e.except} {
		for _, p := range props.Values(name) {
			some, err := moments(p, zone)
			if err != nil {
				return e, err
			}
			if slices.ContainsFunc(some, func(m moment) bool { return m.day != e.start.day }) {
				return e, fmt.Errorf("DTSTART and %s are not both dates or both times", name)
			}
			*list = append(*list, some...)
		}
	}
	if e.instance, err = single(props, goical.PropRecurrenceID, zone); err != nil || e.instance == nil {
		return e, err
	}
	switch {
	case e.rule != "":
		return e, errors.New("an event with RECURRENCE-ID has an RRULE")
	case props.Get(goical.PropRecurrenceID).Params.Get(goical.ParamRange) != "":
		return e, errors.New("RANGE of RECURRENCE-ID is not supported")
	}
	return e, nil
}

// text identifies what the event says about times.
func (e event) text() string {
	list := func(all []moment) string {
		texts := make([]string, len(all))
		for i, m := range all {
			texts[i] = m.text()
		}
		slices.Sort(texts)
		return strings.Join(slices.Compact(texts), ",")
	}
	return fmt.Sprintf("%s %dD%v %s +%s -%s", e.start.text(), e.length.days, e.length.exact, e.rule, list(e.also), list(e.except))
}

// starts returns the starts of the event's instances, in no particular order. There are at
// most mostInstances+1 by the rule.
func (e event) starts() ([]moment, error) {
	all := append([]moment{e.start}, e.also...)
	if e.rule != "" {
		some, err := e.recur()
		if err != nil {
			return nil, fmt.Errorf("RRULE:%.200s: %w", e.rule, err)
		}
		all = append(some, e.also...)
	}
	except := make(map[int64]bool, len(e.except))
	for _, m := range e.except {
		except[m.unix()] = true
	}
	return slices.DeleteFunc(all, func(m moment) bool { return except[m.unix()] }), nil
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
	option, past, err := e.option()
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
		if !ok || past(m) {
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
func (e event) option() (option *rrule.ROption, past func(moment) bool, err error) {
	past = func(moment) bool { return false }
	var rest []string
	for part := range strings.SplitSeq(e.rule, ";") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "UNTIL":
			if past, err = until(value, e.start); err != nil {
				return nil, nil, err
			}
		case "COUNT", "INTERVAL":
			if strings.Trim(value, "0") == "" {
				return nil, nil, fmt.Errorf("%s is not positive", part)
			}
			rest = append(rest, part)
		case "FREQ", "WKST", "BYDAY", "BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYSETPOS":
			rest = append(rest, part)
		case "":
		default:
			return nil, nil, fmt.Errorf("%.20s is not supported", name)
		}
	}
	if option, err = rrule.StrToROption(strings.Join(rest, ";")); err != nil {
		return nil, nil, err
	}
	switch {
	case option.Freq != rrule.YEARLY && option.Freq != rrule.MONTHLY && option.Freq != rrule.WEEKLY && option.Freq != rrule.DAILY:
		return nil, nil, fmt.Errorf("FREQ=%v is not supported; want DAILY, WEEKLY, MONTHLY or YEARLY", option.Freq)
	case option.Interval < 0 || option.Interval > mostInterval:
		return nil, nil, fmt.Errorf("INTERVAL=%d is out of range; want 1 to %d", option.Interval, mostInterval)
	case option.Count < 0:
		return nil, nil, fmt.Errorf("COUNT=%d is negative", option.Count)
	case e.start.wall.Year() < firstYear || !e.start.wall.Before(horizon):
		return nil, nil, fmt.Errorf("DTSTART of a rule must be in the years %d to %d", firstYear, horizon.Year()-1)
	}
	option.Dtstart, option.Until = e.start.wall, horizon.Add(-time.Second)
	return option, past, nil
}

// until returns the function that reports whether a moment is after the UNTIL of a rule. A
// date includes the whole day.
func until(text string, start moment) (past func(moment) bool, err error) {
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
