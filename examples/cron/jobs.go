package main

import (
	"errors"
	"time"

	"github.com/etcdclaims/claims/sched"
)

// The groups. A scheduler has one clock, so what follows another one has a
// scheduler, and a group, of its own.
const (
	real      = "real"
	simulated = "simulated" // a day takes six seconds
)

// zone had no midnight on 4 November 2018: clocks went from 0:00 to 1:00.
const zone = "America/Sao_Paulo"

// A work is a job as the processes do it and as the ledger judges it.
type work struct {
	group string
	job   sched.Job
	takes time.Duration
	err   error // what it returns
	// strict: each tick is run to its end, however late. Else its policies allow
	// to leave ticks out.
	strict bool
	// due returns what is due after from and not after to. The ledger does not ask
	// the schedules of package sched, which are what it judges.
	due func(from, to time.Time) []time.Time
}

func works(long time.Duration) []work {
	all := []work{
		{
			group: real, due: every(time.Second), strict: true,
			job: sched.Job{
				Name: "second", Schedule: sched.Must(sched.Every(time.Second, 0)),
				CatchUp: sched.All{Max: 1000}, Overlap: sched.BufferAll{Max: 1000}, Delivery: sched.AtLeastOnce, MaxAttempts: 10,
			},
		},
		{
			group: real, due: every(time.Minute), takes: long,
			job: sched.Job{
				Name: "minute", Schedule: sched.Must(sched.Cron("* * * * *")), RunOnStart: true, Delivery: sched.AtLeastOnce, MaxAttempts: 10,
			},
		},
		{
			group: simulated, due: midnights,
			job: sched.Job{Name: "midnight", Schedule: sched.Must(sched.Cron("0 0 * * *", sched.In(zone)))},
		},
		{
			group: real, due: every(3 * time.Second), takes: 4 * time.Second, // so that runs would overlap
			job: sched.Job{Name: "overlapping", Schedule: sched.Must(sched.Every(3*time.Second, 0)), Overlap: sched.BufferOne{}},
		},
		{
			group: real, due: every(5 * time.Second), err: errors.New("there is nothing to do"),
			job: sched.Job{Name: "failing", Schedule: sched.Must(sched.Cron("*/5 * * * * *"))},
		},
	}
	for i := range all {
		all[i].job.History = 1000
	}
	return all
}

func every(period time.Duration) func(from, to time.Time) []time.Time {
	return func(from, to time.Time) (all []time.Time) {
		for t := from.Truncate(period).Add(period); !t.After(to); t = t.Add(period) {
			all = append(all, t)
		}
		return all
	}
}

// midnights are the first minutes of days.
func midnights(from, to time.Time) (all []time.Time) {
	place, err := time.LoadLocation(zone)
	if err != nil {
		panic(err) // the schedule was made with it
	}
	for t := from.Truncate(time.Minute).Add(time.Minute); !t.After(to); t = t.Add(time.Minute) {
		if t.In(place).Day() != t.Add(-time.Minute).In(place).Day() {
			all = append(all, t)
		}
	}
	return all
}

// A clock is where a group's clock stood at the start of the program, and how
// fast it goes.
type clock struct {
	start, stood time.Time
	speed        time.Duration
}

func clocks(start time.Time) map[string]clock {
	return map[string]clock{
		real:      {start, start, 1},
		simulated: {start, time.Date(2018, time.November, 1, 12, 0, 0, 0, time.UTC), 24 * 60 * 60 / 6},
	}
}

// now is what a process takes for the time whose clock is wrong by skew.
func (c clock) now(skew time.Duration) time.Time {
	return c.stood.Add(c.speed * (time.Since(c.start) + skew))
}
