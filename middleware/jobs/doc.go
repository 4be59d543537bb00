// Package jobs lets the jobs of asynq, River and watermill, and those of
// robfig/cron and gocron, run under claims. It imports none of them: what it makes
// has their types, or fits them by one type parameter.
//
//	mux.Use(jobs.Asynq[asynq.Handler](claims, key, jobs.Config{}))                        // asynq.MiddlewareFunc
//	river.Config{Middleware: []rivertype.Middleware{jobs.River(claims, key, cfg)}}        // rivertype.WorkerMiddleware
//	router.AddMiddleware(jobs.Watermill[message.HandlerFunc](claims, key, cfg))           // message.HandlerMiddleware
//	c.Schedule(ticks, ticks.Job(report))                                                  // cron.Schedule, cron.Job
//	s.NewJob(crontab, gocron.NewTask(ticks.Task(report)), gocron.WithCronImplementation(ticks))
//
// Jobs of a queue have a key each: [Asynq], [River], [Watermill]. What is run by the
// clock is run once for each tick: [Ticks]. For gocron there are [Locker] and
// [Elector] beside it, which know no ticks.
//
// # What is not guaranteed
//
// A job may overlap with another's for a moment if its process is stopped past the
// claim's deadline. Its context ends, its queue is not told that it is done, and
// what it wrote with its fence is refused; but what it did without a fence is done.
// Call fencing.Check with its context right before each effect, and fence the
// effect.
//
// A queue that delivers at least once goes on to do so: a job that was done may be
// done again if the queue is not told. See middleware.FuncOnce for a function that
// is not run twice for one key.
//
// # Failing closed
//
// Whatever goes wrong on the way, an unknown outcome included, the job is not run. A
// panic, and Goexit, give the claim up and go on. If the claim was lost before the
// job had returned, that is an error that matches fencing.ErrLost, whatever the job
// returned.
//
// What does not fit, such as a type parameter that is no interface of the library,
// is found where a wrapper is made: it panics there, or returns an error.
//
// # Without etcd
//
// Claims that are nil or a passthrough, as a nil *etcdclaims.Client is, run
// everything. Middlewares and wrappers return what they were given, then.
//
// # Concurrency
//
// All that the package returns is safe for concurrent use.
package jobs
