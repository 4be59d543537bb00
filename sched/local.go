package sched

import (
	"context"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
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
}

// local runs the jobs of a passthrough scheduler.
type local struct {
	s        *Scheduler
	handlers context.Context
	wake     chan struct{} // has an element when a run has ended
	changed  *changes

	mu      sync.Mutex
	jobs    map[string]*localJob
	running int
}

// runLocal runs the jobs in this process until ctx ends.
func (s *Scheduler) runLocal(ctx, handlers context.Context) {
	l := &local{s: s, handlers: handlers, wake: make(chan struct{}, 1), changed: s.catalog.subscribe(), jobs: make(map[string]*localJob)}
	defer s.catalog.unsubscribe(l.changed)
	for ctx.Err() == nil {
		timer := time.NewTimer(l.round(ctx))
		select {
		case <-timer.C:
		case <-l.wake:
		case <-l.changed.news:
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
		for p := a.job.plan(a.high, now, l.s.cfg.Grace, 1); !p.High.IsZero(); p = a.job.plan(a.high, now, l.s.cfg.Grace, 1) {
			a.high = p.High
			l.admit(a, p)
		}
		if next := a.job.rules().Next(a.high); !next.IsZero() {
			d = min(d, next.Sub(now))
		}
	}
	for l.s.cfg.Limit == 0 || l.running < l.s.cfg.Limit {
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
	_ = l.s.catalog.take(l.changed)
	jobs, _ := l.s.catalog.all()
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
		if w == nil || a.running > 0 && !a.job.parallel() {
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
		if a.job.rules().TooLate(w.Nominal, now) && !isManual(w.ID) {
			a.waiting.Remove(w)
			l.s.left(a.job, w.LeftOut(OutcomeLate, now))
			continue
		}
		rest := time.Until(w.Begins)
		if rest <= 0 {
			return w
		}
		*next = min(*next, rest)
		if !a.job.parallel() {
			return nil
		}
		i++
	}
	return nil
}

// begin begins a tick.
func (l *local) begin(ctx context.Context, a *localJob, r ready) {
	cl, err := l.s.claims.TryAcquire(ctx, jobKey(l.s.cfg.Group, a.job.Name), option.OwnKey{})
	if err != nil {
		l.s.log.Error("passthrough claim refused", zap.String("key", jobKey(l.s.cfg.Group, a.job.Name)), zap.Error(err))
		return
	}
	a.running++
	l.running++
	run := l.s.newActive(l.handlers, a.job, run{Ready: r, Run: uuid.NewString(), Began: l.s.now()}, cl)
	go func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			a.running--
			l.running--
			if next := run.next; next != nil && (len(a.waiting.Ticks) == 0 || !a.job.rules().NewestOnly(next.ID)) {
				a.add(*next, l.s.now())
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
func (l *local) admit(a *localJob, due tick.Plan) {
	s, j, now := l.s, a.job, l.s.now()
	if len(due.Ticks) == 0 || due.Late {
		p := past{ID: nominalID(due.High), Outcome: OutcomeMissed, Nominal: due.High, Missed: due.Missed, Ended: now}
		if due.Late {
			p.Outcome = OutcomeLate
		}
		s.left(j, p)
		return
	}
	nominal := due.Ticks[0]
	l.s.gaveUp(j, due)
	first := j.rules().First(nominal)
	first.Missed = due.Missed
	l.admitTick(a, first)
}

// admitTick lets a tick wait, or leaves it out, under the job's Overlap.
func (l *local) admitTick(a *localJob, r ready) {
	s, j, now := l.s, a.job, l.s.now()
	waiting := len(a.waiting.Ticks)
	var full bool
	switch policy := j.Overlap.(type) {
	case BufferOne:
		full = waiting > 0
	case BufferAll:
		full = waiting >= policy.max()
	case Allow:
	case CancelRunning:
		for _, w := range a.waiting.Ticks {
			s.left(j, w.LeftOut(OutcomeSkipped, now))
		}
		a.waiting.Ticks = nil
		s.cancelRuns(j.Name)
	default:
		full = a.running > 0 || waiting > 0
	}
	if full {
		s.left(j, tick.Waiting{Ready: r}.LeftOut(OutcomeSkipped, now))
		return
	}
	a.add(r, now)
}

// cancelRuns ends the contexts of all runs of a job in this process.
func (s *Scheduler) cancelRuns(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.activeOf[keyspace.Digest(job)].all() {
		a.cancel(ErrCancelled)
	}
}

// inspectLocal is Inspect for a passthrough scheduler.
func (s *Scheduler) inspectLocal(j Job) JobInfo {
	is := describe(s.cfg.Group, j)
	return JobInfo{
		Group: s.cfg.Group, Job: j.Name, Schedule: is.Schedule, Revision: is.Revision, CatchUp: is.CatchUp, Overlap: is.Overlap,
		Guarantee: is.Guarantee, Next: j.rules().Next(s.now()),
	}
}
