package ical

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	goical "github.com/emersion/go-ical"
	"github.com/etcdclaims/claims/sched/calendar"
)

// moment is a date or a time of a property.
type moment struct {
	wall time.Time // what the clock of the zone shows, as if it were UTC
	zone *time.Location
	day  bool // a date, without a time
}

// zones has the zones of a file that were loaded.
type zones map[string]*time.Location

func (z zones) load(name string) (*time.Location, error) {
	if zone := z[name]; zone != nil {
		return zone, nil
	}
	zone, err := calendar.LoadZone(name)
	if err == nil {
		z[name] = zone
	}
	return zone, err
}

// farthest is more than any zone is ahead of or behind UTC, in seconds.
const farthest = 26 * 60 * 60

const secondsPerDay = 24 * 60 * 60

// unix returns the instant. A time in a gap is read with the offset before the gap, and a
// time in a fold is the first of the two.
func (m moment) unix() int64 {
	wall := m.wall.Unix()
	before, after := m.offset(wall-farthest), m.offset(wall+farthest)
	if m.offset(wall-before) != before && m.offset(wall-after) == after {
		return wall - after
	}
	return wall - before
}

func (m moment) offset(unix int64) int64 {
	_, offset := time.Unix(unix, 0).In(m.zone).Zone()
	return int64(offset)
}

// plus returns the moment some days later.
func (m moment) plus(days int) moment {
	m.wall = m.wall.AddDate(0, 0, days)
	return m
}

const (
	dateLayout = "20060102"
	timeLayout = "20060102T150405"
)

func (m moment) text() string {
	if m.day {
		return m.wall.Format(dateLayout)
	}
	return m.wall.Format(timeLayout) + m.zone.String()
}

// moments parses the dates and times of a property. The zone is that of dates, and
// of times without one.
func (z zones) moments(p goical.Prop, zone *time.Location) (all []moment, err error) {
	dateZone := zone // TZID does not apply to dates
	fail := func(format string, args ...any) ([]moment, error) {
		return nil, fmt.Errorf("%s:%.80s: %w", p.Name, p.Value, fmt.Errorf(format, args...))
	}
	for _, name := range []string{goical.ParamTimezoneID, goical.ParamValue, goical.ParamRange} {
		if all := p.Params.Values(name); len(all) > 1 || len(all) == 1 && all[0] == "" {
			return fail("%s has %d values, or an empty one", name, len(all))
		}
	}
	if tzid := p.Params.Get(goical.ParamTimezoneID); tzid != "" {
		if zone, err = z.load(tzid); err != nil {
			return fail("TZID %.80q: %w", tzid, err)
		}
	}
	kind := strings.ToUpper(p.Params.Get(goical.ParamValue))
	if kind != "" && kind != string(goical.ValueDate) && kind != string(goical.ValueDateTime) {
		return fail("VALUE=%.80s is not supported", kind)
	}
	for text := range strings.SplitSeq(strings.ToUpper(strings.TrimSpace(p.Value)), ",") {
		m := moment{zone: zone, day: len(text) == len(dateLayout)}
		layout := timeLayout
		switch local, utc := strings.CutSuffix(text, "Z"); {
		case m.day && kind == string(goical.ValueDateTime), !m.day && kind == string(goical.ValueDate):
			return fail("the value is not of VALUE=%s", kind)
		case m.day:
			layout, m.zone = dateLayout, dateZone
		case utc:
			text, m.zone = local, time.UTC
		}
		if m.wall, err = time.Parse(layout, text); err != nil || len(text) != len(layout) { // it takes fractions of a second
			return fail("want a date such as 20261225 or a time such as 20261225T080000")
		}
		all = append(all, m)
	}
	return all, nil
}

// length is how long an event takes.
type length struct {
	days    int    // days of the calendar
	seconds int64  // after them
	text    string // identifies the length, whatever is in the tz database
}

func newLength(days int, seconds int64) length {
	return length{days: days, seconds: seconds, text: fmt.Sprintf("%dD%ds", days, seconds)}
}

// after returns the end of an event that starts at the moment.
func (l length) after(start moment) int64 {
	return start.plus(l.days).unix() + l.seconds
}

var durationSyntax = regexp.MustCompile(`^\+?P(?:(\d{1,4})W)?(?:(\d{1,5})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,9})S)?)?$`)

// parseDuration parses the value of DURATION.
func parseDuration(text string) (length, error) {
	parts := durationSyntax.FindStringSubmatch(strings.ToUpper(strings.TrimSpace(text)))
	if parts == nil || strings.Join(parts[1:], "") == "" {
		return length{}, fmt.Errorf("DURATION:%.80s: want a positive duration such as P1D or PT1H30M", text)
	}
	var n [5]int64
	for i, part := range parts[1:] {
		if part != "" {
			var err error
			if n[i], err = strconv.ParseInt(part, 10, 64); err != nil {
				return length{}, fmt.Errorf("DURATION:%.80s: %w", text, err)
			}
		}
	}
	return newLength(int(7*n[0]+n[1]), 3600*n[2]+60*n[3]+n[4]), nil
}

// lengthOf returns the length of an event that starts at the moment.
func (z zones) lengthOf(props goical.Props, start moment, zone *time.Location) (length, error) {
	end, err := z.single(props, goical.PropDateTimeEnd, zone)
	duration := props.Get(goical.PropDuration)
	switch {
	case err != nil:
		return length{}, err
	case end != nil && duration != nil:
		return length{}, errors.New("DTEND and DURATION exclude each other")
	case duration != nil:
		l, err := parseDuration(duration.Value)
		if err == nil && start.day && (l.seconds != 0 || l.days == 0) {
			err = fmt.Errorf("DURATION:%.80s: an all-day event takes days", duration.Value)
		}
		return l, err
	case end == nil && start.day:
		return newLength(1, 0), nil
	case end == nil:
		return newLength(0, 0), nil
	case end.day != start.day:
		return length{}, errors.New("DTSTART and DTEND are not both dates or both times")
	}
	l := length{seconds: end.unix() - start.unix(), text: "until " + end.text()}
	if start.day {
		l = newLength(int((end.wall.Unix()-start.wall.Unix())/secondsPerDay), 0)
	}
	if l.days < 0 || l.seconds < 0 || start.day && l.days == 0 {
		return length{}, errors.New("DTEND is not after DTSTART")
	}
	return l, nil
}

// single returns the moment of a property, or nil if the property is missing.
func (z zones) single(props goical.Props, name string, zone *time.Location) (*moment, error) {
	p := props.Get(name)
	if p == nil {
		return nil, nil
	}
	all, err := z.moments(*p, zone)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%s has %d values", name, len(all))
	}
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}
