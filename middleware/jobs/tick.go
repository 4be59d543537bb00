package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// Schedule says when a job is due: cron.Schedule of robfig/cron,
// river.PeriodicSchedule, sched.Schedule. Next returns the first instant after t
// that is due, and the zero Time if there is none.
type Schedule interface {
	Next(t time.Time) time.Time
}

// Tick is one instant at which a job is due: what replicas agree on, however late
// or early each of them is.
type Tick struct {
	Job     string
	Nominal time.Time // UTC
}

// Key returns what names the tick, such as "report/2026-11-02T03:00:00Z": the key
// of its work, and an idempotency key for systems that take one.
func (t Tick) Key() string { return t.Job + "/" + t.Nominal.UTC().Format(time.RFC3339Nano) }

type tickKey struct{}

// TickOf returns the tick that ctx is for; ok is false where there is none.
func TickOf(ctx context.Context) (t Tick, ok bool) {
	t, ok = ctx.Value(tickKey{}).(Tick)
	return t, ok
}

// checkJob says what is wrong with a job's name.
func checkJob(job string) error {
	longest := Tick{Job: job, Nominal: time.Unix(0, 1)}.Key()
	if job == "" {
		return errors.New("jobs: a job needs a name")
	}
	if err := (fencing.Token{Key: longest, Fence: 1}).Validate(); err != nil {
		return fmt.Errorf("jobs: the name %.80q of a job makes no keys: %w", job, err)
	}
	return nil
}

// checkSchedule says what is wrong with a schedule for replicas. One that counts
// from when it is asked has instants of its own in each of them.
func checkSchedule(job string, s Schedule, now time.Time) error {
	due := s.Next(now)
	if due.IsZero() {
		return fmt.Errorf("jobs: job %q is never due", job)
	}
	if !due.After(now) {
		return fmt.Errorf("jobs: the schedule of job %q goes back: after %v it says %v", job, now, due)
	}
	// Right before it is due all but such a schedule say the same again.
	between := due.Add(-min(due.Sub(now)/2, time.Millisecond))
	if again := s.Next(between); !again.Equal(due) {
		return fmt.Errorf("jobs: the schedule of job %q counts from when it is asked, so that replicas would not agree on ticks: "+
			"after %v it says %v, after %v already %v; use one like sched.Every, which counts from the Unix epoch", job, now, due, between, again)
	}
	return nil
}

// newest returns the newest instant that is due at now, and the next after it, or
// the zero Time where there is none. It looks back ever further, and goes on from
// there: a schedule only says what comes after.
func newest(s Schedule, now time.Time) (due, next time.Time) {
	const far = 100 * 366 * 24 * time.Hour
	for back := time.Second; back < far; back *= 2 {
		if due = s.Next(now.Add(-back)); !due.IsZero() && !due.After(now) {
			break
		}
	}
	if due.IsZero() || due.After(now) {
		return time.Time{}, due
	}
	for {
		next = s.Next(due)
		if !next.After(due) || next.After(now) { // the first: it is over, or broken
			return due, next
		}
		due = next
	}
}

// early is how much a timer may fire before its time: it counts by another clock
// than the wall's, which may be slewed meanwhile.
const early = time.Second

// tickAt returns the tick that a job is for that starts at now: the newest that is
// due, or if that was taken the next, if it is due in a moment.
func tickAt(s Schedule, now, taken time.Time) (nominal time.Time, ok bool) {
	due, next := newest(s, now)
	switch moment := min(early, next.Sub(due)/2); {
	case next.IsZero(), next.Sub(now) > moment:
	case due.IsZero(), !due.After(taken):
		return next, true
	}
	return due, !due.IsZero()
}
