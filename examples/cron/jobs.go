package main

import (
	"errors"
	"time"

	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// work is a job, what its handler does, and when it is due.
type work struct {
	job    sched.Job
	takes  time.Duration
	err    error // what the handler returns
	strict bool  // each tick runs to its end, however late; otherwise policies may leave ticks out
	// period is when it is due. The ledger does not ask the schedules of package
	// sched, because it judges them.
	period time.Duration
}

func works() []work {
	return []work{
		{
			period: time.Second, strict: true,
			job: sched.Job{
				Name: "second", Schedule: calendar.Must(calendar.Every(time.Second, 0)), History: 1000,
				CatchUp: sched.All{Max: 1000}, Overlap: sched.BufferAll{Max: 1000}, Guarantee: sched.AtLeastOnce, MaxStarts: 10,
			},
		},
		{
			period: 10 * time.Second, takes: 5 * time.Second, // of which it is killed
			job: sched.Job{
				Name: "long", Schedule: calendar.Must(calendar.Cron("*/10 * * * * *")), History: 1000,
				Guarantee: sched.AtLeastOnce, MaxStarts: 10,
			},
		},
		{
			period: 3 * time.Second, takes: 4 * time.Second, // so that runs would overlap
			job: sched.Job{Name: "overlapping", Schedule: calendar.Must(calendar.Every(3*time.Second, 0)), Overlap: sched.BufferOne{}, History: 1000},
		},
		{
			period: 5 * time.Second, err: errors.New("there is nothing to do"),
			job: sched.Job{Name: "failing", Schedule: calendar.Must(calendar.Cron("*/5 * * * * *")), History: 1000},
		},
	}
}

// due returns the ticks after from and not after to.
func (w work) due(from, to time.Time) (ticks []time.Time) {
	for t := from.Truncate(w.period).Add(w.period); !t.After(to); t = t.Add(w.period) {
		ticks = append(ticks, t)
	}
	return ticks
}
