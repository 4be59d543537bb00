package ical_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/sched/ical"
)

// Dates that are added to a rule or taken from it mean the same instants in whatever zone they are written.
func TestExceptions(t *testing.T) {
	t.Parallel()
	const start, zone = "DTSTART;TZID=Europe/Berlin:20260328T023000", "Europe/Berlin"
	daily := []string{start, "DURATION:PT30M", "RRULE:FREQ=DAILY;COUNT=3"}
	all := []string{"2026-03-28 02:30 - 2026-03-28 03:00", "2026-03-29 03:30 - 2026-03-29 04:00", "2026-03-30 02:30 - 2026-03-30 03:00"}
	for _, tt := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"none", nil, all},
		{"EXDATE in UTC", []string{"EXDATE:20260328T013000Z"}, all[1:]},
		{"EXDATE in another zone", []string{"EXDATE;TZID=America/New_York:20260327T213000"}, all[1:]},
		{"floating EXDATE", []string{"EXDATE:20260328T023000"}, all[1:]},
		{"EXDATE in the gap", []string{"EXDATE;TZID=Europe/Berlin:20260329T023000"}, []string{all[0], all[2]}},
		{"EXDATE after the gap", []string{"EXDATE;TZID=Europe/Berlin:20260329T033000"}, []string{all[0], all[2]}},
		{"EXDATE of no instance", []string{"EXDATE:20260401T000000Z"}, all},
		{"EXDATE and RDATE of one time", []string{"EXDATE:20260401T000000Z", "RDATE:20260401T000000Z"}, all},
		{"RDATE of an instance", []string{"RDATE:20260328T013000Z"}, all},
		{
			"RDATE before DTSTART, in another zone",
			[]string{"RDATE;TZID=Asia/Tokyo:20260327T090000"},
			append([]string{"2026-03-27 01:00 - 2026-03-27 01:30"}, all...),
		},
		{"parts with quotes, in lower case", []string{"exdate;tzid=\"America/New_York\";value=date-time:20260327t213000"}, all[1:]},
		{"a folded line", []string{"EXDATE;TZID=Eur\r\n ope/Berlin:20260328T0\r\n\t23000,2026033\r\n 0T023000"}, all[1:2]},
		{"all", []string{"EXDATE:20260328T013000Z,20260329T013000Z,20260330T003000Z"}, nil},
	} {
		c := parse(t, event(append(daily, tt.lines...)...), zone)
		t.Run(tt.name, func(t *testing.T) { want(t, periods(t, c, "2026-03-27", "2026-04-03", zone), tt.want...) })
	}
}

// Times without a zone are in the zone of the caller, whatever zone the rest of the event has.
func TestFloating(t *testing.T) {
	t.Parallel()
	text := event("DTSTART:20260101T090000", "DTEND;TZID=UTC:20260101T150000", "RRULE:FREQ=DAILY;UNTIL=20260102T090000")
	want(t, periods(t, parse(t, text, "America/New_York"), "2026-01-01", "2026-01-05", "UTC"),
		"2026-01-01 14:00 - 2026-01-01 15:00", "2026-01-02 14:00 - 2026-01-02 15:00")
	want(t, periods(t, parse(t, text, "Asia/Tokyo"), "2026-01-01", "2026-01-05", "UTC"),
		"2026-01-01 00:00 - 2026-01-01 15:00", "2026-01-02 00:00 - 2026-01-02 15:00")
}

// A VTIMEZONE changes nothing, whatever it contains.
func TestTimeZones(t *testing.T) {
	t.Parallel()
	zone := func(tzid string) string {
		return "BEGIN:VCALENDAR\r\nBEGIN:VTIMEZONE\r\nTZID:" + tzid + "\r\nBEGIN:STANDARD\r\nDTSTART:16010101T000000\r\nRRULE:FREQ=HOURLY\r\n" +
			"TZOFFSETFROM:+1000\r\nTZOFFSETTO:+1000\r\nEND:STANDARD\r\nEND:VTIMEZONE\r\nBEGIN:VEVENT\r\nDTSTART;TZID=" + tzid +
			":20260101T090000\r\nDURATION:PT1H\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
	}
	want(t, periods(t, parse(t, zone("Europe/Berlin"), "UTC"), "2026-01-01", "2026-01-02", "UTC"), "2026-01-01 08:00 - 2026-01-01 09:00")
	for _, tzid := range []string{
		"Customized Time Zone", "/example.org/Europe/Berlin", "../Europe/Berlin",
		"Europe\\Berlin", "\x00", "GMT Standard Time",
	} {
		if _, err := ical.ParseText(zone(tzid), "UTC"); err == nil || !strings.Contains(err.Error(), "TZID") {
			t.Errorf("%q: %v", tzid, err)
		}
	}
}

// A file that is not well-formed is refused, rather than read in one of several ways.
func TestMalformed(t *testing.T) {
	t.Parallel()
	const start, at = "DTSTART;VALUE=DATE:20260101", "DTSTART:20260101T020000"
	calendar := func(lines string) string { return "BEGIN:VCALENDAR\r\n" + lines + "END:VCALENDAR\r\n" }
	inner := "BEGIN:VEVENT\r\n" + start + "\r\nEND:VEVENT\r\n"
	for text, says := range map[string]string{
		event("DTSTART:20260101T020000.5"):                               "want a date such as",
		event(at, "EXDATE:20260101T020000.000Z"):                         "want a date such as",
		event("DTSTART:20260101T240000"):                                 "want a date such as",
		event("DTSTART:20261231T235960Z"):                                "want a date such as",
		event("DTSTART:20260230"):                                        "want a date such as",
		event("DTSTART:2026-01-01"):                                      "want a date such as",
		event("DTSTART:20260101T020000+0100"):                            "want a date such as",
		event("DTSTART:２０２６０１０１"):                                        "want a date such as",
		event(at, "EXDATE:"):                                             "want a date such as",
		event(at, "EXDATE:20260101T020000,"):                             "want a date such as",
		event(at, "RDATE:20260101T020000;20260102T020000"):               "want a date such as",
		event(at, "RDATE:20260102"):                                      "DTSTART and RDATE are not both dates",
		event(start, "RDATE:20260102T000000"):                            "DTSTART and RDATE are not both dates",
		event("DTSTART:20260101,20260102"):                               "DTSTART has 2 values",
		event("DTSTART;TZID=:20260101T020000"):                           "TZID has 1 values, or an empty one",
		event("DTSTART;TZID=Europe/Berlin,Asia/Tokyo:20260101T020000"):   "TZID has 2 values",
		event("DTSTART;TZID=Asia/Tokyo;TZID=Asia/Tokyo:20260101T020000"): "TZID has 2 values",
		event("DTSTART;VALUE=DATE;VALUE=DATE-TIME:20260101"):             "VALUE has 2 values",
		event("DTSTART;VALUE=TEXT:20260101"):                             "VALUE=TEXT is not supported",
		event(start, "DURATION:P0D"):                                     "an all-day event takes days",
		event(start, "RRULE:FREQ=DAILY;UNTIL=20260103T000000Z"):          "UNTIL=20260103T000000Z is a time, and DTSTART a date",
		event(start, "RRULE:FREQ=DAILY;UNTIL=20260103,20260104"):         "is not one value",
		event(start, "RRULE:FREQ=DAILY;;COUNT=2"):                        " is not supported",
		event(start, "RRULE:FREQ=DAILY;COUNT"):                           "COUNT is empty",
		event(start, "RRULE:FREQ=DAILY;COUNT=1e1"):                       "COUNT=1E1 is out of range",
		event(start, "RRULE:FREQ=DAILY;COUNT=9999999999999999999"):       "is out of range",
		event(start, "RRULE:FREQ=DAILY;BYMONTH=13"):                      `BYMONTH has the value "13"; want numbers from 1 to 12`,
		event(start, "RRULE:FREQ=DAILY;BYMONTH=1,"):                      `BYMONTH has the value ""`,
		event(start, "RRULE:FREQ=DAILY;BYMONTHDAY=0"):                    "want numbers from -31 to -1, or from 1 to 31",
		event(start, "RRULE:FREQ=DAILY;BYDAY=T"):                         `BYDAY has the value "T"`,
		event(start, "RRULE:FREQ=MONTHLY;BYDAY=0MO"):                     `BYDAY has the value "0"`,
		event(start, "RRULE:FREQ=MONTHLY;BYDAY=54MO"):                    `BYDAY has the value "54"`,
		event(start, "RRULE:FREQ=DAILY;WKST=1"):                          "WKST=1 is not a weekday",
		event(start, "RRULE:FREQ=DAILY;RSCALE=HEBREW"):                   "RSCALE is not supported",
		calendar("CALSCALE:HEBREW\r\n" + inner):                          "CALSCALE:HEBREW is not supported; want GREGORIAN",
		calendar("METHOD:CANCEL\r\n" + inner):                            "METHOD:CANCEL is not supported",
		calendar("BEGIN:X-BOX\r\n" + inner + "END:X-BOX\r\n" + inner):    "a VEVENT is inside a X-BOX",
		calendar(calendar(inner) + inner):                                "a VEVENT is inside a VCALENDAR",
		calendar(inner) + inner:                                          `expected "VCALENDAR", got "VEVENT"`,
		calendar(inner) + "DTSTART:20260101\r\n":                         "expected BEGIN",
		calendar(strings.Replace(inner, "END:VEVENT", "END:VTODO", 1)):   "expected END",
		strings.ReplaceAll(calendar(inner), "\r\n", "\r"):                "ends early",
		calendar("BEGIN:VEVENT\r\n" + start + "\r\n"):                    "expected END",
		"\ufffe" + calendar(inner):                                       "expected BEGIN",
		calendar(inner)[:60]:                                             "ends early",
		event(";VALUE=DATE:20260101"):                                    "empty property name",
		event("DTSTART;=DATE:20260101"):                                  "empty param name",
		event("DTSTART;TZID=\"UTC:20260101T000000"):                      "unterminated",
	} {
		_, err := ical.ParseText(text, "UTC")
		if err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "ical: ") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%.200q: %v, want %q", text, err, says)
		}
	}
	want(t, periods(t, parse(t, calendar("METHOD:publish\r\nCALSCALE:gregorian\r\n\r\n"+inner), "UTC"), "2026-01-01", "2027-01-01", "UTC"),
		"2026-01-01 00:00 - 2026-01-02 00:00")
}

// A file loads each of its zones once.
func TestZoneCost(t *testing.T) {
	text := event("DTSTART:20260101T000000Z", strings.Repeat("EXDATE;TZID=Europe/Berlin:20260101T000000\r\n", 20_000)+"DURATION:PT1H")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	parse(t, text, "UTC")
	runtime.ReadMemStats(&after)
	if perLine := (after.TotalAlloc - before.TotalAlloc) / 20_000; perLine > 3000 {
		t.Errorf("%d bytes a line", perLine)
	}
}
