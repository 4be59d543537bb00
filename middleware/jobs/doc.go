// Package jobs runs jobs under claims: those of the queues asynq, River and
// watermill, and those of the schedulers robfig/cron and gocron. It imports none
// of these libraries. Its functions return the types that the libraries use. Where such a
// type belongs to the library, the function has it as a type parameter.
//
//	mux.Use(jobs.Asynq[asynq.Handler](claims, key, jobs.Config{}))                        // asynq.MiddlewareFunc
//	river.Config{Middleware: []rivertype.Middleware{jobs.River(claims, key, cfg)}}        // rivertype.WorkerMiddleware
//	router.AddMiddleware(jobs.Watermill[message.HandlerFunc](claims, key, cfg))           // message.HandlerMiddleware
//	c.Schedule(ticks, ticks.Job(report))                                                  // cron.Schedule, cron.Job
//	s.NewJob(crontab, gocron.NewTask(ticks.Task(report)), gocron.WithCronImplementation(ticks))
//
// A job of a queue has a key of its own: see [Asynq], [River] and [Watermill]. Of
// the processes that schedule a job, one runs it for each tick: see [Ticks]. For gocron there are also
// [Locker] and [Elector], which know nothing of ticks.
//
// # What is not guaranteed
//
// If a process is suspended past its claim's deadline, its job may overlap with another
// one until it returns after the end of its context. For a job of cron without a context
// there is no such bound. The job's context ends, the queue does not record it
// as done, and its fenced writes are refused. Effects without a fence are not
// undone. Call fencing.Check with the job's context immediately before each effect,
// and fence the effect.
//
// A queue with at-least-once delivery remains one: a finished job may run again
// if the queue is not notified. See middleware.FuncOnce for a function that does
// not run again for the same key.
//
// # Failing closed
//
// If anything goes wrong before a job runs, it does not run. That includes an
// unknown outcome. If the job panics or calls runtime.Goexit, the claim is
// released, and the panic or Goexit continues. If the claim was lost before the
// job returned, the error matches fencing.ErrLost, whatever the job returned.
//
// A wrapper whose type parameter is not the library's interface panics when it is made, or
// does not compile where it is used.
//
// # Without etcd
//
// With a client of etcdclaims.NewPassthrough, every job runs. Middlewares and wrappers then
// return their argument unchanged. With a nil client no job runs: NewTicks and Elector.Run
// return an error, and the others return one for each job.
//
// # Concurrency
//
// Everything that the package returns is safe for concurrent use.
package jobs
