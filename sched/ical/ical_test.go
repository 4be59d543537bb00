package ical_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/etcdclaims/claims/sched/ical"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func load(t *testing.T, name, zone string) *ical.Calendar {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text), zone)
}

func parse(t *testing.T, text, zone string) *ical.Calendar {
	t.Helper()
	c, err := ical.Parse(strings.NewReader(text), zone)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// event is a file with one event that has the lines.
func event(lines ...string) string {
	return "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:e\r\n" + strings.Join(lines, "\r\n") + "\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
}

func noUID(lines ...string) string { return strings.Replace(event(lines...), "UID:e\r\n", "", 1) }

// periods returns the time that a calendar covers between two dates, in a zone.
func periods(t *testing.T, c calendar.Calendar, from, to, zone string) (all []string) {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.ParseInLocation(time.DateOnly, from, loc)
	if err != nil {
		t.Fatal(err)
	}
	end, err := time.ParseInLocation(time.DateOnly, to, loc)
	if err != nil {
		t.Fatal(err)
	}
	const layout = "2006-01-02 15:04"
	for at.Before(end) {
		covered, until := c.Covers(at)
		if until.IsZero() {
			until = end
		}
		if covered {
			all = append(all, at.In(loc).Format(layout)+" - "+until.In(loc).Format(layout))
		}
		at = until
	}
	return all
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("covered:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestHolidays(t *testing.T) {
	c := load(t, "holidays.ics", "America/New_York")
	want(t, periods(t, c, "2026-01-01", "2027-01-02", "America/New_York"),
		"2026-01-01 00:00 - 2026-01-02 00:00", "2026-05-25 00:00 - 2026-05-26 00:00", "2026-11-26 00:00 - 2026-11-27 00:00",
		"2026-12-24 00:00 - 2026-12-27 00:00", "2027-01-01 00:00 - 2027-01-02 00:00")
	want(t, periods(t, c, "2018-01-01", "2020-01-03", "America/New_York"), "2020-01-01 00:00 - 2020-01-02 00:00")
	want(t, periods(t, c, "2099-01-01", "2300-01-01", "America/New_York"),
		"2099-01-01 00:00 - 2099-01-02 00:00", "2099-05-25 00:00 - 2099-05-26 00:00", "2099-11-26 00:00 - 2099-11-27 00:00")

	// With a schedule: the day is left out, in the zone of the calendar.
	daily := calendar.Must(calendar.Cron("30 2 * * *", calendar.In("America/New_York")))
	s := calendar.Except(daily, c)
	if next := s.Next(time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC)); next.Format(time.RFC3339) != "2026-12-27T07:30:00Z" {
		t.Error(next)
	}
	if text := s.(fmt.Stringer).String(); !strings.Contains(text, " EXCEPT ical(America/New_York: 4 events ") {
		t.Error(text)
	}
}

// The windows of a year, with the changes of clocks on 29 March and 25 October.
func TestMaintenance(t *testing.T) {
	c := load(t, "maintenance.ics", "UTC")
	const zone = "Europe/Berlin"
	want(t, periods(t, c, "2026-01-01", "2026-02-07", zone),
		"2026-01-04 02:00 - 2026-01-04 04:00", "2026-01-11 02:00 - 2026-01-11 04:00", "2026-01-19 03:00 - 2026-01-19 04:30",
		"2026-02-01 02:00 - 2026-02-01 04:00")
	want(t, periods(t, c, "2026-03-22", "2026-04-13", zone),
		"2026-03-22 02:00 - 2026-03-22 04:00", "2026-03-29 03:00 - 2026-03-29 05:00", "2026-04-12 02:00 - 2026-04-12 04:00")
	want(t, periods(t, c, "2026-05-18", "2026-06-07", zone), "2026-05-31 02:00 - 2026-05-31 04:00", "2026-06-01 22:00 - 2026-06-02 00:00")
	want(t, periods(t, c, "2026-10-18", "2026-11-02", zone), "2026-10-18 02:00 - 2026-10-18 04:00", "2026-11-01 02:00 - 2026-11-01 04:00")
	want(t, periods(t, c, "2026-12-08", "2028-01-01", zone), "2026-12-13 02:00 - 2026-12-13 04:00", "2026-12-18 18:00 - 2027-01-01 18:00")
	if covered, until := c.Covers(time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)); covered || !until.IsZero() {
		t.Error(covered, until)
	}
}

func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to string
		zone     string
		lines    []string
		want     []string
	}{
		{
			"a time in a fold is the first", "2026-10-24", "2026-10-26", "Europe/Berlin",
			[]string{"DTSTART:20261025T023000", "DTEND:20261025T033000"},
			[]string{"2026-10-25 02:30 - 2026-10-25 03:30"},
		},
		{
			"days of DURATION are days of the calendar", "2026-03-27", "2026-03-31", "Europe/Berlin",
			[]string{"DTSTART:20260328T120000", "DURATION:P1DT1H"},
			[]string{"2026-03-28 12:00 - 2026-03-29 13:00"},
		},
		{
			"DTEND is exact in each instance", "2026-03-27", "2026-03-31", "Europe/Berlin",
			[]string{"DTSTART:20260327T120000", "DTEND:20260328T110000", "RRULE:FREQ=DAILY;COUNT=2"},
			[]string{"2026-03-27 12:00 - 2026-03-28 11:00", "2026-03-28 12:00 - 2026-03-29 12:00"},
		},
		{
			"the zone of times without one", "2026-01-01", "2026-01-03", "Asia/Tokyo",
			[]string{"DTSTART:20260101T090000", "DTEND:20260101T000100Z"},
			[]string{"2026-01-01 09:00 - 2026-01-01 09:01"},
		},
		{
			"a day whose midnight is skipped", "2026-04-23", "2026-04-26", "Africa/Cairo",
			[]string{"DTSTART;VALUE=DATE:20260424"},
			[]string{"2026-04-24 01:00 - 2026-04-25 00:00"},
		},
		{
			"all-day exceptions and dates", "2026-01-01", "2026-02-01", "UTC",
			[]string{"DTSTART;VALUE=DATE:20260101", "RRULE:FREQ=DAILY;INTERVAL=2;UNTIL=20260107", "EXDATE;VALUE=DATE:20260103,20260109", "RDATE;VALUE=DATE:20260120"},
			[]string{"2026-01-01 00:00 - 2026-01-02 00:00", "2026-01-05 00:00 - 2026-01-06 00:00", "2026-01-07 00:00 - 2026-01-08 00:00", "2026-01-20 00:00 - 2026-01-21 00:00"},
		},
		{
			"UNTIL is inclusive", "2026-01-01", "2026-01-09", "America/New_York",
			[]string{"DTSTART;TZID=America/New_York:20260101T200000", "DURATION:PT1H", "RRULE:FREQ=DAILY;UNTIL=20260103T010000Z"},
			[]string{"2026-01-01 20:00 - 2026-01-01 21:00", "2026-01-02 20:00 - 2026-01-02 21:00"},
		},
		{
			"the last workday of the month", "2026-01-01", "2026-04-01", "UTC",
			[]string{"DTSTART;VALUE=DATE:20260130", "RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"},
			[]string{"2026-01-30 00:00 - 2026-01-31 00:00", "2026-02-27 00:00 - 2026-02-28 00:00", "2026-03-31 00:00 - 2026-04-01 00:00"},
		},
		{
			"events that overlap or touch", "2026-01-01", "2026-01-09", "UTC",
			[]string{"DTSTART;VALUE=DATE:20260102", "DURATION:P2D", "RRULE:FREQ=DAILY;COUNT=3"},
			[]string{"2026-01-02 00:00 - 2026-01-06 00:00"},
		},
		{
			"a length of six hundred years", "2599-12-31", "2700-01-01", "UTC",
			[]string{"DTSTART:20260101T000000Z", "DTEND:26260101T000000Z"},
			[]string{"2599-12-31 00:00 - 2626-01-01 00:00"},
		},
		{
			"days until the last year", "9999-12-30", "9999-12-31", "UTC",
			[]string{"DTSTART:20260101", "DTEND:99991231"},
			[]string{"9999-12-30 00:00 - 9999-12-31 00:00"},
		},
		{
			"the longest DURATION", "2330-02-17", "2340-01-01", "UTC",
			[]string{"DTSTART:20260101T000000Z", "DURATION:PT999999H99999999M"},
			[]string{"2330-02-17 00:00 - 2330-03-20 01:39"},
		},
		{
			"TZID does not apply to dates", "2026-01-01", "2026-01-05", "Europe/Berlin",
			[]string{"DTSTART;VALUE=DATE;TZID=America/New_York:20260101"},
			[]string{"2026-01-01 00:00 - 2026-01-02 00:00"},
		},
		{
			"BYWEEKNO without BYDAY is the weekday of DTSTART", "2026-01-01", "2028-01-01", "UTC",
			[]string{"DTSTART:20260512", "RRULE:FREQ=YEARLY;BYWEEKNO=20"},
			[]string{"2026-05-12 00:00 - 2026-05-13 00:00", "2027-05-18 00:00 - 2027-05-19 00:00"},
		},
		{
			"long parameters of long values", "2026-01-01", "2026-01-05", "UTC",
			[]string{"DESCRIPTION;ALTREP=\"cid:a;b=c:d\",x;LANGUAGE=en:" + strings.Repeat("x", 60<<10), "DTSTART:20260101"},
			[]string{"2026-01-01 00:00 - 2026-01-02 00:00"},
		},
		{"a time without an end", "2026-01-01", "2026-01-09", "UTC", []string{"DTSTART:20260102T000000Z"}, nil},
		{
			"29 February", "2026-01-01", "2033-01-01", "UTC",
			[]string{"DTSTART;VALUE=DATE:20240229", "RRULE:FREQ=YEARLY"},
			[]string{"2028-02-29 00:00 - 2028-03-01 00:00", "2032-02-29 00:00 - 2032-03-01 00:00"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := parse(t, event(tt.lines...), tt.zone)
			want(t, periods(t, c, tt.from, tt.to, tt.zone), tt.want...)
		})
	}
}

// What the package does not understand is an error that names it.
func TestRefused(t *testing.T) {
	start := "DTSTART;VALUE=DATE:20260101"
	at := "DTSTART;TZID=Europe/Berlin:20260101T020000"
	for text, says := range map[string]string{
		"":                                 "no events",
		"hello":                            "missing colon",
		"BEGIN:VCALENDAR\n":                "ends early",
		"BEGIN:VCALENDAR\nEND:VCALENDAR\n": "no events",
		event(start) + "BEGIN:VCALENDAR\n": "ends early",
		event("A;B=c"):                     "malformed line",
		event("SUMMARY:" + strings.Repeat("x", 65<<10)):                  "more than 65536 bytes",
		event("SUMMARY:" + strings.Repeat("x\n y", 20<<10)):              "more than 65536 bytes",
		strings.Repeat("x\n", 2<<20):                                     "more than 2097152 bytes",
		event("SUMMARY:a"):                                               `event "e": DTSTART is missing`,
		event("DTSTART:tomorrow"):                                        "DTSTART:tomorrow: want a date",
		event("DTSTART;TZID=W. Europe Standard Time:20260101T000000"):    `TZID "W. Europe Standard Time"`,
		event("DTSTART;TZID=Local:20260101T000000"):                      "depends on the machine",
		event("DTSTART;VALUE=DATE:20260101T000000"):                      "not of VALUE=DATE",
		event(start, start):                                              "DTSTART appears 2 times",
		event(start, "DTEND:20260101T000000"):                            "not both dates",
		event(start, "DTEND;VALUE=DATE:20260101"):                        "DTEND is not after DTSTART",
		event(start, "DTEND;VALUE=DATE:20260102", "DURATION:P1D"):        "exclude each other",
		event(start, "DURATION:PT1H"):                                    "takes days",
		event(start, "DURATION:-P1D"):                                    "DURATION:-P1D: want a positive",
		event(start, "DURATION:P"):                                       "want a positive",
		event(start, "EXRULE:FREQ=DAILY"):                                "EXRULE is not supported",
		event(start, "RRULE:FREQ=DAILY", "RRULE:FREQ=WEEKLY"):            "RRULE appears 2 times",
		event(start, "RRULE:FREQ=HOURLY"):                                "RRULE:FREQ=HOURLY: FREQ=HOURLY is not supported",
		event(at, "RRULE:FREQ=DAILY;BYHOUR=2,3"):                         "BYHOUR is not supported",
		event(start, "RRULE:FREQ=DAILY;X-SKIP=1"):                        "X-SKIP is not supported",
		event(start, "RRULE:INTERVAL=2"):                                 "FREQ is required",
		event(start, "RRULE:FREQ=DAILY;INTERVAL=0"):                      "INTERVAL=0 is out of range",
		event(start, "RRULE:FREQ=DAILY;INTERVAL=1001"):                   "out of range",
		event(start, "RRULE:FREQ=DAILY;COUNT=-1"):                        "COUNT=-1 is out of range",
		event(start, "RRULE:FREQ=WEEKLY;BYDAY=MO"):                       "DTSTART is not an instance of the rule",
		event(start, "RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"):        "DTSTART is not an instance of the rule",
		event(start, "RRULE:FREQ=YEARLY;BYMONTH=12;BYDAY=53MO"):          "DTSTART is not an instance of the rule",
		event(start, "RRULE:FREQ=DAILY;UNTIL=20251231"):                  "UNTIL is before DTSTART",
		event(start, "RRULE:FREQ=DAILY;UNTIL=later"):                     "UNTIL:LATER: want a date",
		event("DTSTART;VALUE=DATE:21000101", "RRULE:FREQ=DAILY"):         "in the years 1900 to 2099",
		event(start, "EXDATE:20260101T000000Z"):                          "DTSTART and EXDATE are not both",
		event(at, "RDATE;VALUE=PERIOD:20260101T000000Z/PT1H"):            "RDATE:20260101T000000Z/PT1H: VALUE=PERIOD is not supported",
		event(start, "RECURRENCE-ID;RANGE=THISANDFUTURE:20260101"):       "RANGE of RECURRENCE-ID",
		event(start, "RECURRENCE-ID:20260101", "RRULE:FREQ=DAILY"):       "with RECURRENCE-ID has an RRULE",
		event("DTSTART;VALUE=DATE:00010101", "RRULE:FREQ=DAILY"):         "in the years 1900 to 2099",
		strings.Repeat(noUID("DTSTART:19000101", "RRULE:FREQ=DAILY"), 3): `event "": the events of the file, up to this one, have more than 200000 instances before the year 2100`,

		event("X;Y=" + strings.Repeat("a", 9<<10) + ":v"):                                             "more than 8192 bytes before its value",
		event("X;Y:=\"" + strings.Repeat("a", 9<<10)):                                                 "more than 8192 bytes before its value",
		event("X;Y=" + strings.Repeat("a\r\n ", 9<<10) + ":v"):                                        "more than 8192 bytes before its value",
		event(start, "DURATION:P1D", "DURATION:P5D"):                                                  "DURATION appears 2 times",
		event(start, "UID:f"):                                                                         "UID appears 2 times",
		event(start, "RRULE:"):                                                                        "RRULE is empty",
		event(start, "RRULE:FREQ=DAILY;FREQ=WEEKLY"):                                                  "FREQ appears more than once",
		event(start, "RRULE:FREQ=WEEKLY;COUNT=5;COUNT=1"):                                             "COUNT appears more than once",
		event(start, "RRULE:FREQ=WEEKLY;COUNT=5;UNTIL=20260601"):                                      "UNTIL and COUNT exclude each other",
		event(start, "RRULE:FREQ=WEEKLY;BYDAY="):                                                      "BYDAY is empty",
		event(start, "RRULE:FREQ=WEEKLY;BYDAY=1TH"):                                                   "numbers in BYDAY are not supported with FREQ=WEEKLY",
		event(start, "RRULE:FREQ=DAILY;BYDAY=1TH"):                                                    "numbers in BYDAY are not supported with FREQ=DAILY",
		event(start, "RRULE:FREQ=YEARLY;BYWEEKNO=1;BYDAY=1TH"):                                        "numbers in BYDAY are not supported with BYWEEKNO",
		event(start, "RRULE:FREQ=MONTHLY;BYDAY=TH,2MO"):                                               "with and without numbers",
		event(start, "RRULE:FREQ=MONTHLY;BYWEEKNO=1"):                                                 "BYWEEKNO is not supported with FREQ=MONTHLY",
		event(start, "RRULE:FREQ=YEARLY;BYWEEKNO=1,52"):                                               "want numbers from 1 to 51",
		event(start, "RRULE:FREQ=YEARLY;BYWEEKNO=-52"):                                                "want numbers from 1 to 51",
		event(start, "RRULE:FREQ=DAILY;BYYEARDAY=1"):                                                  "BYYEARDAY is not supported with FREQ=DAILY",
		event(start, "RRULE:FREQ=WEEKLY;BYMONTHDAY=1"):                                                "BYMONTHDAY is not supported with FREQ=WEEKLY",
		event(start, "RRULE:FREQ=WEEKLY;BYDAY=TH,FR;BYSETPOS=1"):                                      "BYSETPOS is not supported with FREQ=WEEKLY",
		event(start, "RRULE:FREQ=YEARLY;BYSETPOS=1,2,3,4,5,6,7,8,9,10,11"):                            "BYSETPOS has more than 10 values",
		event(start) + event(start, "STATUS:CANCELLED", "SEQUENCE:1"):                                 `event "e": another event of the file has the same UID and RECURRENCE-ID`,
		event(start, "RECURRENCE-ID:20260101", "SEQUENCE:1") + event(start, "RECURRENCE-ID:20260101"): "same UID and RECURRENCE-ID",
		event(at, "RRULE:FREQ=DAILY") + event(at, "RECURRENCE-ID;VALUE=DATE:20260102"):                "DTSTART and a RECURRENCE-ID are not both dates",
		strings.Repeat(noUID(start, "RRULE:FREQ=YEARLY"), 1001):                                       "more than 1000 events of the file have an RRULE",
	} {
		_, err := ical.Parse(strings.NewReader(text), "UTC")
		if err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "ical: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.100q: %v, want %q", text, err, says)
		}
	}
	for _, zone := range []string{"", "Local", "Nowhere/City"} {
		if _, err := ical.Parse(strings.NewReader(event(start)), zone); err == nil {
			t.Errorf("zone %q", zone)
		}
	}
	if _, err := ical.Parse(iotest.ErrReader(io.ErrClosedPipe), "UTC"); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

// The text of a calendar changes with what its events say about times, and only then.
func TestText(t *testing.T) {
	const a, b = "BEGIN:VEVENT\nDTSTART:20260101\nEXDATE:20260102,20260103\nRRULE:FREQ=DAILY\nEND:VEVENT\n", "BEGIN:VEVENT\nDTSTART:20270101\nEND:VEVENT\n"
	text := func(zone string, events ...string) string {
		return parse(t, "\ufeffBEGIN:VCALENDAR\n"+strings.Join(events, "")+"END:VCALENDAR\n\n", zone).String()
	}
	is := text("UTC", a, b)
	if is != "ical(UTC: 2 events 5e9008c3c997e476c34c)" {
		t.Errorf("%s: other than before, so schedules look changed", is)
	}
	for _, same := range []string{
		text("UTC", b, a), text("UTC", a, b, b),
		text("UTC", strings.Replace(a, "DTSTART", "SUMMARY:x\nUID:other\nDTSTART", 1), b),
		text("UTC", strings.Replace(a, "20260102,20260103", "20260103,20260102", 1), b),
		text("UTC", a, strings.Replace(b, "20270101", "20270101\nDTEND:20270102", 1)),
	} {
		if same != is {
			t.Errorf("%s, was %s", same, is)
		}
	}
	for _, other := range []string{
		text("UTC", a), text("Europe/Berlin", a, b), text("UTC", strings.Replace(a, "DAILY", "WEEKLY", 1), b),
		text("UTC", strings.Replace(a, "20260102,", "", 1), b), text("UTC", a, strings.Replace(b, "20270101", "20270101\nDURATION:P2D", 1)),
	} {
		if other == is {
			t.Errorf("%s did not change", other)
		}
	}
}

// Values that a list repeats cost nothing: each would be evaluated for each day.
func TestParseText(t *testing.T) {
	text := event("DTSTART;VALUE=DATE:20261225")
	c, err := ical.ParseText(text, "UTC")
	if err != nil || fmt.Sprint(c) != parse(t, text, "UTC").String() {
		t.Errorf("%v, %v", c, err)
	}
	if c, err := ical.ParseText("x", "UTC"); err == nil || c != nil {
		t.Errorf("%v, %v", c, err)
	}
}

func TestRepeatedValues(t *testing.T) {
	repeat := func(value string) string { return value + strings.Repeat(","+value, 1000) }
	lists := "RRULE:FREQ=YEARLY;BYMONTH=" + repeat("1") + ";BYDAY=" + repeat("MO,TU,WE,TH,FR,SA,SU") + ";BYSETPOS=" + repeat("1")
	c := parse(t, event("DTSTART:19000101", lists), "UTC")
	want(t, periods(t, c, "2026-01-01", "2027-01-01", "UTC"), "2026-01-01 00:00 - 2026-01-02 00:00")
}

// BYWEEKNO counts weeks as ISO 8601 does, also around New Year.
func TestWeeks(t *testing.T) {
	for _, week := range []int{1, 2, 51} {
		start := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC) // a Monday
		start = start.AddDate(0, 0, 7*(week-1))
		rule := fmt.Sprintf("RRULE:FREQ=YEARLY;BYWEEKNO=%d;BYDAY=MO,TU,WE,TH,FR,SA,SU", week)
		c := parse(t, event("DTSTART:"+start.Format("20060102"), rule), "UTC")
		for day := start; day.Year() < 2099; day = day.AddDate(0, 0, 1) {
			_, w := day.ISOWeek()
			if covered, _ := c.Covers(day); covered != (w == week) {
				t.Fatalf("%v is in week %d; covered: %v, want week %d", day, w, covered, week)
			}
		}
	}
}

// A calendar without end does not make a search endless.
func TestBoundedSearch(t *testing.T) {
	always := parse(t, event("DTSTART:20200101", "RRULE:FREQ=DAILY"), "UTC")
	s := calendar.Except(calendar.Must(calendar.Every(time.Second, 0)), always)
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	began := time.Now()
	if next := s.Next(from); !next.Equal(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Error(next)
	}
	weekly := parse(t, event("DTSTART:20200101T000000Z", "DTEND:20200101T000001Z", "RRULE:FREQ=WEEKLY"), "UTC")
	if next := calendar.Only(calendar.Must(calendar.Every(time.Hour, time.Minute)), weekly).Next(from); !next.IsZero() {
		t.Error(next)
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("took %v", d)
	}
}
