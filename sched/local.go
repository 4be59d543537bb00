package sched

import (
	"context"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/inbox"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/lanes"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/google/uuid"
	"go.uber.org/zap"
)

// localJob is the state of a job in a passthrough scheduler. The policies apply to this
// process alone.
type localJob struct {
	job     Job
	high    time.Time
	waiting lanes.Line
	running int
	ends    []ask // of jobs that it runs after, and that wait for those of others
}

// local runs the jobs of a passthrough scheduler. The state belongs to the goroutine of Run.
type local struct {
	*runner
	inbox   *inbox.Inbox
	changed *changes

	runs *runs
	jobs map[string]*localJob
}

// runLocal runs the jobs in this process until ctx ends, and waits for their handlers.
func runLocal(ctx context.Context, x *runner) error {
	l := &local{
		runner: x, inbox: inbox.New(), changed: x.catalog.subscribe(),
		runs: newRuns(x.group), jobs: make(map[string]*localJob),
	}
	x.over = func(a *active, _ bool) { l.inbox.Post(func() { l.ended(a) }) }
	defer x.catalog.unsubscribe(l.changed)
	for ctx.Err() == nil {
		l.inbox.Work()
		due := time.After(l.round(ctx))
		select {
		case <-due:
		case <-l.inbox.News:
		case <-l.changed.news:
		case <-ctx.Done():
		}
	}
	return l.runs.drain()
}

// round admits due ticks and begins ticks, oldest first. It returns how long nothing
// will be due.
func (l *local) round(ctx context.Context) time.Duration {
	now, d := l.now(), nap
	l.adopt(now)
	for _, a := range l.jobs {
		for p := a.job.rules.Plan(a.high, now, l.cfg.Grace, 1); !p.High.IsZero(); p = a.job.rules.Plan(a.high, now, l.cfg.Grace, 1) {
			a.high = p.High
			l.admit(a, p)
		}
		if next := a.job.rules.Next(a.high); !next.IsZero() {
			d = min(d, next.Sub(now))
		}
	}
	for l.cfg.Limit == 0 || len(l.runs.all) < l.cfg.Limit {
		a, w := l.oldest(now, &d)
		if a == nil {
			break
		}
		a.waiting.Remove(w)
		l.begin(ctx, a, w.Ready)
	}
	return max(d, 0)
}

// adopt takes over the jobs that were added since.
func (l *local) adopt(now time.Time) {
	_ = l.catalog.take(l.changed)
	jobs := l.catalog.all()
	for _, j := range jobs[len(l.jobs):] { // a passthrough scheduler has no definitions
		a := &localJob{job: j, high: now, waiting: lanes.Line{Order: lanes.ByTime}}
		if j.RunOnStart {
			a.add(ready{Job: j.Name, ID: tick.StartID + j.hash() + "-" + uuid.NewString(), Nominal: now, Actual: now, Attempt: 1}, now)
		}
		l.jobs[j.Name] = a
	}
}

// add lets a tick wait.
func (a *localJob) add(r ready, now time.Time) {
	w := &waiter{Waiting: tick.Waiting{Ready: r}}
	if rest := r.Rests(now); rest > 0 {
		w.Begins = clock.Mono().Add(rest)
	}
	a.waiting.Add(w)
}

// oldest returns the tick that begins first and its job, or nil if no tick can begin. It
// gives up ticks that are past their StartDeadline, and sets next to when a tick can begin
// again, if that is sooner.
func (l *local) oldest(now time.Time, next *time.Duration) (of *localJob, first *waiter) {
	for _, a := range l.jobs {
		w := l.first(a, now, next)
		if w == nil || a.running > 0 && !a.job.rules.Parallel() {
			continue
		}
		if first == nil || w.Nominal.Before(first.Nominal) {
			of, first = a, w
		}
	}
	return of, first
}

// first is oldest for one job, whether or not a run of it is in progress. A tick that waits
// for its next attempt delays those behind it, unless the runs of the job may overlap.
func (l *local) first(a *localJob, now time.Time, next *time.Duration) *waiter {
	for i := 0; i < len(a.waiting.Ticks); {
		w := a.waiting.Ticks[i]
		if a.job.tooLate(w.Ready, now) {
			a.waiting.Remove(w)
			l.gone(a.job, w.LeftOut(OutcomeLate, now))
			continue
		}
		rest := time.Until(w.Begins)
		if rest <= 0 {
			return w
		}
		*next = min(*next, rest)
		if !a.job.rules.Parallel() {
			return nil
		}
		i++
	}
	return nil
}

// begin begins a tick.
func (l *local) begin(ctx context.Context, a *localJob, r ready) {
	key := jobKey(l.cfg.Group, a.job.Name)
	cl, err := l.claims.TryAcquire(ctx, key, option.OwnKey{})
	if err != nil {
		l.log.Error("passthrough claim refused", zap.String("key", key), zap.Error(err))
		return
	}
	of := &active{job: a.job, run: run{Ready: r, Run: uuid.NewString(), Began: l.now()}}
	l.runs.add(of)
	of.begins(l.handlers, l.cfg.Group, of.run, "", cl)
	l.runs.begin(of)
	a.running++
	go l.execute(of)
}

// ended takes over that a run has ended.
func (l *local) ended(of *active) {
	a := l.jobs[of.job.Name]
	l.runs.remove(of, false)
	a.running--
	if next := of.next; next != nil && (len(a.waiting.Ticks) == 0 || !a.job.rules.NewestOnly(next.ID)) {
		a.add(*next, l.now())
		return
	}
	l.follow(ask{By: of.job.Name, At: of.run.Nominal, After: of.run.ID, Failed: of.outcome != OutcomeOK})
}

// gone takes over that a tick waits no longer. One that had an attempt has ended without success.
func (l *local) gone(j Job, p past) {
	l.left(j, p)
	if p.Attempt > 0 {
		l.follow(ask{By: j.Name, At: p.Nominal, After: p.ID, Failed: true})
	}
}

// follow lets the jobs run that run after the end of a tick.
func (l *local) follow(end ask) {
	followers, _ := l.catalog.following(end.By)
	for _, f := range followers {
		a := l.jobs[f.Job]
		if a == nil {
			continue
		}
		a.ends = append(a.ends[max(0, len(a.ends)-mostUnserved):], end)
		of := func(o ask) bool { return o.At.Equal(end.At) }
		newest, complete, runs := f.Joined(slices.DeleteFunc(slices.Clone(a.ends), func(o ask) bool { return !of(o) }))
		if !complete {
			continue
		}
		a.ends = slices.DeleteFunc(a.ends, of)
		if runs {
			l.admitTick(a, ready{Job: f.Job, ID: tick.AfterID + newest[0].After, Nominal: end.At, Actual: end.At, Attempt: 1})
		}
	}
}

// admit decides about due ticks of a job.
func (l *local) admit(a *localJob, due tick.Plan) {
	j, now := a.job, l.now()
	if len(due.Ticks) == 0 || due.Late {
		p := past{ID: tick.NominalID(due.High), Outcome: OutcomeMissed, Nominal: due.High, Missed: due.Missed, Ended: now}
		if due.Late {
			p.Outcome = OutcomeLate
		}
		l.left(j, p)
		return
	}
	nominal := due.Ticks[0]
	if due.Missed > 0 {
		l.gaveUp(j, due)
	}
	first := j.rules.First(nominal)
	first.Missed = due.Missed
	l.admitTick(a, first)
}

// admitTick lets a tick wait, or leaves it out, under the job's Overlap.
func (l *local) admitTick(a *localJob, r ready) {
	now := l.now()
	fits, replaces := a.job.rules.Fits(len(a.waiting.Ticks), a.running)
	if replaces {
		for _, w := range a.waiting.Ticks {
			l.gone(a.job, w.LeftOut(OutcomeSkipped, now))
		}
		a.waiting.Ticks = nil
		for _, run := range l.runs.begun(keyspace.Digest(a.job.Name)) {
			run.cancel(ErrCancelled)
		}
	}
	if !fits {
		l.left(a.job, tick.Waiting{Ready: r}.LeftOut(OutcomeSkipped, now))
		return
	}
	a.add(r, now)
}

// inspectLocal is Inspect for a passthrough scheduler.
func (s *Scheduler) inspectLocal(j Job) JobInfo {
	is := describe(s.cfg.Group, j)
	return JobInfo{
		Group: s.cfg.Group, Job: j.Name, Schedule: is.Schedule, Revision: is.Revision, CatchUp: is.CatchUp, Overlap: is.Overlap,
		Guarantee: is.Guarantee, Next: j.rules.Next(s.now()),
	}
}
