package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
)

// Schedule determines when a job is due. cron.Schedule of robfig/cron,
// river.PeriodicSchedule and calendar.Schedule implement it. Next returns the first
// instant after t at which the job is due, or the zero Time if there is none.
type Schedule interface {
	Next(t time.Time) time.Time
}

// Tick is one instant at which a job is due. All replicas agree on it, however
// late or early each of them is.
type Tick struct {
	Job     string
	Nominal time.Time // UTC
}

// Key returns the identifier of the tick, such as "report/2026-11-02T03:00:00Z".
// It is the key of the tick's work. It can also be sent as an idempotency key.
func (t Tick) Key() string { return t.Job + "/" + t.Nominal.UTC().Format(time.RFC3339Nano) }

type tickKey struct{}

// TickOf returns the tick that ctx belongs to. ok is false if there is none.
func TickOf(ctx context.Context) (t Tick, ok bool) {
	t, ok = ctx.Value(tickKey{}).(Tick)
	return t, ok
}

// checkJob returns what is wrong with a job's name, or nil.
func checkJob(job string) error {
	longest := Tick{Job: job, Nominal: time.Unix(0, 1)}.Key()
	if job == "" {
		return errors.New("jobs: a job needs a name")
	}
	if err := (fencing.Token{Key: longest, Fence: 1}).Validate(); err != nil {
		return fmt.Errorf("jobs: the job name %.80q cannot be part of a key: %w", job, err)
	}
	if why := cmp.Or(keyspace.Unclaimable(job), keyspace.Unclaimable(longest)); why != "" {
		return fmt.Errorf("jobs: the job name cannot be part of a key: %s", why)
	}
	return nil
}

// checkSchedule returns why replicas cannot share a schedule, or nil. A schedule
// that counts from the time of the call has different instants in each replica.
func checkSchedule(job string, s Schedule, now time.Time) error {
	due := s.Next(now)
	if due.IsZero() {
		return fmt.Errorf("jobs: job %q is never due", job)
	}
	if !due.After(now) {
		return fmt.Errorf("jobs: the schedule of job %q goes back: after %v it returns %v", job, now, due)
	}
	// Any other schedule returns the same instant again immediately before it.
	between := due.Add(-min(due.Sub(now)/2, time.Millisecond))
	if again := s.Next(between); !again.Equal(due) {
		return fmt.Errorf("jobs: the schedule of job %q counts from the time of the call, so replicas would not agree on ticks: "+
			"after %v it returns %v, after %v it returns %v; use one that counts from a fixed time, like calendar.Every",
			job, now, due, between, again)
	}
	return nil
}

// newest returns the newest instant that is due at now, and the next one. Each is
// the zero Time if there is none. A schedule can only be asked what comes after a
// time, so newest looks back ever further and goes forward from there.
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
		if !next.After(due) || next.After(now) { // not after due: the schedule has ended, or is broken
			return due, next
		}
		due = next
	}
}

// early is how much too early a timer may fire: it uses the monotonic clock, and
// the wall clock may be slewed meanwhile.
const early = time.Second

// tickAt returns the tick for a job that starts at now: the newest tick that is
// due. If that was taken, it is the next tick, provided that it is due in a
// moment.
func tickAt(s Schedule, now, taken time.Time) (nominal time.Time, ok bool) {
	due, next := newest(s, now)
	switch moment := min(early, next.Sub(due)/2); {
	case next.IsZero(), next.Sub(now) > moment:
	case due.IsZero(), !due.After(taken):
		return next, true
	}
	return due, !due.IsZero()
}
