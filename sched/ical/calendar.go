package ical

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	goical "github.com/emersion/go-ical"
	"github.com/etcdclaims/claims/sched/calendar"
)

const (
	mostBytes     = 2 << 20
	mostLineBytes = 64 << 10 // also after unfolding
	mostHeadBytes = 8 << 10  // of a line, before its value
	mostInstances = 200_000
)

// Calendar is the time that the events of a file cover. It implements calendar.Calendar.
type Calendar struct {
	covered []interval // sorted; no two touch each other
	text    string
}

// interval is a time in seconds of Unix time: from start until just before end.
type interval struct{ start, end int64 }

// Parse reads a file of one or more calendars. The zone is that of all-day events and of
// times without a zone, by its name in the tz database, such as "Europe/Berlin".
//
// Parse returns an error if the zone is unknown or depends on the machine, as with
// [calendar.In]. It also does if the file has no events, exceeds a bound, or has
// something that this package does not understand. It returns the errors of r.
func Parse(r io.Reader, zone string) (*Calendar, error) {
	loc, err := calendar.LoadZone(zone)
	if err != nil {
		return nil, fmt.Errorf("ical: zone %.100q: %w", zone, err)
	}
	components, err := decode(r)
	if err != nil {
		return nil, fmt.Errorf("ical: %w", err)
	}
	events, err := read(components, loc)
	if err != nil {
		return nil, fmt.Errorf("ical: %w", err)
	}
	c := new(Calendar)
	rules := &recurrence{known: make(map[string][]moment)}
	instances := 0
	for _, e := range events {
		starts, err := e.starts(rules)
		if err != nil {
			return nil, fmt.Errorf("ical: event %.80q: %w", e.uid, err)
		}
		if instances += len(starts); instances > mostInstances {
			return nil, fmt.Errorf("ical: event %.80q: the events of the file, up to this one, "+
				"have more than %d instances before the year %d", e.uid, mostInstances, horizon.Year())
		}
		for _, start := range starts {
			if is := (interval{start.unix(), e.length.after(start)}); is.start < is.end {
				c.covered = append(c.covered, is)
			}
		}
	}
	c.covered = merge(c.covered)
	c.text = textOf(zone, events)
	return c, nil
}

// ParseText is Parse of a text. It has the type of sched.Config.ICal, with which jobs that
// are defined at run time can have iCalendar texts.
func ParseText(text, zone string) (calendar.Calendar, error) {
	c, err := Parse(strings.NewReader(text), zone)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Covers reports whether t is during an event, and until when the answer stays the same.
func (c *Calendar) Covers(t time.Time) (covered bool, until time.Time) {
	sec := t.Unix()
	next := sort.Search(len(c.covered), func(i int) bool { return c.covered[i].end > sec })
	switch {
	case next == len(c.covered):
		return false, time.Time{}
	case c.covered[next].start <= sec:
		return true, time.Unix(c.covered[next].end, 0).UTC()
	}
	return false, time.Unix(c.covered[next].start, 0).UTC()
}

// String returns the zone, the number of events, and a hash of the properties that Parse uses.
// It depends on neither the order of the events, nor their summaries, nor the tz database.
func (c *Calendar) String() string { return c.text }

// merge sorts intervals, and joins those that overlap or touch.
func merge(all []interval) (merged []interval) {
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.start, b.start) })
	for _, is := range all {
		if n := len(merged); n > 0 && is.start <= merged[n-1].end {
			merged[n-1].end = max(merged[n-1].end, is.end)
			continue
		}
		merged = append(merged, is)
	}
	return merged
}

func textOf(zone string, events []event) string {
	lines := make([]string, len(events))
	for i, e := range events {
		lines[i] = e.text()
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return fmt.Sprintf("ical(%s: %d events %x)", zone, len(lines), sum[:10])
}

// decode parses a file of calendars into the components that they have.
func decode(r io.Reader) (all []*goical.Component, err error) {
	text, err := io.ReadAll(io.LimitReader(r, mostBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > mostBytes {
		return nil, fmt.Errorf("the file has more than %d bytes", mostBytes)
	}
	if err := checkLines(text); err != nil {
		return nil, err
	}
	// The parser panics on some malformed lines.
	defer func() {
		if p := recover(); p != nil {
			all, err = nil, fmt.Errorf("malformed line: %v", p)
		}
	}()
	for rest := bytes.NewReader(bytes.TrimPrefix(bytes.TrimSpace(text), []byte("\ufeff"))); rest.Len() > 0; {
		one := bufio.NewReader(rest) // which the parser uses as it is
		c, err := goical.NewDecoder(one).Decode()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errors.New("the file ends early")
		case err != nil:
			return nil, errors.New(strings.TrimPrefix(err.Error(), "ical: "))
		}
		if err := checkCalendar(c.Component); err != nil {
			return nil, err
		}
		all = append(all, c.Children...)
		// What the reader has read ahead is of the next calendar.
		if _, err := rest.Seek(-int64(one.Buffered()), io.SeekCurrent); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// checkCalendar refuses what would give the events of a calendar another meaning.
func checkCalendar(c *goical.Component) error {
	for name, known := range map[string][]string{goical.PropCalendarScale: {"GREGORIAN"}, goical.PropMethod: {"PUBLISH", "REQUEST"}} {
		if is := strings.ToUpper(strings.TrimSpace(value(c.Props, name))); is != "" && !slices.Contains(known, is) {
			return fmt.Errorf("%s:%.80s is not supported; want %s", name, is, strings.Join(known, " or "))
		}
	}
	for _, outer := range c.Children {
		for _, inner := range outer.Children {
			if inner.Name == goical.CompEvent || len(inner.Children) > 0 {
				return fmt.Errorf("a %.20s is inside a %.20s", inner.Name, outer.Name)
			}
		}
	}
	return nil
}

// lineHead is a name and its parameters, up to the value, as the parser reads them.
var lineHead = regexp.MustCompile(`^[^;:]+(?:;[^=:;"]+=(?:"[^"]*"|[^",;:]*)(?:,(?:"[^"]*"|[^",;:]*))*)*:`)

// checkLines refuses long lines, and long parameters: the parser needs quadratic time for them.
func checkLines(text []byte) error {
	var head []byte // of the unfolded line
	length := 0
	for line := range bytes.Lines(text) {
		length += len(line)
		unfolded := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if line[0] == ' ' || line[0] == '\t' {
			unfolded = unfolded[1:]
		} else {
			head, length = head[:0], len(line)
		}
		if length > mostLineBytes {
			return fmt.Errorf("a line has more than %d bytes", mostLineBytes)
		}
		if len(head) == mostHeadBytes {
			continue
		}
		head = append(head, unfolded[:min(len(unfolded), mostHeadBytes-len(head))]...)
		if len(head) == mostHeadBytes && !lineHead.Match(head) {
			return fmt.Errorf("a line has more than %d bytes before its value", mostHeadBytes)
		}
	}
	return nil
}
