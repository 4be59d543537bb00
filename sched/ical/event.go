package ical

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	goical "github.com/emersion/go-ical"
)

// event is a VEVENT that is not cancelled.
type event struct {
	uid      string
	instance *moment // the instance of the events with the UID that this one replaces
	start    moment
	length   length
	rule     string   // RRULE; empty means that the event does not repeat
	rdates   []moment // RDATE
	except   []moment // EXDATE, and the instances that other events replace
}

// read returns the events of some components.
func read(components []*goical.Component, zone *time.Location) (events []event, err error) {
	type identity struct {
		uid      string
		replaces bool
		instance int64
	}
	seen := make(map[identity]bool)
	replaced := make(map[string][]moment) // by UID: the instances that other events replace
	zones := make(zones)
	found, rules := 0, 0
	for _, c := range components {
		if c.Name != goical.CompEvent {
			continue
		}
		found++
		uid := strings.TrimSpace(value(c.Props, goical.PropUID))
		e, err := zones.readEvent(c.Props, zone)
		if err == nil && e.instance != nil && uid == "" {
			err = errors.New("RECURRENCE-ID without a UID")
		}
		id := identity{uid: uid, replaces: e.instance != nil}
		if id.replaces {
			id.instance = e.instance.unix()
		}
		if e.rule != "" {
			rules++
		}
		switch {
		case err != nil:
		case uid != "" && seen[id]: // SEQUENCE is not compared
			err = errors.New("another event of the file has the same UID and RECURRENCE-ID")
		case rules > mostRules:
			err = fmt.Errorf("more than %d events of the file have an RRULE", mostRules)
		}
		if err != nil {
			return nil, fmt.Errorf("event %.80q: %w", uid, err)
		}
		seen[id], e.uid = true, uid
		if id.replaces {
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
		if e.instance != nil {
			continue
		}
		if slices.ContainsFunc(replaced[e.uid], func(m moment) bool { return m.day != e.start.day }) {
			return nil, fmt.Errorf("event %.80q: DTSTART and a RECURRENCE-ID are not both dates or both times", e.uid)
		}
		events[i].except = append(e.except, replaced[e.uid]...)
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
func (z zones) readEvent(props goical.Props, zone *time.Location) (e event, err error) {
	for _, name := range []string{
		goical.PropUID, goical.PropStatus, goical.PropDateTimeStart, goical.PropDateTimeEnd, goical.PropDuration,
		goical.PropRecurrenceRule, goical.PropRecurrenceID,
	} {
		if n := len(props.Values(name)); n > 1 {
			return e, fmt.Errorf("%s appears %d times", name, n)
		}
	}
	start, err := z.single(props, goical.PropDateTimeStart, zone)
	switch {
	case err != nil:
		return e, err
	case start == nil:
		return e, errors.New("DTSTART is missing")
	case props.Get("EXRULE") != nil:
		return e, errors.New("EXRULE is not supported")
	}
	e.start = *start
	e.rule = strings.ToUpper(strings.TrimSpace(value(props, goical.PropRecurrenceRule)))
	if e.rule == "" && props.Get(goical.PropRecurrenceRule) != nil {
		return e, errors.New("RRULE is empty")
	}
	if e.length, err = z.lengthOf(props, e.start, zone); err != nil {
		return e, err
	}
	for name, list := range map[string]*[]moment{goical.PropRecurrenceDates: &e.rdates, goical.PropExceptionDates: &e.except} {
		for _, p := range props.Values(name) {
			some, err := z.moments(p, zone)
			if err != nil {
				return e, err
			}
			if slices.ContainsFunc(some, func(m moment) bool { return m.day != e.start.day }) {
				return e, fmt.Errorf("DTSTART and %s are not both dates or both times", name)
			}
			*list = append(*list, some...)
		}
	}
	if e.instance, err = z.single(props, goical.PropRecurrenceID, zone); err != nil || e.instance == nil {
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

// text identifies the times of the event.
func (e event) text() string {
	list := func(all []moment) string {
		texts := make([]string, len(all))
		for i, m := range all {
			texts[i] = m.text()
		}
		slices.Sort(texts)
		return strings.Join(slices.Compact(texts), ",")
	}
	return fmt.Sprintf("%s %s %s +%s -%s", e.start.text(), e.length.text, e.rule, list(e.rdates), list(e.except))
}

// starts returns the starts of the event's instances, in no particular order. There are at
// most mostInstances+1 by the rule.
func (e event) starts(rules *recurrence) ([]moment, error) {
	all := append([]moment{e.start}, e.rdates...)
	if e.rule != "" {
		some, err := rules.starts(e)
		if err != nil {
			return nil, fmt.Errorf("RRULE:%.200s: %w", e.rule, err)
		}
		all = slices.Concat(some, e.rdates)
	}
	except := make(map[int64]bool, len(e.except))
	for _, m := range e.except {
		except[m.unix()] = true
	}
	return slices.DeleteFunc(all, func(m moment) bool { return except[m.unix()] }), nil
}
