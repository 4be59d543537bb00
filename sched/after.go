package sched

import (
	"time"

	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/sched/calendar"
)

// After is the schedule of a job that runs after each success of another job of the
// group, with the same nominal time. A success of any tick counts: of the schedule,
// RunNow, Backfill, or another After. If the other job fails, is lost or is left out, the
// job does not run for that tick.
//
// The tick is requested in the transaction that records the success, so it is neither
// lost nor requested twice, whichever process dies in between. The job's Overlap applies
// to it, and its StartDeadline, counted from the nominal time. While the job is paused,
// such ticks are recorded as skipped. Add the job in all processes: a process that does
// not have it requests nothing.
//
// Job.Overdue has no effect on such a schedule. Add refuses calendar.Except and Only with it, a circle
// of jobs, and more than 32 jobs after one. A job that is defined at run time has
// Definition.After instead.
func After(job string) calendar.Schedule { return after(job) }

type after string

func (after) Next(time.Time) time.Time { return time.Time{} }

// Count makes it a schedule whose ticks need not be counted one by one.
func (after) Count(_, _ time.Time, _ int) int { return 0 }

func (a after) String() string { return jobstate.AfterText + string(a) }

// mostAfter is how many jobs can run after one.
const mostAfter = 32

// circleFrom returns the jobs from the job back to itself if it would run after itself.
func circleFrom(job, before string, beforeOf func(string) string) []string {
	path := []string{job}
	seen := map[string]bool{}
	for at := before; at != "" && !seen[at]; at = beforeOf(at) {
		seen[at] = true
		path = append(path, at)
		if at == job {
			return path
		}
	}
	return nil
}
