package sched

import "time"

// Entry is the record of one tick: its outcome.
type Entry struct {
	Group    string
	Job      string
	ID       string    // the tick; see Tick.ID
	Outcome  Outcome   // what happened to the tick
	Nominal  time.Time // the instant of the schedule, in UTC
	Actual   time.Time // when the tick should start; zero if that was not decided
	Admitted int64     // the revision of etcd at which the tick was admitted; 0 if it was not
	Fence    int64     // the fence of the run; 0 if the tick did not begin
	Attempt  int       // the last attempt that began; 0 if none did
	Missed   int       // the number of older ticks that were given up; for OutcomeMissed and OutcomePaused it includes this tick
	Owner    string    // the label of the process that ran the tick, for people
	Instance string    // the instance of that process; each process has a new one
	Began    time.Time // when the run began, by the clock of that process; zero if it did not
	Ended    time.Time // when the tick was recorded, by the clock of the process that recorded it
	Error    string    // the error of the handler, or why the tick did not run; empty if there is none
	Again    bool      // whether the run failed and the tick has another attempt; see Retry
}

func entryOf(group string, p past) Entry {
	return Entry{
		Group: group, Job: p.Job, ID: group + "/" + p.Job + "/" + p.ID, Outcome: p.Outcome, Nominal: p.Nominal.UTC(), Actual: p.Actual.UTC(),
		Admitted: p.Admitted, Fence: p.Fence, Attempt: p.Attempt, Missed: p.Missed, Owner: p.Owner, Instance: p.Instance,
		Began: p.Began, Ended: p.Ended, Error: p.Error, Again: p.Again,
	}
}
