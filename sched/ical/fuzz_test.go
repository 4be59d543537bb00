package ical_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/etcdclaims/claims/sched/ical"
)

// No file makes Parse panic or take long, and each calendar keeps the contract of
// calendar.Calendar.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.ics")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, lines := range [][]string{
		{"DTSTART:20260101T020000", "DURATION:P1DT1H", "RRULE:FREQ=MONTHLY;BYDAY=-1SU;BYSETPOS=1;COUNT=9"},
		{"DTSTART;VALUE=DATE:20260101", "RRULE:FREQ=YEARLY;BYWEEKNO=1,53;BYDAY=TH;UNTIL=20400101"},
		{"DTSTART;TZID=Africa/Cairo:20260424T000000", "DTEND:20260424T000000Z", "RDATE:20270101T000000Z", "EXDATE:20260424T000000"},
		{
			"DTSTART:20260101T020000.5", "EXDATE;TZID=Asia/Tokyo:20260101T100000,",
			"RDATE;VALUE=PERIOD:20260101T000000Z/PT1H", "RRULE:FREQ=DAILY;;COUNT",
		},
		{"DTSTART;VALUE=DATE:19040229", "RRULE:FREQ=YEARLY;BYYEARDAY=-366,60;BYDAY=-53SU,1MO;WKST=SU;INTERVAL=4", "EXDATE;VALUE=DATE:19040229"},
		{"BEGIN:VEVENT", "END:VEVENT", "DTSTART;TZID=\"Europe/Ber\r\n lin\":20260329T023000", "RRULE:FREQ=DAILY;BYMONTHDAY=-31,31;BYSETPOS=-1"},
	} {
		f.Add([]byte(event(lines...)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		began := time.Now()
		c, err := ical.Parse(bytes.NewReader(text), "Europe/Berlin")
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("took %v", d)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "ical: ") {
				t.Error(err)
			}
			return
		}
		at, was := time.Date(1800, 1, 1, 0, 0, 0, 0, time.UTC), false
		for n := range 1000 {
			covered, until := c.Covers(at)
			if n > 0 && covered == was {
				t.Fatalf("two periods with the same answer meet at %v", at)
			}
			if until.IsZero() {
				if covered {
					t.Fatalf("covered for ever from %v", at)
				}
				break
			}
			if !until.After(at) {
				t.Fatalf("the period of %v ends at %v", at, until)
			}
			if last, _ := c.Covers(until.Add(-1)); last != covered {
				t.Fatalf("the answer changes before %v", until)
			}
			at, was = until, covered
		}
		s := calendar.Except(calendar.Must(calendar.Every(time.Hour, 0)), c)
		if next := s.Next(time.Unix(0, 0)); !next.IsZero() {
			if covered, _ := c.Covers(next); covered {
				t.Errorf("%v is covered", next)
			}
		}
	})
}
