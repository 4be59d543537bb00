package sched

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/lanes"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// admitDue admits ticks of due jobs, as many as fit in one transaction. A job with more
// due ticks goes to the end of the queue.
func (l *leadership) admitDue(ctx context.Context) (more bool, err error) {
	now, began := l.now(), clock.Mono()
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

// promptRun is the run of a tick that begins in the transaction that admits it. This saves a
// round trip, and the tick never waits.
type promptRun struct {
	c     *jobState
	job   Job
	until time.Time // when to give up, by the monotonic clock
	step  tick.Prompt
	knows chan<- *promptRun

	mark tick.Mark // from its begin on
	err  error     // why it did not begin
}

func (p *promptRun) request(r run, value string) *pb.TxnRequest {
	p.step.Run, p.step.Value = r, value
	return p.step.Build()
}

func (p *promptRun) begun(_ *run, _ string, rev int64) {
	p.mark, _ = p.step.Judge(rev)
	p.knows <- p
}

func (p *promptRun) failed(_ context.Context, err error) (again bool) {
	p.err = err
	p.knows <- p
	return false
}

// mayBegin returns the run of a due tick that can begin at once, as far as this process sees:
// no tick waits, and no run is in progress, that the job's Overlap has to deal with.
func (l *leadership) mayBegin(c *jobState, p tick.Plan, now time.Time) (*promptRun, bool) {
	r, most := &promptRun{c: c}, readTime
	if l.cfg.Spread || l.cfg.Limit > 0 || c.refused || len(p.Ticks) != 1 || p.Late {
		return nil, false
	}
	r.step = tick.Prompt{Keys: l.keys, Job: c.job.rules, Mark: c.mark(), Plan: p, Guard: l.unhalted()}
	r.step.Guard = append(r.step.Guard, txn.Of(l.claim.Guard(), nil, nil).Compare...)
	if d := c.job.StartDeadline; d > 0 {
		most = min(most, d-now.Sub(p.Ticks[0]))
	}
	if r.step.Job.CatchUp == tick.SkipMissed {
		most = min(most, l.cfg.Grace-now.Sub(r.step.Job.Actual(p.Ticks[0])))
	}
	for _, dir := range l.keys.Before(r.step.Job) {
		if l.view.CountIn(dir) > 0 {
			return nil, false
		}
	}
	var has bool
	r.job, has = l.catalog.job(c.job.Name)
	r.until = clock.Mono().Add(most)
	return r, has && most > 0 && len(r.job.Limits) == 0 // the catalog can have a newer definition
}

// admit carries out decisions, and begins the runs that may begin at once. A tick that did not
// begin is planned anew and admitted like others. If ctx ends, Run waits for those under way.
func (l *leadership) admit(ctx context.Context, prompt []*promptRun, todo []decision) error {
	known := make(chan *promptRun, len(prompt))
	for _, r := range prompt {
		r.knows = known
		first := r.step.Job.First(r.step.Plan.Ticks[0])
		first.Missed = r.step.Plan.Missed
		l.starter.startNow(ctx, r.job, first, r, r.until)
	}
	err := l.take(ctx, todo, l.unhalted()...)
	for range prompt {
		select {
		case r := <-known:
			err = errors.Join(err, l.knows(r))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}

// knows takes over whether a run began. It returns an error if that is not known, as take does.
func (l *leadership) knows(r *promptRun) error {
	switch {
	case r.err == nil:
		l.moved(r.c, r.mark)
		if r.step.Plan.Missed > 0 {
			l.gaveUp(r.c.job, r.step.Plan)
		}
	case errors.Is(r.err, etcdclaims.ErrUnknown):
		return r.err
	default:
		r.c.refused, r.c.plan = true, nil
	}
	return nil
}

// admission returns the decision about the next due ticks of a job.
func (l *leadership) admission(c *jobState, p tick.Plan, now time.Time) decision {
	st := tick.Admission{Standing: l.overlapping(c, now), Mark: c.mark(), Plan: p}
	return decision{st.Build(), func(r txn.Reply) {
		switch a := st.Judge(r); {
		case a.Done:
			l.moved(c, a.Mark)
			if a.Gave && st.Plan.Missed > 0 {
				l.gaveUp(c.job, st.Plan)
			}
			l.decided(c, a.Decided, r.Rev)
		case a.Fewer && !c.single:
			c.single = true
		default:
			l.doubt(c)
		}
	}}
}

// moved takes over that the mark has moved.
func (l *leadership) moved(c *jobState, to tick.Mark) {
	c.high, c.highRev, c.doubts, c.single, c.refused = to.At, to.Rev, 0, false, false
	l.schedule(c)
}

// unhalted is the condition of admissions that no pause of many jobs was put of which this owner does not know.
func (l *leadership) unhalted() []*pb.Compare { return []*pb.Compare{l.keys.Unhalted(l.halted())} }

// longAgo is the age of a mark from which on the missed ticks are counted elsewhere.
const longAgo = time.Minute

// planFor returns the plan of a job, or false while it is made on a goroutine of its own. That may
// take long for schedules of other packages, whose ticks can only be counted one by one.
func (l *leadership) planFor(c *jobState, now time.Time) (p tick.Plan, ok bool) {
	if c.plan != nil {
		p, c.plan = *c.plan, nil
		return p, true
	}
	rules := c.planned()
	from := c.from()
	if rules.CountsFast() || now.Sub(from) <= longAgo {
		return rules.Plan(from, now, l.cfg.Grace, l.ticks), true
	}
	c.planning = true
	l.place(c)
	mark, most := c.mark(), l.ticks
	go func() {
		p := rules.Plan(from, now, l.cfg.Grace, most)
		l.inbox.Post(func() {
			c.planning = false
			if c.highRev == mark.Rev && c.from().Equal(from) && !p.High.IsZero() {
				c.plan = &p
			}
			l.place(c)
		})
	}()
	return tick.Plan{}, false
}

// followers returns the jobs that run after a job. This process has learnt of them before its first round.
func (l *leadership) followers(job string) []tick.Follower {
	all, _ := l.catalog.following(job)
	return all
}

// standing returns what a decision about ticks of a job is based on.
func (l *leadership) standing(c *jobState, now time.Time) tick.Standing {
	return tick.Standing{
		Keys:      l.keys,
		Job:       c.job.rules,
		Failures:  c.failures,
		History:   l.history(c.job),
		Followers: l.followers,
		Epoch:     l.epoch.Load(),
		Now:       now,
	}
}

// overlapping is standing with the waiting ticks, which may be replaced or fill the buffer.
func (l *leadership) overlapping(c *jobState, now time.Time) tick.Standing {
	st := l.standing(c, now)
	switch st.Job.Overlap {
	case tick.BufferAll, tick.CancelRunning:
		l.absorb() // ticks that this process has begun since no longer wait
		st.Waiting = lanes.Line{}
		if all := l.waiting[c.id]; all != nil {
			st.Waiting = all.line
		}
	}
	return st
}

// decided takes over what became of ticks.
func (l *leadership) decided(c *jobState, d tick.Decided, rev int64) {
	l.tallied(c, d.Tally, true, rev, d.Paused)
	for _, w := range d.Gone {
		l.view.Remove(w.Key, rev)
	}
	for _, p := range d.Left {
		l.left(c.job, p)
	}
	for _, w := range d.Waits {
		l.view.PutTick(w, rev)
	}
}

// tallied takes over whether a decision with the tally was carried out, at the revision, which
// it returns.
func (l *leadership) tallied(c *jobState, t tick.Tally, ok bool, rev int64, paused bool) bool {
	switch {
	case !t.Counts():
	case !ok:
		l.doubt(c)
	case t.Pauses:
		c.failures = tick.Counted{}
		if paused {
			l.paused(c.job, t)
		}
	default:
		c.failures = tick.Counted{Failures: t.Sum, Rev: rev}
	}
	return ok
}
