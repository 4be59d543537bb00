// Package sched runs jobs at the ticks of schedules, each tick once across all
// processes that share an etcd: cron that survives the death of any of them,
// without doubles and without gaps that nothing tells of.
//
//	scheduler, err := sched.New(claims, sched.Config{Group: "billing"})
//	...
//	err = scheduler.Add(sched.Job{
//		Name:     "invoices",
//		Schedule: sched.Must(sched.Cron("30 2 * * *", sched.In("Europe/Berlin"))),
//		Handler:  func(ctx context.Context, tick sched.Tick) error { ... },
//	})
//	...
//	err = scheduler.Run(ctx) // in as many processes as there are
//
// # What is not guaranteed
//
// That a handler runs exactly once. Each tick is begun at most once; what
// became of it is recorded. If its process dies in the midst of it,
// [AtMostOnce] records it as lost, and [AtLeastOnce] begins it again with
// Attempt one greater. Nobody can tell a handler that did its work and died
// from one that did not.
//
// That effects outside of etcd are recalled. A mail is sent twice if it is
// sent by two attempts: give [Tick.ID], the same for each attempt, to whoever
// can use an idempotency key. Runs of a job have rising fences, which the
// handler's context carries as a token: a resource that refuses lower fences
// is safe from a run that was frozen and wakes. The fence protects nothing
// that does not look at it.
//
// That two runs of a job never overlap in time, where its Overlap forbids it.
// A process that was stopped across the end of its lease acts until it
// notices. Its record, and each write under its fence, is refused.
//
// That a tick starts at its time. After the death of the owner of a group the
// next tick is admitted within the TTL of its claims and a second (16 s by
// default), after the loss of etcd's leader within 2 TTL + 4 s; what came due
// meanwhile is for the job's CatchUp.
//
// That clocks are right. The wall clock of the owner says when ticks are due.
// If it is wrong ticks come early, late, or are caught up with as if missed;
// none comes twice. Put back, it lets ticks wait until it is again where it
// was. The wall clock of who calls [Scheduler.Resume] says from when on they are
// due again: ahead of the owner's, it leaves out what comes due in between.
//
// Replicas agree on the instants of a [Cron] schedule as long as they agree
// on its text and on the rules of its time zone. Those rules come from the tz
// database of each machine, which governments change several times a year:
// two machines with different versions of it can take one wall-clock time for
// different instants. One owner at a time says what is due, so they do not
// both run theirs; but a take-over can run both. To have one version
// everywhere, point ZONEINFO to a database that is shipped with the program,
// or import time/tzdata and ship no other (it serves only where the machine
// has none). UTC has no rules to differ in.
//
// Without etcd, with a nil client, a [Scheduler] runs its jobs in this
// process alone, as every other process does: see [New]. Nothing is recorded
// then, and AtLeastOnce and PauseOnFailure do nothing.
//
// A [Schedule] alone says when a tick is due. It does not run anything, and
// no instant that it returns was checked against a clock.
//
// # Concurrency
//
// Each group has one owner, elected by a claim on "sched/<group>/owner". It
// admits ticks; that is one transaction under the guard of that claim, which
// moves the job's high-water mark beyond the tick. Each run has a claim of
// its own: on "sched/<group>/job/<job>", so that runs exclude each other, or
// on a key of the tick's own for [Allow]. It does not end with the ownership.
// Handlers are called on goroutines of their own. Those of one process are
// not limited unless Config.Limit says so.
//
// A handler that was told to stop, by Timeout, Cancel, the end of Run or the
// loss of its claim, has a drain (etcdclaims.Config.Drain) to return in.
// After that it is shut out: its claim is moved to a lease that nobody
// renews, the record says lost, and the next run begins when that lease has
// lapsed.
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
