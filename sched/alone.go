package sched

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
)

// alone is what a passthrough scheduler knows of a job. It has the same policies
// as any, of this process.
type alone struct {
	job     Job
	high    time.Time
	waiting []ready
	running int
}

// runAlone runs the jobs in this process until ctx ends.
func (s *Scheduler) runAlone(ctx, handlers context.Context) {
	jobs := make(map[string]*alone)
	var mu sync.Mutex // guards them
	wake := make(chan struct{}, 1)
	begin := func(a *alone, r ready) {
		cl, err := s.claims.TryAcquire(ctx, jobKey(s.cfg.Group, a.job.Name))
		if err != nil {
			s.log.Error("a passthrough claim was refused", zap.Error(err))
			return
		}
		a.running++
		run := s.newActive(handlers, a.job, run{ready: r, Run: uuid.NewString(), Began: s.now()}, cl)
		go func() {
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				a.running--
				signal(wake)
			}()
			s.execute(run, "")
		}()
	}
	round := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		now, d := s.now(), nap
		s.mu.Lock()
		for name, j := range s.jobs {
			if jobs[name] == nil {
				jobs[name] = &alone{job: j, high: now}
				if j.RunOnStart {
					jobs[name].waiting = append(jobs[name].waiting, ready{Job: name, ID: startID + j.hash(), Nominal: now, Actual: now, Attempt: 1})
				}
			}
		}
		s.mu.Unlock()
		for _, a := range jobs {
			for {
				due := a.job.due(a.high, now, s.cfg.Grace)
				if due.high.IsZero() {
					break
				}
				a.high = due.high
				s.admitAlone(a, due)
			}
			for len(a.waiting) > 0 && (a.running == 0 || a.job.parallel()) {
				r := a.waiting[0]
				a.waiting = a.waiting[1:]
				if a.job.tooLate(r.Nominal, now) && !isManual(r.ID) {
					s.left(a.job, past{ID: r.ID, Outcome: OutcomeLate, Nominal: r.Nominal, Actual: r.Actual, Ended: now})
					continue
				}
				begin(a, r)
			}
			if next := a.job.next(a.high); !next.IsZero() {
				d = min(d, next.Sub(now))
			}
		}
		return max(d, 0)
	}
	for ctx.Err() == nil {
		timer := time.NewTimer(round())
		select {
		case <-timer.C:
		case <-wake:
		case <-s.more:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// admitAlone lets a tick wait, by the job's Overlap.
func (s *Scheduler) admitAlone(a *alone, d due) {
	j, now := a.job, s.now()
	if d.run.IsZero() {
		p := past{ID: nominalID(d.high), Outcome: OutcomeMissed, Nominal: d.high, Missed: d.missed, Ended: now}
		if d.late {
			p.Outcome = OutcomeLate
		}
		s.left(j, p)
		return
	}
	r := ready{Job: j.Name, ID: nominalID(d.run), Nominal: d.run, Actual: j.actual(d.run), Attempt: 1, Missed: d.missed}
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
	for _, a := range s.active {
		if a.job.Name == job {
			a.cancel(ErrCancelled)
		}
	}
}

// inspectAlone says what a passthrough scheduler knows of a job.
func (s *Scheduler) inspectAlone(name string) (JobInfo, error) {
	j, ok := s.job(name)
	if !ok {
		return JobInfo{}, fmt.Errorf("sched: inspecting job %.80q: %w", name, ErrUnknownJob)
	}
	is := describe(s.cfg.Group, j)
	return JobInfo{
		Group: s.cfg.Group, Job: name, Schedule: is.Schedule, Revision: is.Revision, CatchUp: is.CatchUp, Overlap: is.Overlap,
		Delivery: is.Delivery, Next: j.next(s.now()),
	}, nil
}
