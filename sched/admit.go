package sched

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
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
		some := l.due.takeWhile(1, isDue)
		if len(some) == 0 {
			break
		}
		c := some[0]
		p, ok := l.planFor(c, now)
		if !ok {
			continue
		}
		if c.single && len(p.ticks) > 1 {
			p.ticks = p.ticks[:1]
			p.high = p.ticks[0]
		}
		if p.high.IsZero() {
			l.schedule(c) // not due yet: its jitter is not over, or the clock was put back
			if isDue(c) {
				c.at = now.Add(time.Millisecond)
				l.place(c)
			}
			continue
		}
		taken = append(taken, c)
		puts += len(p.ticks)
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
	first, ok := l.due.first()
	return ok && isDue(first), nil
}

// admission returns the decision about the next due ticks of a job. It requires that the
// mark has not moved since it was read, that the ticks are after it, and that the job is
// not paused. So only one such decision, of any owner, moves the mark on from
// its current value.
func (l *leadership) admission(c *jobState, p plan, now time.Time) decision {
	k, j := l.s.keys, c.job
	var recorded []past
	var v verdict
	switch {
	case len(p.ticks) == 0:
		recorded = append(recorded, past{ID: nominalID(p.high), Outcome: OutcomeMissed, Nominal: p.high, Missed: p.missed, Ended: now})
	case p.late:
		for i, nominal := range p.ticks {
			late := past{ID: nominalID(nominal), Outcome: OutcomeLate, Nominal: nominal, Actual: j.actual(nominal), Ended: now}
			if i == 0 {
				late.Missed = p.missed
			}
			recorded = append(recorded, late)
		}
	default:
		ticks := make([]ready, len(p.ticks))
		for i, nominal := range p.ticks {
			ticks[i] = j.firstAttempt(nominal)
		}
		ticks[0].Missed = p.missed
		v = l.decide(c, ticks, now)
		p.high = p.ticks[v.n-1]
	}
	d := decision{
		cmps: append(l.unmoved(c, p), v.cmps...),
		ops:  txn.Ops{clientv3.OpPut(k.high(j.Name), keyspace.Instant(p.high))},
	}
	var decided txn.Op
	if v.n > 0 {
		decided = d.ops.Add(v.op)
	} else {
		d.ops = append(d.ops, l.s.record(j, recorded...)...)
	}
	d.done = func(r txn.Reply) {
		switch {
		case !r.Succeeded && v.n > 1 && !c.single:
			c.single = true // the conditions of the ticks have changed in the meantime
			return
		case !r.Succeeded:
			l.doubt(c)
			return
		}
		l.moved(c, p, r.Rev)
		for _, p := range recorded {
			l.s.left(j, p)
		}
		if v.n > 0 {
			l.s.gaveUp(j, p)
			v.done(r.Inner(decided))
		}
	}
	return d
}

// unmoved is the condition that the mark has not moved since it was read, that the plan moves
// it forward, and that the job is not paused.
func (l *leadership) unmoved(c *jobState, p plan) []clientv3.Cmp {
	high := l.s.keys.high(c.job.Name)
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(high), "=", c.highRev),
		clientv3.Compare(clientv3.Value(high), "<", keyspace.Instant(p.high)),
		absent(l.s.keys.paused(c.job.Name)),
	}
}

// moved takes over that the mark has moved.
func (l *leadership) moved(c *jobState, p plan, rev int64) {
	c.high, c.highRev, c.doubts, c.single, c.refused = p.high, rev, 0, false, false
	l.schedule(c)
}

// gaveUp logs that ticks were given up in favour of those that were admitted. They have no
// record of their own: Tick.Missed of the first counts them.
func (s *Scheduler) gaveUp(j Job, p plan) {
	if p.missed > 0 {
		s.log.Warn("ticks missed", s.aboutJob(j.Name, zap.Int("missed", p.missed), zap.String("next", nominalID(p.ticks[0])))...)
	}
}

// left logs that a tick was not run, or that its run was lost, and calls the hook. A
// policy that leaves out a tick is no reason for a warning.
func (s *Scheduler) left(j Job, p past) {
	p.Job = j.Name
	if p.Attempt == 0 { // otherwise another attempt may follow
		s.ends.add(j, p)
	}
	fields := []zap.Field{
		zap.String("job", j.Name), zap.String("tick", p.ID), zap.String("key", jobKey(s.cfg.Group, j.Name)),
		zap.String("outcome", string(p.Outcome)), zap.Int("missed", p.Missed),
	}
	switch {
	case p.failed() && !p.Outcome.bad():
		s.log.Error("tick given up; its last attempt failed", append(fields, zap.Int("attempt", p.Attempt), zap.String("error", p.Error))...)
	case p.Outcome == OutcomeSkipped, p.Outcome == OutcomeCancelled:
		s.log.Info("tick skipped", fields...)
	case p.Outcome == OutcomeLate, p.Outcome == OutcomeMissed:
		s.log.Warn("tick missed", fields...)
	default:
		s.log.Warn("run lost", append(fields, zap.Int("attempt", p.Attempt), zap.Int64("fence", p.Fence), zap.String("error", p.Error))...)
	}
	if hook := s.cfg.Hooks.Left; hook != nil {
		hook(p.entry(s.cfg.Group))
	}
}
