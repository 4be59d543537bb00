// Package ical reads the events of an iCalendar file (RFC 5545), such as the public
// holidays of a country or the maintenance windows of a data center, as a calendar for
// [calendar.Except] and [calendar.Only]:
//
//	closed, err := ical.Parse(file, "Europe/Berlin")
//	...
//	schedule := calendar.Except(calendar.Must(calendar.Cron("30 2 * * *", calendar.In("Europe/Berlin"))), closed)
//
// The calendar covers the time from the start of each event until just before its end. A
// VTODO, a VFREEBUSY, an event that is cancelled, and an event that begins at a time of
// day and has no end cover nothing. TRANSP is ignored: public holidays are often marked as free time.
//
// # What is understood
//
// DTSTART, DTEND and DURATION; RRULE by the day, week, month and year; RDATE and EXDATE
// with lists of dates and times; RECURRENCE-ID for single instances that were moved or
// cancelled. All-day events, and times without a zone, are in the zone that the caller
// names. A TZID is a name of the tz database; VTIMEZONE components are ignored. A TZID does
// not apply to dates. A RECURRENCE-ID that is not an instance of the event replaces nothing.
//
// # What is refused
//
// Parse ignores nothing that could change the instants. It returns an error, which names the
// event and the property, for:
//
//   - Rules by the hour or shorter, BYHOUR, BYMINUTE and BYSECOND, and EXRULE.
//   - BYWEEKNO and BYYEARDAY without FREQ=YEARLY, and BYMONTHDAY with FREQ=WEEKLY.
//   - BYWEEKNO other than 1 to 51, and BYSETPOS with FREQ=WEEKLY or DAILY.
//   - Numbers in BYDAY with FREQ=WEEKLY or DAILY, with BYWEEKNO, or on some of its days only.
//   - A rule with both UNTIL and COUNT, with a part twice, or without a value.
//   - A DTSTART that is not an instance of its RRULE.
//   - An UNTIL that is a time if DTSTART is a date.
//   - Periods in RDATE, and RANGE of RECURRENCE-ID.
//   - A RECURRENCE-ID that is a date if DTSTART of the recurring event is a time, or vice versa.
//   - CALSCALE other than GREGORIAN, and METHOD other than PUBLISH or REQUEST.
//   - A VEVENT inside of another component than a VCALENDAR.
//   - A TZID that is not in the tz database, such as "W. Europe Standard Time".
//   - TZID, VALUE or RANGE twice in a property, or empty, and fractions of a second.
//   - UID, STATUS, DTSTART, DTEND, DURATION, RRULE or RECURRENCE-ID twice in an event.
//   - Two events with the same UID and the same RECURRENCE-ID, or with the same UID and
//     without RECURRENCE-ID, whatever their SEQUENCE.
//
// # When clocks change
//
// A rule follows the wall clock. A time in a gap is read with the UTC offset before the gap:
// 02:30 becomes 03:30 if clocks skip an hour. A time in a fold is the first of the two. RFC
// 5545 demands both. If an event that begins at a time of day has a DTEND, all its
// instances are equally long. The days of a DURATION, and all-day events, are days of the
// calendar, which may have 23 or 25 hours.
//
// # Bounds
//
// A file has at most 2 MiB, lines of 64 KiB, and 8 KiB before the value of a line. At most
// 1,000 of its events have an RRULE, with at most 10 values of BYSETPOS each. The different
// rules span at most 10,000,000 days together, from DTSTART to their last instance. Months and
// years that BYMONTH, INTERVAL or FREQ=YEARLY skips do not count. The events of a file have at
// most 200,000 instances. A file beyond a bound is refused.
// Rules begin in the year 1900 or later, and have no instance from the year 2100 on.
//
// The package links github.com/emersion/go-ical, and github.com/teambition/rrule-go through
// it. Nothing else in this module does.
//
// [calendar.Except]: https://pkg.go.dev/github.com/etcdclaims/claims/sched/calendar#Except
// [calendar.Only]: https://pkg.go.dev/github.com/etcdclaims/claims/sched/calendar#Only
package ical
