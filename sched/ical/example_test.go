package ical_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/etcdclaims/claims/sched/ical"
)

// A schedule of package sched is not due on public holidays.
func ExampleParse() {
	const file = `BEGIN:VCALENDAR
VERSION:2.0
BEGIN:VEVENT
UID:christmas@example.org
DTSTART;VALUE=DATE:20201225
DTEND;VALUE=DATE:20201227
RRULE:FREQ=YEARLY
SUMMARY:Christmas
END:VEVENT
END:VCALENDAR
`
	holidays, err := ical.Parse(strings.NewReader(file), "Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	s := calendar.Except(calendar.Must(calendar.Cron("0 8 * * *", calendar.In("Europe/Berlin"))), holidays)
	fmt.Println(s.Next(time.Date(2026, 12, 24, 12, 0, 0, 0, time.UTC)))
	// Output: 2026-12-27 07:00:00 +0000 UTC
}
