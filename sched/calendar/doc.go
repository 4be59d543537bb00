// Package calendar computes the instants at which something is due. [Cron]
// follows a cron expression in a time zone. [Every] returns fixed intervals, and [At] one instant.
//
//	s, err := calendar.Cron("30 2 * * MON-FRI", calendar.In("Europe/Berlin"))
//	...
//	next := s.Next(time.Now())
//
// The package runs nothing and reads no clock. It imports the standard library
// alone, so programs that use another scheduler can use its schedules without
// linking etcd: a [Schedule] fits robfig/cron v3 and River. Package sched runs jobs on
// these schedules by etcd.
//
// # Instants
//
// Every schedule of this package
//   - returns instants in UTC, without a monotonic reading. Equal instants are
//     equal under ==, so they can be the keys of a map;
//   - has no instant outside the years 1 to 2399. A search therefore always ends.
//     Next returns the zero Time when no later instant exists;
//   - reads no clock and keeps no state. Next returns the same result on every
//     machine with the same tz database, and is safe for concurrent use;
//   - is a [fmt.Stringer], except for some results of [Except] and [Only]. Its text is
//     canonical. [Cron] parses the text of Cron, [Every] and [At] into the same schedule. Two
//     schedules with the same text have the same instants if they use the same tz database. Compare the texts, or hashes of them, to
//     detect that a schedule has changed.
//
// # Every and Cron
//
// [Every] counts from the Unix epoch, not from the start of a process. A restart
// therefore moves nothing. [Cron] follows the calendar and the wall clock of a
// time zone.
//
// # Calendars
//
// [Except] leaves out the instants that a [Calendar] covers, such as public holidays.
// [Only] keeps those alone. Calendars come from dates ([Dates]), from a function of the
// day ([Days]), or are a type of your own with one method. [Bound] keeps the instants of a
// time, or a number of them.
//
// # When clocks change
//
// A wall clock that is put forward skips some times (a gap). A wall clock that is
// put back shows some times twice (a fold). The effect on a [Cron] schedule
// depends on its minute and hour fields.
//
// If one of them begins with *, as in "*/10 2 * * *" or "0 */2 * * *", the schedule
// follows the wall clock: it is due whenever the clock shows a matching time. Times
// in a fold are due twice, and times in a gap are not due. This is the rule of
// Debian's cron and of cronie.
//
// Otherwise the fields name times of the day, as in "30 2 * * *". "0-59" and "0-23"
// name times too. People expect each of these times once on a day that matches,
// but on the day of a change a time is missing or comes twice. Two policies decide:
//
//	GapFire    in a gap: due once, at the first instant after the gap (default)
//	GapSkip    in a gap: not due
//	FoldFirst  in a fold: due the first time (default)
//	FoldLast   in a fold: due the last time
//	FoldBoth   in a fold: due both times
//
// GapFire is due once per gap, however many matching times the gap skips. If the
// schedule is due at that instant anyway, it is still due once. A gap can be a
// whole day: Samoa had no 30 December 2011.
//
// Example: New York had no 02:30 on 8 March 2026, and had 01:30 twice on
// 1 November 2026. "30 2 * * *" was due at 03:00 EDT on the first of these days.
// "30 1 * * *" was due at 01:30 EDT on the second.
//
// # Time zone data
//
// Two processes agree on the instants of a [Cron] schedule if they agree on its
// text and on the rules of its time zone. The rules come from the tz database of
// each machine. Governments change them several times a year, so two machines
// with different versions can give one wall-clock time different instants. To
// use one version everywhere, ship a database with the program and set ZONEINFO
// to its path, or import time/tzdata and install no other database: time/tzdata is only
// used where the machine has no tz database. UTC has no rules.
//
// # Why another cron parser
//
// The widely used or maintained Go parsers were tested at such clock changes, and
// each is wrong at some of them. robfig/cron v3.0.1 drops the times in a gap. It
// drops the whole day for "0 0 * * *" where clocks go forward at midnight (São
// Paulo on 4 November 2018, Cairo on 24 April 2026). In a fold it is due twice,
// even for daily schedules. netresearch/go-cron v0.9.1 fixes only the gap of New York.
package calendar
