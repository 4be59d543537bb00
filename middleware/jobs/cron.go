package jobs

import (
	"context"
	"errors"
	"time"
)

// Job is a job of robfig/cron.
type Job struct {
	ticks *Ticks
	fn    func(ctx context.Context) error
}

// Job returns fn as a job for robfig/cron, which gives jobs no context and takes no
// error from them: see TicksConfig's Context and Report. What it does is what Task
// does.
//
//	nightly, err := jobs.NewTicks(claims, "report", schedule, jobs.TicksConfig{})
//	c.Schedule(nightly, nightly.Job(report))
func (t *Ticks) Job(fn func(ctx context.Context) error) *Job {
	if fn == nil {
		panic("jobs: Job needs a function")
	}
	return &Job{ticks: t, fn: fn}
}

// Run is called by robfig/cron at each tick.
func (j *Job) Run() {
	ctx := j.ticks.cfg.Context()
	tick, err := j.ticks.do(ctx, j.fn)
	j.ticks.log(ctx, tick, err)
}

// CronWrapper returns a wrapper for robfig/cron, J being its Job, for a job that
// knows nothing of claims: it is not told when it should stop, nor of its fence, so
// that Ticks.Job is better where it fits.
//
//	c.Schedule(nightly, cron.NewChain(jobs.CronWrapper[cron.Job](nightly), cron.Recover(logger)).Then(job))
//
// It comes first in the chain: behind one that delays a job it would take it for a
// later tick. SkipIfStillRunning of robfig/cron v3.0.1 skips for good once the job
// has panicked: TicksConfig's Alone does not.
//
// CronWrapper panics if ticks is nil, and if J is a type that it cannot make, such
// as cron.FuncJob. For ticks without claims it returns jobs as they are.
func CronWrapper[J interface{ Run() }](ticks *Ticks) func(J) J {
	if ticks == nil {
		panic("jobs: CronWrapper needs ticks")
	}
	must[J](&Job{})
	if ticks.run == nil {
		return func(j J) J { return j }
	}
	return func(j J) J {
		return must[J](ticks.Job(func(context.Context) error {
			j.Run()
			return nil
		}))
	}
}

// IsValid makes Ticks a gocron.Cron.
//
//	s.NewJob(gocron.CronJob("as in the schedule", false), gocron.NewTask(nightly.Task(report)),
//		gocron.WithCronImplementation(nightly), gocron.WithName("report"))
//
// The crontab and the location are not looked at: the schedule of the ticks is what
// counts, with its own time zone. It is an error if that is never due after now.
func (t *Ticks) IsValid(_ string, _ *time.Location, now time.Time) error {
	if t.schedule.Next(now).IsZero() {
		return errors.New("jobs: job " + t.job + " is not due any more")
	}
	return nil
}
