package jobs

import (
	"context"
	"errors"
	"time"
)

// job is a cron.Job of robfig/cron.
type job struct {
	ticks *Ticks
	fn    func(ctx context.Context) error
}

// Job returns fn as a cron.Job for robfig/cron. It does what Task does. robfig/cron
// passes no context to a job and takes no error from it: see TicksConfig.Context
// and TicksConfig.Report.
//
//	nightly, err := jobs.NewTicks(claims, works, "report", schedule, jobs.TicksConfig{})
//	c.Schedule(nightly, nightly.Job(report))
//
// Job panics if fn is nil.
func (t *Ticks) Job(fn func(ctx context.Context) error) interface{ Run() } {
	if fn == nil {
		panic("jobs: Job needs a function")
	}
	return &job{ticks: t, fn: fn}
}

// Run runs the job for the tick that is due. robfig/cron calls it at each tick.
func (j *job) Run() {
	ctx := j.ticks.cfg.Context()
	tick, err := j.ticks.do(ctx, j.fn)
	j.ticks.log(ctx, tick, err)
}

// CronWrapper returns a job wrapper for robfig/cron; J is cron.Job. It is for
// existing jobs that take no context. Such a job has no fence, and cannot stop
// when its claim is lost. Prefer Ticks.Job for new jobs.
//
//	c.Schedule(nightly, cron.NewChain(jobs.CronWrapper[cron.Job](nightly), cron.Recover(logger)).Then(job))
//
// Put it first in the chain: after a wrapper that delays a job, it would run the
// job for a later tick. In robfig/cron v3.0.1, SkipIfStillRunning skips forever
// once the job has panicked; TicksConfig.Alone does not.
//
// CronWrapper panics if ticks is nil, or if it cannot make a J, such as
// cron.FuncJob. If ticks has no claims, jobs are returned unchanged.
func CronWrapper[J interface{ Run() }](ticks *Ticks) func(J) J {
	if ticks == nil {
		panic("jobs: CronWrapper needs ticks")
	}
	must[J](&job{})
	if ticks.try == nil {
		return func(j J) J { return j }
	}
	return func(j J) J {
		return must[J](ticks.Job(func(context.Context) error {
			j.Run()
			return nil
		}))
	}
}

// IsValid makes Ticks a gocron.Cron:
//
//	s.NewJob(gocron.CronJob("as in the schedule", false), gocron.NewTask(nightly.Task(report)),
//		gocron.WithCronImplementation(nightly), gocron.WithName("report"))
//
// IsValid ignores the crontab and the location. The schedule of the ticks, with
// its own time zone, decides. It returns an error if that schedule is never due
// after now.
func (t *Ticks) IsValid(_ string, _ *time.Location, now time.Time) error {
	if t.schedule.Next(now).IsZero() {
		return errors.New("jobs: job " + t.job + " is not due any more")
	}
	return nil
}
