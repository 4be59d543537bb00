// Package sched has schedules: pure functions that say at which instants
// something is due, and on which all replicas of a service agree.
//
// # What is not guaranteed
//
// Replicas agree on the instants of a [Cron] schedule as long as they agree on
// its text and on the rules of its time zone. Those rules come from the tz
// database of each machine, which governments change several times a year: two
// machines with different versions of it can take one wall-clock time for
// different instants. To have one version everywhere, point ZONEINFO to a
// database that is shipped with the program, or import time/tzdata and ship no
// other (it serves only where the machine has none). UTC has no rules to differ
// in.
//
// A schedule says when a tick is due. It does not run anything, and no instant
// that it returns was checked against a clock.
//
// # Instants
//
// [Schedule] has one method, Next. All schedules of this package
//   - return instants in UTC, without a monotonic reading, so that equal
//     instants are == and serve as keys of maps;
//   - have no instant outside the years 1 to 2399. So a search always ends, and
//     then Next returns the zero Time;
//   - read no clock and keep no state: the same question has the same answer on
//     every machine, and from any goroutine;
//   - are a [fmt.Stringer] with a canonical text. [Cron] makes the same schedule
//     from that text. Schedules with the same text have the same instants, given
//     the same tz database; so the text, or a hash of it, tells whether a
//     schedule was changed.
//
// # Two kinds
//
// [Every] counts from the Unix epoch, not from the start of a process, so that
// a restart moves nothing. [Cron] reads the calendar and the wall clock of a
// time zone.
//
// # When clocks are changed
//
// A wall clock that is put forward leaves times out (a gap), one that is put
// back shows times twice (a fold). What a [Cron] schedule does then depends on
// its hour field.
//
// If the hour field begins with *, as in "*/10 * * * *" or "0 */2 * * *", the
// schedule follows the wall clock as it really runs: it is due whenever the
// clock shows a time that matches. So an hour that is shown twice counts twice,
// and one that is left out not at all.
//
// Any other hour field names hours, as in "30 2 * * *", and "0-23" does too.
// What is due at a certain time of the day should come once on each day, so
// there the policies decide, for every time that matches:
//
//	GapFire    left out: due once, at the first instant after the gap (default)
//	GapSkip    left out: not due
//	FoldFirst  shown twice: due the first time (default)
//	FoldLast   shown twice: due the last time
//	FoldBoth   shown twice: due both times
//
// However many matching times one gap leaves out, GapFire is due once for them,
// and if something is due at that instant anyway it is not due twice. A gap can
// be a whole day: Samoa had no 30 December 2011.
//
// In New York, 02:30 was left out on 8 March 2026 and 01:30 came twice on 1
// November 2026. "30 2 * * *" was due at 03:00 EDT on the first of these days,
// and "30 1 * * *" at 01:30 EDT on the second.
//
// # Why a parser of our own
//
// The parsers for Go that are in wide use or maintained were tried at such
// transitions, and are wrong at some. robfig/cron v3.0.1 leaves out times in a
// gap, and with them the whole day for "0 0 * * *" where clocks go forward at
// midnight (São Paulo on 4 November 2018, Cairo on 24 April 2026); in a fold it
// is due twice, for daily schedules too. netresearch/go-cron v0.9.1 mends the
// gap of New York, and none of the others. Their schedules are a [Schedule] as
// they are, though, and so are River's.
package sched
