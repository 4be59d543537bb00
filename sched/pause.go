package sched

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
)

// endPauses resumes some of the jobs whose pauses are over, oldest end first.
func (l *leadership) endPauses(ctx context.Context) (more bool, err error) {
	now := l.now()
	over := func(c *jobState) bool { return c.pause.Over(now) }
	some := l.pausing.TakeWhile(mostSteps, over)
	var todo []decision
	for _, c := range some {
		if c.resume == nil {
			l.planResume(c, now)
		}
		if c.resume != nil {
			todo = append(todo, l.resumption(c, *c.resume))
		}
	}
	err = l.take(ctx, todo)
	for _, c := range some {
		l.place(c)
	}
	first, ok := l.pausing.First()
	return ok && over(first) && err == nil, err
}

// planResume computes how a pause ends, on a goroutine of its own if the ticks of the pause may take
// long to count: see planFor.
func (l *leadership) planResume(c *jobState, now time.Time) {
	rules, p, rev, mark := c.planned(), c.pause, c.pauseRev, c.mark()
	if rules.CountsFast() || now.Sub(c.high) <= longAgo {
		c.resume = new(jobstate.EndPause(l.keys, rules.Name, rules.Schedule, p, rev, mark, now))
		return
	}
	c.planning = true
	go func() {
		to := jobstate.EndPause(l.keys, rules.Name, rules.Schedule, p, rev, mark, now)
		l.inbox.Post(func() {
			c.planning = false
			if c.pauseRev == rev && c.highRev == mark.Rev {
				c.resume = &to
			}
			l.place(c)
		})
	}()
}

// resumption returns the decision that ends a pause which is over. It is refused if an operator has
// changed the pause meanwhile, or moved the mark.
func (l *leadership) resumption(c *jobState, to tick.Resume) decision {
	c.resume = nil
	return decision{to.Build(), func(r txn.Reply) {
		if !r.Succeeded {
			l.doubt(c)
			return
		}
		l.resumed(c.job, c.pause)
		c.paused, c.pause, c.pauseRev, c.failures = false, pause{}, 0, tick.Counted{}
		c.plan = nil // it is of the mark before the pause
		l.view.Remove(l.keys.Paused(c.job.Name), r.Rev)
		l.moved(c, tick.Mark{At: to.To, Rev: r.Rev})
		l.serve(c)
		l.unpaused(c)
	}}
}
