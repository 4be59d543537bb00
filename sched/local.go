package sched

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/google/uuid"
	"go.uber.org/zap"
)

// localJob is the state of a job in a passthrough scheduler. The policies apply to this
// process alone.
type localJob struct {
	job     Job
	high    time.Time
	waiting []ready
	running int
}

// local runs the jobs of a passthrough scheduler.
type local struct {
	s        *Scheduler
	handlers context.Context
	wake     chan struct{} // has an element when a run has ended

	mu      sync.Mutex
	jobs    map[string]*localJob
	running int
}

// runLocal runs the jobs in this process until ctx ends.
func (s *Scheduler) runLocal(ctx, handlers context.Context) {
	l := &local{s: s, handlers: handlers, wake: make(chan struct{}, 1), jobs: make(map[string]*localJob)}
	for ctx.Err() == nil {
		timer := time.NewTimer(l.round(ctx))
		select {
		case <-timer.C:
		case <-l.wake:
		case <-s.added:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// round admits due ticks and begins ticks, oldest first. It returns how long nothing
// will be due.
func (l *local) round(ctx context.Context) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, d := l.s.now(), nap
	l.adopt(now)
	for _, a := range l.jobs {
		for p := a.job.plan(a.high, now, l.s.cfg.Grace, 1); !p.high.IsZero(); p = a.job.plan(a.high, now, l.s.cfg.Grace, 1) {
			a.high = p.high
			l.admit(a, p)
		}
		if next := a.job.next(a.high); !next.IsZero() {
			d = min(d, next.Sub(now))
		}
	}
	for l.s.cfg.Limit == 0 || l.running < l.s.cfg.Limit {
		a := l.oldest(now, &d)
		if a == nil {
			break
		}
		r := a.waiting[0]
		a.waiting = a.waiting[1:]
		l.begin(ctx, a, r)
	}
	return max(d, 0)
}

// adopt takes over the jobs that were added since.
func (l *local) adopt(now time.Time) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	for _, j := range l.s.order[len(l.jobs):] {
		a := &localJob{job: j, high: now}
		if j.RunOnStart {
			a.waiting = append(a.waiting, ready{Job: j.Name, ID: startID + j.hash(), Nominal: now, Actual: now, Attempt: 1})
		}
		l.jobs[j.Name] = a
	}
}

// oldest returns the job whose tick begins first, or nil if no tick can begin. It gives
// up ticks that are past their StartDeadline, and sets next to when a tick can begin
// again, if that is sooner.
func (l *local) oldest(now time.Time, next *time.Duration) (first *localJob) {
	for _, a := range l.jobs {
		for len(a.waiting) > 0 && a.job.tooLate(a.waiting[0].Nominal, now) && !isManual(a.waiting[0].ID) {
			r := a.waiting[0]
			a.waiting = a.waiting[1:]
			l.s.left(a.job, past{ID: r.ID, Outcome: OutcomeLate, Nominal: r.Nominal, Actual: r.Actual, Ended: now})
		}
		if len(a.waiting) == 0 || a.running > 0 && !a.job.parallel() {
			continue
		}
		if rest := a.waiting[0].rests(now); rest > 0 {
			*next = min(*next, rest)
			continue
		}
		if first == nil || a.waiting[0].Nominal.Before(first.waiting[0].Nominal) {
			first = a
		}
	}
	return first
}

// begin begins a tick.
func (l *local) begin(ctx context.Context, a *localJob, r ready) {
	cl, err := l.s.claims.TryAcquire(ctx, jobKey(l.s.cfg.Group, a.job.Name))
	if err != nil {
		l.s.log.Error("passthrough claim refused", zap.String("key", jobKey(l.s.cfg.Group, a.job.Name)), zap.Error(err))
		return
	}
	a.running++
	l.running++
	run := l.s.newActive(l.handlers, a.job, run{ready: r, Run: uuid.NewString(), Began: l.s.now()}, cl)
	go func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			a.running--
			l.running--
			if next := run.next; next != nil && (len(a.waiting) == 0 || !a.job.newestOnly(next.ID)) {
				a.waiting = slices.Insert(a.waiting, 0, *next)
			}
			if run.outcome == OutcomeOK {
				l.admitAfter(run.run)
			}
			signal(l.wake)
		}()
		l.s.execute(run, "")
	}()
}

// admit decides about due ticks of a job.
func (l *local) admit(a *localJob, due plan) {
	s, j, now := l.s, a.job, l.s.now()
	if len(due.ticks) == 0 || due.late {
		p := past{ID: nominalID(due.high), Outcome: OutcomeMissed, Nominal: due.high, Missed: due.missed, Ended: now}
		if due.late {
			p.Outcome = OutcomeLate
		}
		s.left(j, p)
		return
	}
	nominal := due.ticks[0]
	l.admitTick(a, ready{Job: j.Name, ID: nominalID(nominal), Nominal: nominal, Actual: j.actual(nominal), Attempt: 1, Missed: due.missed})
}

// admitTick lets a tick wait, or leaves it out, under the job's Overlap.
func (l *local) admitTick(a *localJob, r ready) {
	s, j, now := l.s, a.job, l.s.now()
	p := past{ID: r.ID, Outcome: OutcomeSkipped, Nominal: r.Nominal, Actual: r.Actual, Missed: r.Missed, Ended: now}
	var full bool
	switch policy := j.Overlap.(type) {
	case BufferOne:
		full = len(a.waiting) > 0
	case BufferAll:
		full = len(a.waiting) >= policy.max()
	case Allow:
	case CancelRunning:
		p.Outcome = OutcomeReplaced
		for _, w := range a.waiting {
			p.ID, p.Nominal, p.Actual = w.ID, w.Nominal, w.Actual
			s.left(j, p)
		}
		a.waiting = nil
		s.cancelRuns(j.Name)
	default:
		full = a.running > 0 || len(a.waiting) > 0
	}
	if full {
		s.left(j, p)
		return
	}
	a.waiting = append(a.waiting, r)
}

// cancelRuns ends the contexts of all runs of a job in this process.
func (s *Scheduler) cancelRuns(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.activeOf[keyspace.Digest(job)] {
		a.cancel(ErrCancelled)
	}
}

// inspectLocal is Inspect for a passthrough scheduler.
func (s *Scheduler) inspectLocal(j Job) JobInfo {
	is := describe(s.cfg.Group, j)
	return JobInfo{
		Group: s.cfg.Group, Job: j.Name, Schedule: is.Schedule, Revision: is.Revision, CatchUp: is.CatchUp, Overlap: is.Overlap,
		Delivery: is.Delivery, Next: j.next(s.now()),
	}
}
