package sched

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched/calendar"
)

// After is the schedule of a job that runs after each success of another job of the
// group, with the same nominal time. A success of any tick counts: of the schedule,
// RunNow, Backfill, or another After. If the other job fails, is lost or is left out, the
// job does not run for that tick.
//
// With several jobs it runs when all of them have succeeded for one nominal time. It then runs
// once, with the id that follows from the tick of the first of them. The ends of some jobs wait in etcd
// for those of the others: 128 of them, of which the oldest are given up if there are more. So jobs that share
// few nominal times should not be joined. Ticks of RunNow share none.
//
// The tick is requested in the transaction that records the end, so it is neither
// lost nor requested twice, whichever process dies in between. The job's Overlap applies
// to it, and its StartDeadline, counted from the nominal time. While the job is paused,
// such ticks are recorded as skipped. Add the job in all processes: a process that does
// not have it requests nothing. Undefine and Forget of the other job request nothing.
//
// Job.Overdue has no effect on such a schedule. Add refuses calendar.Except and Only with it, a circle
// of jobs, more than 32 jobs after one, and more than 16 before one. A job that is defined at run
// time has Definition.After instead.
func After(jobs ...string) calendar.Schedule { return afterOn("", jobs) }

// AfterFailure is [After] for ticks that end without success: they fail, time out, are lost,
// cancelled or interrupted, and have no attempt left. A tick that never began has not ended. With several
// jobs it runs when all of them have ended, and at least one without success.
func AfterFailure(jobs ...string) calendar.Schedule { return afterOn(tick.OnFailure, jobs) }

// AfterEnd is [After] for ticks that end, with or without success; see [AfterFailure].
func AfterEnd(jobs ...string) calendar.Schedule { return afterOn(tick.OnEnd, jobs) }

func afterOn(on string, jobs []string) calendar.Schedule {
	if len(jobs) == 1 {
		return after{tick.Following{After: jobs[0], AfterOn: on}}
	}
	return after{tick.Following{AfterAll: slices.Clone(jobs), AfterOn: on}}
}

type after struct{ tick.Following }

func (after) Next(time.Time) time.Time { return time.Time{} }

// Count makes it a schedule whose ticks need not be counted one by one.
func (after) Count(_, _ time.Time, _ int) int { return 0 }

func (a after) String() string {
	on := ""
	if a.AfterOn != "" {
		on = "-" + a.AfterOn
	}
	return "@after" + on + " " + a.Names()
}

const (
	mostAfter  = 32 // jobs that can run after one
	mostBefore = 16 // jobs that one can run after
)

// check returns an error if the job with the name cannot run after these jobs.
func (a after) check(name string) error {
	jobs := a.Jobs()
	switch {
	case a.After != "" && a.Joins():
		return errors.New("the definition has both After and AfterAll; want one of them")
	case len(jobs) == 0 || len(jobs) > mostBefore:
		return fmt.Errorf("it runs after %d jobs; want 1 to %d", len(jobs), mostBefore)
	case a.AfterOn != "" && a.AfterOn != tick.OnFailure && a.AfterOn != tick.OnEnd:
		return fmt.Errorf("AfterOn %.80q is unknown; want %q, %q, or nothing for success", a.AfterOn, tick.OnFailure, tick.OnEnd)
	}
	for i, job := range jobs {
		if err := checkName(job); err != nil {
			return fmt.Errorf("the name in After %w", err)
		}
		if slices.Contains(jobs[:i], job) {
			return fmt.Errorf("it runs after %q twice", job)
		}
		if job == name {
			return errors.New("the job would run after itself")
		}
	}
	return nil
}

// circleFrom returns the jobs from the job back to itself if it would run after itself.
func circleFrom(job string, before []string, beforeOf func(string) []string) (path []string) {
	seen := map[string]bool{}
	var visit func(at string) bool
	visit = func(at string) bool {
		leads := at == job
		if !leads && !seen[at] {
			seen[at] = true
			leads = slices.ContainsFunc(beforeOf(at), visit)
		}
		if leads {
			path = append(path, at)
		}
		return leads
	}
	if !slices.ContainsFunc(before, visit) {
		return nil
	}
	path = append(path, job)
	slices.Reverse(path)
	return path
}
