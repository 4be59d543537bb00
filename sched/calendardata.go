package sched

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched/calendar"
)

// CalendarData is a calendar as data, for the Except and Only of a [Definition]. It has
// either Dates or an ICal text.
type CalendarData struct {
	// Dates has 1 to 1,000 dates or ranges of dates, as [calendar.Dates] takes them:
	// "2026-12-25", "12-25" for each year, "2026-12-24..2027-01-06", or "12-24..01-06". The
	// ranges have at most 10,000 days together.
	Dates []string `json:"dates,omitempty"`
	// ICal is the text of an iCalendar file, of at most 64 KiB. Processes that run the job
	// need Config.ICal to parse it. The definition has the text as it is; export and apply
	// pass it on unchanged. See package [github.com/etcdclaims/claims/sched/ical] for the
	// events that it can have, and for its other bounds.
	ICal string `json:"ical,omitempty"`
	// Zone is the time zone of the dates, and of the iCalendar dates and times without one,
	// by its name in the tz database. By default it is the zone of the Schedule, such as
	// Europe/Berlin for "TZ=Europe/Berlin 30 2 * * *". That is UTC if the Schedule names
	// no zone, as with @every.
	Zone string `json:"zone,omitempty"`
}

const (
	mostDates     = 1000
	mostICalBytes = 64 << 10
	mostZoneBytes = 100
)

// check returns an error if the calendar is empty, too large, or cannot be stored as it is.
func (c *CalendarData) check() error {
	switch {
	case c == nil:
		return nil
	case len(c.Dates) == 0 && c.ICal == "":
		return errors.New("has neither Dates nor an ICal text")
	case len(c.Dates) > 0 && c.ICal != "":
		return errors.New("has both Dates and an ICal text; want one of them")
	case len(c.Dates) > mostDates:
		return fmt.Errorf("has %d dates and ranges; the limit is %d", len(c.Dates), mostDates)
	case len(c.ICal) > mostICalBytes:
		return fmt.Errorf("has an ICal text of %d bytes; the limit is %d", len(c.ICal), mostICalBytes)
	case !utf8.ValidString(c.ICal):
		return errors.New("has an ICal text that is not valid UTF-8")
	case len(c.Zone) > mostZoneBytes:
		return fmt.Errorf("has a Zone of %d bytes; the limit is %d", len(c.Zone), mostZoneBytes)
	}
	return nil
}

// calendar returns the calendar of the data.
func (c *CalendarData) calendar(zone string, ical func(text, zone string) (calendar.Calendar, error)) (calendar.Calendar, error) {
	if c.Zone != "" {
		zone = c.Zone
	}
	switch {
	case c.ICal == "":
		return calendar.Dates(zone, c.Dates...)
	case ical == nil:
		return nil, errors.New("this process cannot parse iCalendar texts; set Config.ICal to ical.ParseText")
	}
	is, err := ical(c.ICal, zone)
	if err == nil && is == nil {
		err = errors.New("Config.ICal returned no calendar")
	}
	return is, err
}

// icalCache has the texts that were parsed, so that jobs with the same text share a calendar,
// and a text that cannot be parsed costs its time once.
type icalCache struct {
	parse func(text, zone string) (calendar.Calendar, error) // Config.ICal
	mu    sync.Mutex
	known map[[sha256.Size]byte]parsed
}

type parsed struct {
	calendar calendar.Calendar
	err      error
}

// mostParsed is how many texts a process keeps beside the calendars that its jobs have.
const mostParsed = 64

// calendar returns the calendar of a text.
func (c *icalCache) calendar(text, zone string) (calendar.Calendar, error) {
	id := sha256.Sum256([]byte(zone + "\n" + text))
	c.mu.Lock()
	is, known := c.known[id]
	c.mu.Unlock()
	if known {
		return is.calendar, is.err
	}
	is.calendar, is.err = c.parse(text, zone)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= mostParsed {
		c.known = make(map[[sha256.Size]byte]parsed)
	}
	c.known[id] = is
	return is.calendar, is.err
}

// unparsed replaces the calendar of an iCalendar text in a process that cannot parse
// it.
func unparsed(_, zone string) (calendar.Calendar, error) { return calendar.Dates(zone) }

// zoneOf returns the name of the time zone of a schedule of Cron.
func zoneOf(s calendar.Schedule) string {
	if text, ok := s.(fmt.Stringer); ok {
		if zone, named := strings.CutPrefix(text.String(), "TZ="); named {
			zone, _, _ = strings.Cut(zone, " ")
			return zone
		}
	}
	return "UTC"
}

// ParseSchedule returns the schedule of the definition: After, or Schedule with the
// calendars of Except and Only and the bounds. The function ical parses iCalendar texts, as Config.ICal
// does. If it is nil, such a text is an error. ParseSchedule does no I/O.
func (d Definition) ParseSchedule(ical func(text, zone string) (calendar.Calendar, error)) (calendar.Schedule, error) {
	s, err := d.schedule(ical)
	if err != nil {
		return nil, fmt.Errorf("sched: definition of job %.80q: %w", d.Name, err)
	}
	return s, nil
}

func (d Definition) schedule(ical func(text, zone string) (calendar.Calendar, error)) (calendar.Schedule, error) {
	if d.following() {
		return d.follows()
	}
	s, err := calendar.Cron(d.Schedule)
	if err != nil {
		return nil, fmt.Errorf("the Schedule: %w", err)
	}
	zone := zoneOf(s)
	for _, filter := range []struct {
		name  string
		data  *CalendarData
		apply func(calendar.Schedule, calendar.Calendar) calendar.Schedule
	}{{"Except", d.Except, calendar.Except}, {"Only", d.Only, calendar.Only}} {
		if filter.data == nil {
			continue
		}
		c, err := filter.data.calendar(zone, ical)
		if err != nil {
			return nil, fmt.Errorf("the %s: %w", filter.name, err)
		}
		s = filter.apply(s, c)
	}
	if b := d.bounds(); b != (calendar.Bounds{}) {
		return calendar.Bound(s, b)
	}
	return s, nil
}

// bounds returns the bounds of the schedule.
func (d Definition) bounds() calendar.Bounds {
	return calendar.Bounds{Start: d.Start, End: d.End, Runs: d.Runs}
}

// following reports whether the job runs after others.
func (d Definition) following() bool { return d.After != "" || d.AfterAll != nil || d.AfterOn != "" }

// follows returns the schedule of a definition that runs after other jobs.
func (d Definition) follows() (calendar.Schedule, error) {
	a := after{tick.Following{After: d.After, AfterAll: d.AfterAll, AfterOn: d.AfterOn}}
	switch {
	case d.Schedule != "":
		return nil, errors.New("the definition has both a Schedule and After; want one of them")
	case d.Except != nil || d.Only != nil:
		return nil, errors.New("the calendars Except and Only need a Schedule; give them to the job that this one runs after")
	case d.bounds() != (calendar.Bounds{}):
		return nil, errors.New("the bounds Start, End and Runs need a Schedule; give them to the job that this one runs after")
	}
	return a, a.check(d.Name)
}
