package webui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
)

const (
	mostJobs  = 1000
	nextTicks = 10
	lastTicks = 20
	// overdueAfter is how late a tick is before it is shown as overdue.
	overdueAfter = 5 * time.Second
)

// jobRow is a job in a list.
type jobRow struct {
	sched.JobInfo
	// Unadmitted is the next tick if it should have been admitted, and Unended a tick that
	// was admitted and has not ended by Job.Overdue. Each is zero if there is no such tick.
	Unadmitted, Unended time.Time
	Why                 string // the tick was not admitted, as far as that is known
}

func newJobRow(info sched.JobInfo) jobRow {
	row := jobRow{JobInfo: info, Unended: info.Overdue}
	if !info.Unadmitted.IsZero() { // shown as overdue, not as a job that cannot run
		row.Why, row.Problem = info.Problem, ""
	}
	if !info.Next.IsZero() && (time.Since(info.Next) > overdueAfter || info.Next.Equal(info.Overdue)) {
		row.Unadmitted = info.Next
	}
	if info.Ahead > 0 && !info.Overdue.IsZero() { // decided before it was due
		row.Unadmitted, row.Why = info.Overdue, info.Problem
	}
	if row.Unended.Equal(row.Unadmitted) {
		row.Unended = time.Time{}
	}
	return row
}

// Late returns the nominal time of the oldest tick that is overdue, or zero.
func (r jobRow) Late() time.Time {
	if r.Unended.IsZero() || !r.Unadmitted.IsZero() && r.Unadmitted.Before(r.Unended) {
		return r.Unadmitted
	}
	return r.Unended
}

// groupRow is a group of schedulers in a list.
type groupRow struct {
	Name                  string
	Owner                 etcdclaims.Info
	Unowned               bool // no process runs the group, as far as claims are known
	Jobs, Overdue, Paused int
	Err                   string // why jobs of the group cannot be read
}

// schedulesPage lists groups and their jobs.
type schedulesPage struct {
	Groups []groupRow
	Jobs   []jobRow
	Pager  pager
	More   bool
	Fresh  freshness
}

func (q *request) schedules() (any, error) {
	all, fresh := q.jobs()
	p := schedulesPage{Groups: all.groups, Fresh: fresh, More: len(all.jobs) == mostJobs}
	p.Jobs, p.Pager = paged(q.param("page"), all.jobs)
	return p, nil
}

// scheduled is the result of a read of all groups.
type scheduled struct {
	groups []groupRow
	jobs   []jobRow
}

// jobs returns the jobs of all groups, and who owns the groups.
func (q *request) jobs() (scheduled, freshness) {
	q.h.board.wake(q.r.Context(), q.wait.until)
	return snapshotOf(q, "jobs", 5*time.Second, func(ctx context.Context, h *Handler) (all scheduled, err error) {
		names, err := h.groups.names(ctx)
		if err != nil && len(names) == 0 {
			return all, err
		}
		claims := h.board.summary()
		known := !claims.Reading && claims.Err == nil
		for _, name := range names {
			group := groupRow{Name: name}
			group.Owner, _ = h.board.holder("sched/" + name + "/owner")
			group.Unowned = known && !group.Owner.Held
			if len(all.jobs) < mostJobs {
				group.Err = text(h.groups.read(ctx, &group, &all.jobs))
			}
			if ctx.Err() != nil { // it concerns the groups that follow as well
				return all, ctx.Err()
			}
			all.groups = append(all.groups, group)
		}
		if err != nil {
			all.groups = append(all.groups, groupRow{Name: "(others)", Err: text(err)})
		}
		return all, nil
	})
}

// read reads the jobs of a group, up to mostJobs of all groups. It returns why one of the others
// cannot be read.
func (g *groups) read(ctx context.Context, group *groupRow, all *[]jobRow) (unread error) {
	s, err := g.scheduler(group.Name)
	if err != nil {
		return err
	}
	for info, err := range s.Jobs(ctx) {
		if err != nil { // those behind it may be readable
			unread = cmp.Or(unread, err)
			continue
		}
		if *all = append(*all, group.add(info)); len(*all) == mostJobs {
			break
		}
	}
	return unread
}

// add counts a job of the group.
func (g *groupRow) add(info sched.JobInfo) jobRow {
	row := newJobRow(info)
	g.Jobs++
	if !row.Late().IsZero() {
		g.Overdue++
	}
	if row.Paused != nil {
		g.Paused++
	}
	return row
}

// jobPage explains one job.
type jobPage struct {
	Job      jobRow
	Upcoming []time.Time
	Unknown  bool
	Entries  []entryRow
	Fresh    freshness

	CanPause, CanResume, CanRun, CanCancel bool
}

type entryRow struct {
	sched.Entry
	Error string
	Why   string // the outcome
	Late  time.Duration
}

// due is the time of a tick in the list.
func due(e sched.Entry) time.Time {
	if e.Nominal.IsZero() {
		return e.Ended
	}
	return e.Nominal
}

type inspected struct {
	jobRow
	unknown bool
	entries []sched.Entry
}

func (q *request) job() (any, error) {
	group, name := q.param("group"), q.param("job")
	s, err := q.h.groups.scheduler(group)
	if err != nil {
		return nil, err
	}
	topic := fmt.Sprintf("job %q %q", group, name)
	read, fresh := snapshotOf(q, topic, 2*time.Second, func(ctx context.Context, h *Handler) (x inspected, err error) {
		info, err := s.Inspect(ctx, name)
		if errors.Is(err, sched.ErrUnknownJob) {
			return inspected{unknown: true}, nil
		}
		if err != nil {
			return x, err
		}
		x.jobRow = newJobRow(info)
		x.entries, err = first(lastTicks, s.History(ctx, name))
		slices.SortStableFunc(x.entries, func(a, b sched.Entry) int { return due(b).Compare(due(a)) })
		return x, err
	})
	p := jobPage{Job: read.jobRow, Unknown: read.unknown, Fresh: fresh}
	p.Job.Group, p.Job.Job, p.Upcoming = group, name, read.Upcoming(nextTicks)
	for _, e := range read.entries {
		row := entryRow{Entry: e, Error: q.value(FieldError, e.Error)}
		if e.Error == "" || row.Error != e.Error { // the reader does not see a reason of its own
			row.Why = explain.Outcome(e.Outcome)
		}
		if !e.Began.IsZero() && !e.Nominal.IsZero() {
			row.Late = e.Began.Sub(e.Nominal)
		}
		p.Entries = append(p.Entries, row)
	}
	if !read.unknown {
		can := func(a Action) bool { return q.can(Operation{Action: a, Group: group, Job: name}) }
		paused := read.Paused != nil && read.Paused.Scope == ""
		p.CanPause, p.CanResume = !paused && can(actionPauseJob), paused && can(actionResumeJob)
		p.CanRun = can(actionRunJob)
		p.CanCancel = len(read.Running)+len(read.Waiting) > 0 && can(actionCancelJob)
	}
	return p, nil
}
