package sched

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/etcdclaims/claims/internal/tick"
	"go.uber.org/zap"
)

// mostUnserved is how many requests of ticks after other jobs wait for an owner that can run
// the job, or for each other. If there are more, the oldest are given up, some at a time, with one record.
const (
	mostUnserved  = 128
	givenUpAtOnce = 32
)

// cannotServe reports whether this owner cannot serve the requests of a job: it does not have
// the job, cannot run its definition, or cannot read its state.
func (l *leadership) cannotServe(id string) bool {
	c := l.jobs[id]
	return c == nil || c.job.problem != "" || c.broken
}

// giveUpRequests removes some requests of ticks after another job, of jobs that have too many.
func (l *leadership) giveUpRequests(ctx context.Context) (more bool, err error) {
	if !l.catalog.complete.Load() { // this process may still learn of the job
		return false, nil
	}
	var todo []decision
	for id := range l.unserved {
		switch oldest := l.excess(id); {
		case len(oldest) == 0:
			delete(l.unserved, id)
		case len(todo) < mostSteps:
			todo = append(todo, l.giveUp(l.jobs[id], oldest))
		}
	}
	return len(todo) > 0, l.take(ctx, todo)
}

// excess returns the oldest requests that this owner cannot serve of a job that has too many.
func (l *leadership) excess(id string) (all []*request) {
	if !l.piles(id) || len(l.requestsOf[id]) <= mostUnserved {
		return nil
	}
	all = slices.DeleteFunc(slices.Collect(maps.Values(l.requestsOf[id])), func(r *request) bool {
		return r.After == "" || !l.cannotServe(id) && l.joined(l.jobs[id], r).complete
	})
	if len(all) <= mostUnserved {
		return nil
	}
	slices.SortFunc(all, (*request).byRevision) // those of a backfill are not old
	return all[:givenUpAtOnce]
}

// giveUp returns the decision that gives up the oldest requests of a job. They have one record,
// unless this owner does not have the job.
func (l *leadership) giveUp(c *jobState, oldest []*request) decision {
	last, job := oldest[len(oldest)-1], Job{Name: oldest[0].Job}
	const waited = "an owner that can run the job: "
	why := waited + "the owner of the group does not have the job"
	switch {
	case c == nil:
	case c.broken:
		why = waited + "the state of the job cannot be read"
	case c.job.problem == "":
		why, job.History = "each other: "+c.before().Names()+" have not all ended for the same nominal times", c.job.History
	default:
		why, job.History = waited+c.job.problem, c.spec.Limit()
	}
	p := past{
		ID: tick.AfterID + last.After, Outcome: OutcomeMissed, Nominal: last.At, Missed: len(oldest), Ended: l.now(),
		Error: limitText(fmt.Sprintf("more than %d ticks waited for %s", mostUnserved, why)),
	}
	st := tick.Refuse{Keys: l.keys, Job: job.Name, Rev: last.rev}
	for _, r := range oldest {
		st.Requests = append(st.Requests, r.key)
	}
	if job.History > 0 {
		st.History, st.Past = l.history(job), &p
	}
	return l.refuse(st, func() { l.view.Forget(last.key, last.rev) }, func() {
		l.log.Error("ticks given up: too many wait", zap.String("job", job.Name),
			zap.Int("ticks", len(oldest)), zap.String("for", why))
		l.left(job, p)
	})
}
