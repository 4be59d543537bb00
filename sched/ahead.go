package sched

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

// unknownAhead is how far a mark can be ahead of the clock of a process that does not know the
// schedule.
const unknownAhead = time.Hour

// ahead returns how far a mark is ahead of the clock, and zero unless two instants of the
// schedule are in between. A single one may have run a little early, by a clock that is fast.
func ahead(s calendar.Schedule, high, now time.Time) time.Duration {
	by := high.Sub(now)
	if by <= admissionSlack {
		return 0
	}
	if s == nil {
		return max(0, by-unknownAhead)
	}
	if _, follows := s.(after); follows {
		return 0
	}
	first := s.Next(now)
	if second := s.Next(first); !first.After(now) || !second.After(first) || second.After(high) {
		return 0
	}
	return by
}

// aheadBy describes a mark that is ahead of the clock.
func (st *jobSnapshot) aheadBy(by time.Duration) string {
	return fmt.Sprintf("the high-water mark %s is ahead of the clock by %v, and no tick runs before it: "+
		"the clock of an owner was ahead, or this one is behind; if this one is right, reset the mark", stamp(st.high), by.Round(time.Second))
}

// records returns the records of a job, newest first.
func (s *Scheduler) records(ctx context.Context, job string) (all []Entry, err error) {
	for e, err := range s.History(ctx, job) {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// isRecorded reports whether the scheduled tick has a record of its own.
func isRecorded(records []Entry, nominal time.Time) bool {
	return slices.ContainsFunc(records, func(e Entry) bool {
		return e.Nominal.Equal(nominal) && !isManual(e.id) &&
			e.Outcome != OutcomeMissed
	})
}

// overtaken explains a tick that has reached its bound, if it is before a mark that is ahead of
// the clock and has no record: it was decided before it came due, and does not run. It returns an
// empty text of any other.
func (s *Scheduler) overtaken(ctx context.Context, job string, nominal time.Time, st *jobSnapshot) (string, error) {
	schedule := without(s.scheduleOf(job, st), st.reset.Decided)
	now := s.now()
	by := ahead(schedule, st.high, now)
	older := !st.spec.Since.After(now) && !nominal.After(st.spec.Since) // than this revision of the schedule
	if by == 0 || older || st.paused != nil || schedule == nil || !has(schedule, nominal) {
		return "", nil
	}
	records, err := s.records(ctx, job)
	if err != nil || isRecorded(records, nominal) {
		return "", err
	}
	return "not run: " + st.aheadBy(by), nil
}

// passedOver sets Overdue of a job whose mark is ahead of the clock.
func (s *Scheduler) passedOver(ctx context.Context, i *JobInfo, st *jobSnapshot) error {
	if i.Ahead == 0 || !i.Overdue.IsZero() || st.spec.Overdue == 0 || i.schedule == nil {
		return nil
	}
	to := s.now().Add(-st.spec.Overdue)
	newest := (Job{Schedule: i.schedule}).lastOnes(to.AddDate(-1, 0, 0), to, 1)
	if len(newest) == 0 {
		return nil
	}
	if st.inProgress(newest[0]) != "" {
		return nil
	}
	text, err := s.overtaken(ctx, i.Job, newest[0], st)
	if text != "" {
		i.Overdue = newest[0]
	}
	return err
}
