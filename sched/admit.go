package sched

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"go.uber.org/zap"
)

// admitDue admits ticks of due jobs, as many as fit in one transaction. A job with more
// due ticks goes to the end of the queue.
func (l *leadership) admitDue(ctx context.Context) (more bool, err error) {
	now, began := l.s.now(), clock.Mono()
	isDue := func(c *jobState) bool { return !c.at.IsZero() && !c.at.After(now) }
	var todo []decision
	var prompt []*promptRun
	var taken []*jobState
	puts := 0
	for len(taken) < mostSteps && puts < mostPuts && time.Since(began) < planTime {
		some := l.due.TakeWhile(1, isDue)
		if len(some) == 0 {
			break
		}
		c := some[0]
		p, ok := l.planFor(c, now)
		if !ok {
			continue
		}
		if c.single && len(p.Ticks) > 1 {
			p.Ticks = p.Ticks[:1]
			p.High = p.Ticks[0]
		}
		if p.High.IsZero() {
			l.schedule(c) // not due yet: its jitter is not over, or the clock was put back
			if isDue(c) {
				c.at = now.Add(time.Millisecond)
				l.place(c)
			}
			continue
		}
		taken = append(taken, c)
		puts += len(p.Ticks)
		if r, ok := l.mayBegin(c, p, now); ok {
			prompt = append(prompt, r)
		} else {
			todo = append(todo, l.admission(c, p, now))
		}
	}
	if err := l.admit(ctx, prompt, todo); err != nil {
		for _, c := range taken {
			l.place(c)
		}
		return false, err
	}
	for _, c := range taken {
		if c.readAt.IsZero() && isDue(c) {
			c.at = now
		}
		l.place(c)
	}
	first, ok := l.due.First()
	return ok && isDue(first), nil
}

// admission returns the decision about the next due ticks of a job.
func (l *leadership) admission(c *jobState, p tick.Plan, now time.Time) decision {
	st := tick.Admission{Standing: l.overlapping(c, now), Mark: c.mark(), Plan: p}
	return step(st.Build(), func(r txn.Reply) {
		switch a := st.Judge(r); {
		case a.Done:
			l.moved(c, a.Mark)
			if a.Gave {
				l.s.gaveUp(c.job, st.Plan)
			}
			l.decided(c, a.Decided, r.Rev)
		case a.Fewer && !c.single:
			c.single = true
		default:
			l.doubt(c)
		}
	})
}

// moved takes over that the mark has moved.
func (l *leadership) moved(c *jobState, to tick.Mark) {
	c.high, c.highRev, c.doubts, c.single, c.refused = to.At, to.Rev, 0, false, false
	l.schedule(c)
}

// gaveUp logs that ticks were given up in favour of those that were admitted.
func (s *Scheduler) gaveUp(j Job, p tick.Plan) {
	if p.Missed > 0 {
		s.log.Warn("ticks missed", s.aboutJob(j.Name, zap.Int("missed", p.Missed), zap.String("next", nominalID(p.Ticks[0])))...)
	}
}

// left logs that a tick was not run, or that its run was lost, and calls the hook. A
// policy that leaves out a tick is no reason for a warning.
func (s *Scheduler) left(j Job, p past) {
	p.Job = j.Name
	if p.Attempt == 0 { // otherwise another attempt may follow
		s.noteEnd(j, p)
	}
	fields := []zap.Field{
		zap.String("job", j.Name), zap.String("tick", p.ID), zap.String("key", jobKey(s.cfg.Group, j.Name)),
		zap.String("outcome", string(p.Outcome)), zap.Int("missed", p.Missed),
	}
	switch {
	case p.Failed() && !p.Outcome.Bad():
		s.log.Error("tick given up; its last attempt failed", append(fields, zap.Int("attempt", p.Attempt), zap.String("error", p.Error))...)
	case p.Outcome == OutcomeSkipped, p.Outcome == OutcomeCancelled:
		s.log.Info("tick skipped", fields...)
	case p.Outcome == OutcomeLate, p.Outcome == OutcomeMissed:
		s.log.Warn("tick missed", fields...)
	default:
		s.log.Warn("run lost", append(fields, zap.Int("attempt", p.Attempt), zap.Int64("fence", p.Fence), zap.String("error", p.Error))...)
	}
	if hook := s.cfg.Hooks.Left; hook != nil {
		hook(entryOf(s.cfg.Group, p))
	}
}
