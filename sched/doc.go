// Package sched runs jobs on schedules, in all processes that share an etcd. Each tick
// of a schedule is admitted once, that is, the owner of the group lets it run. It is run by
// one process at a time. By default it is attempted once; AtLeastOnce and Retry allow
// further attempts. It is cron that survives the death of any process, and that records which ticks did not run.
//
//	scheduler, err := sched.New(claims, sched.Config{Group: "billing"})
//	...
//	err = scheduler.Add(sched.Job{
//		Name:     "invoices",
//		Schedule: calendar.Must(calendar.Cron("30 2 * * *", calendar.In("Europe/Berlin"))),
//		Handler:  func(ctx context.Context, tick sched.Tick) error { ... },
//	})
//	...
//	err = scheduler.Run(ctx) // in each process, until ctx ends
//	err = errors.Join(err, claims.Close(context.Background()))
//
// A tick is one instant of one job's schedule. A run is one execution of its handler.
// [CatchUp] decides about ticks that were missed. [Overlap] decides about ticks that come
// due while a run of the job is in progress. [Guarantee] decides about runs whose process
// died, and [Retry] about those that fail.
//
// A job is a function in code, which [Scheduler.Add] adds, or data in etcd: any process can
// define it at run time with [Scheduler.Define], and [Scheduler.Handle] registers the
// functions that run such jobs.
//
// # Schedules
//
// Package [github.com/etcdclaims/claims/sched/calendar] has the schedules, the calendars of
// days on which they are not due, and the syntax of their texts. [calendar.Cron] follows the
// wall clock of a time zone. [calendar.Every] counts from the Unix epoch, so all processes
// agree and a restart moves nothing. The schedules of robfig/cron v3 and of River can be used
// too. A [calendar.Schedule] runs nothing and reads no clock.
//
// Where summer time begins, clocks skip times; where it ends, they show times twice. If a Cron
// expression names times of the day, as in "30 2 * * *", such times are due once by default;
// see [calendar.GapPolicy] and [calendar.FoldPolicy]. If its minute or hour field begins with
// *, it is due whenever the clock shows a matching time.
//
// # What is not guaranteed
//
// Handlers do not run exactly once. A tick can have several attempts. Each attempt
// begins at most once. If the process dies during a run, [AtMostOnce] records the run as
// lost, and [AtLeastOnce] begins the tick again with Attempt one greater, up to
// Job.MaxStarts attempts (5 by default). The record of a
// tick has the outcome of its last attempt. A handler that finished its work and then died cannot be
// distinguished from one that died before.
//
// Effects outside etcd are not undone. Two attempts can send a mail twice. Pass
// [Tick.ID], which is the same for each attempt, to services that accept an
// idempotency key. The handler's context carries the fence of the run as a token. Unless
// the job's Overlap is [Allow], the runs of a job have rising fences. A resource that
// refuses lower fences is safe from a frozen run that wakes up. A resource that does not
// check the fence is not. With Allow each tick has a key of its own, and the fences of
// different ticks say nothing about their order.
//
// Two runs of a job can overlap in time even where its Overlap forbids that. A
// process that was frozen until its lease ended continues until it notices. Its
// record is refused, and so is each write under its fence.
//
// Ticks do not start exactly on time. After the death of the group's owner the next
// tick is admitted within the owner's TTL plus one second (16 s by default).
// If etcd loses its leader as well, it is admitted within 2 TTL + 4 s. The job's
// CatchUp decides about the ticks that came due in between.
//
// Clocks need not be right. The wall clock of the owner determines which ticks are
// due. If that clock is wrong, ticks come early or late, or are treated as missed, but
// never twice. If it is put back, ticks wait until it reaches its old time
// again, unless an operator calls [Scheduler.ResetMark]. [Scheduler.Resume] leaves out the ticks up to the present, by the clock of the
// process that calls it. If that clock is a minute fast, the ticks of that minute are left
// out, too.
//
// Processes with different versions of the tz database can give a Cron schedule
// different instants. One owner at a time decides, so two versions of a tick do not run
// at the same time. After a take-over the new owner can run its version of a tick that the
// old one already ran. Package calendar describes how to use one
// version everywhere. UTC is not affected.
//
// With a client of etcdclaims.NewPassthrough a Scheduler runs its jobs in this process, and
// does not coordinate with other processes; see [New]. Nothing is recorded then, and
// AtLeastOnce, PauseOnFailure, Limits, Priority and RunsOn have no effect.
//
// # Concurrency
//
// Each group has one owner, elected by a claim on "sched/<group>/owner". The owner
// admits ticks. An admission is one transaction under the condition that the claim is
// still held. It moves the job's high-water mark. All ticks up to that mark are decided: each
// was admitted or left out, and is not decided again. Each run has a claim of its own,
// which does not end with the ownership. The claim is on "sched/<group>/job/<job>", so
// that the runs of a job exclude each other. For [Allow] it is on a key per tick.
//
// Handlers are called on goroutines of their own. Their number is unlimited unless
// Config.Limit is set.
//
// The context of a handler ends by Timeout, Cancel, the end of Run or the loss of its
// claim. The handler then has the drain of the client (etcdclaims.Config.Drain) to
// return. After that the scheduler stops waiting for it. If the claim is still held, it
// moves to a lease that is not renewed, so the next run begins when that lease has
// expired. The record shows that the handler did not return.
//
// The owner does its kinds of work in turn. So a long backlog, or a job that is always
// due, delays a RunNow, a Pause or a new job by at most one round of that work. That is
// about a second on a busy owner. The cost of a group grows with the number of ticks that
// are due, not with the number of its jobs. docs/scheduling.md has the figures.
package sched
