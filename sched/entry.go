package sched

import (
	"fmt"
	"time"
)

// Entry is the record of one tick: what became of it.
type Entry struct {
	Group    string
	Job      string
	ID       string // of the tick: see Tick.ID
	Outcome  Outcome
	Nominal  time.Time
	Actual   time.Time // when it was to start, zero if that was not decided
	Admitted int64     // revision, 0 if it never waited to be begun
	Fence    int64     // of its run, 0 if it was not begun
	Attempt  int       // the last that was begun, 0 if none was
	Missed   int       // ticks before it that were given up; of OutcomeMissed, itself included
	Owner    string    // label of the process that ran it, for people
	Instance string    // of that process, new for each
	Began    time.Time // by that process's clock, zero if it was not begun
	Ended    time.Time // by the clock of who recorded it
	Error    string
}

// String returns one line for people.
func (e Entry) String() string {
	s := fmt.Sprintf("%s %-11s %s", e.Ended.UTC().Format(time.RFC3339), e.Outcome, e.ID)
	if !e.Began.IsZero() {
		s += fmt.Sprintf(" attempt %d, fence %d, %v by %s", e.Attempt, e.Fence, e.Ended.Sub(e.Began).Round(time.Millisecond), e.Owner)
	}
	if e.Missed > 0 {
		s += fmt.Sprintf(", %d missed", e.Missed)
	}
	if e.Error != "" {
		s += ": " + e.Error
	}
	return s
}

func (p past) entry(group string) Entry {
	return Entry{
		Group: group, Job: p.Job, ID: group + "/" + p.Job + "/" + p.ID, Outcome: p.Outcome, Nominal: p.Nominal, Actual: p.Actual,
		Admitted: p.Admitted, Fence: p.Fence, Attempt: p.Attempt, Missed: p.Missed, Owner: p.Owner, Instance: p.Instance,
		Began: p.Began, Ended: p.Ended, Error: p.Error,
	}
}
