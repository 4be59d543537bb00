// Package ical reads the events of an iCalendar file (RFC 5545), such as the public
// holidays of a country or the maintenance windows of a data center, as a calendar for
// [sched.Except] and [sched.Only]:
//
//	closed, err := ical.Parse(file, "Europe/Berlin")
//	...
//	schedule := sched.Except(sched.Must(sched.Cron("30 2 * * *", sched.In("Europe/Berlin"))), closed)
//
// The calendar covers the time from the start of each event until just before its end. A
// VTODO, a VFREEBUSY, an event that is cancelled, and an event at a time without an end
// cover nothing. TRANSP is ignored: public holidays are often marked as free time.
//
// # What is understood
//
// DTSTART, DTEND and DURATION; RRULE by the day, week, month and year; RDATE and EXDATE
// with lists of dates and times; RECURRENCE-ID for single instances that were moved or
// cancelled. All-day events, and times without a zone, are in the zone that the caller
// names. A TZID is a name of the tz database. What a VTIMEZONE says is not used.
//
// Parse returns an error, which names the event and the property, for what it does not
// understand rather than leave it out: rules by the hour or shorter, BYHOUR, BYMINUTE and
// BYSECOND, EXRULE, periods in RDATE, RANGE, a TZID that is not in the tz database (such as
// "W. Europe Standard Time"), and a DTSTART that is not an instance of its RRULE.
//
// # When clocks change
//
// A rule follows the wall clock. A time in a gap is that much later, and a time in a fold is
// the first of the two, as RFC 5545 demands. With DTEND all instances of an event at a time
// are equally long; with DURATION its days are days of the calendar. All-day events are days
// of the calendar.
//
// # Bounds
//
// A file has at most 2 MiB, and lines of 64 KiB. Its events have at most 200,000 instances.
// Rules begin in the year 1900 or later, and have no instance from the year 2100 on.
//
// The package links github.com/emersion/go-ical and github.com/teambition/rrule-go. Nothing
// else in this module does.
//
// [sched.Except]: https://pkg.go.dev/github.com/etcdclaims/claims/sched#Except
// [sched.Only]: https://pkg.go.dev/github.com/etcdclaims/claims/sched#Only
package ical
