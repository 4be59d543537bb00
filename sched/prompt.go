package sched

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/keyspace"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// promptRun is the run of a tick that begins in the transaction that admits it. This saves a
// round trip, and the tick never waits.
type promptRun struct {
	starter *starter
	c       *jobState
	job     Job
	plan    plan
	until   time.Duration // for how long it may be tried

	rev int64 // at which it began
	err error // why it did not
}

// mayBegin returns the run of a due tick that can begin at once, as far as this process sees:
// no tick waits, and no run is in progress, that the job's Overlap has to deal with.
func (l *leadership) mayBegin(c *jobState, p plan, now time.Time) (*promptRun, bool) {
	s := l.s
	r := &promptRun{starter: s.starter.Load(), c: c, plan: p, until: readTime}
	if s.cfg.Spread || s.cfg.Limit > 0 || r.starter == nil || c.refused || len(p.ticks) != 1 || p.late {
		return nil, false
	}
	if d := c.job.StartDeadline; d > 0 {
		r.until = min(r.until, d-now.Sub(p.ticks[0]))
	}
	if _, skips := c.job.CatchUp.(SkipMissed); skips {
		r.until = min(r.until, s.cfg.Grace-now.Sub(c.job.actual(p.ticks[0])))
	}
	for _, dir := range l.before(c.job) {
		if s.view.countIn(dir) > 0 {
			return nil, false
		}
	}
	var has bool
	r.job, has = s.job(c.job.Name)
	return r, has && r.until > 0
}

// before returns the directories of the ticks and runs that a tick of the job may have to wait
// for, or replace.
func (l *leadership) before(j Job) []string {
	k := l.s.keys
	if j.parallel() {
		return []string{k.readyOf(j.Name)}
	}
	return []string{k.readyOf(j.Name), k.runOf(j.Name), k.backfilling(j.Name)}
}

// admit carries out decisions, and begins the runs that may begin at once. A tick that did not
// begin is planned anew and admitted like others. If ctx ends, Run waits for those under way.
func (l *leadership) admit(ctx context.Context, prompt []*promptRun, todo []decision) error {
	known := make(chan *promptRun, len(prompt))
	for _, r := range prompt {
		l.s.prompt.Add(1)
		go l.begin(ctx, r, sync.OnceFunc(func() {
			known <- r
			l.s.prompt.Done()
		}))
	}
	err := l.take(ctx, todo)
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
		l.moved(r.c, r.plan, r.rev)
		l.s.gaveUp(r.c.job, r.plan)
	case errors.Is(r.err, etcdclaims.ErrUnknown):
		return r.err
	default:
		r.c.refused, r.c.plan = true, nil
	}
	return nil
}

// begin admits a tick and claims its run, in one transaction. It calls begun when it knows
// whether that was carried out, and returns when the run has ended.
func (l *leadership) begin(ctx context.Context, of *promptRun, begun func()) {
	defer begun()
	s, j, nominal := l.s, of.c.job, of.plan.ticks[0]
	tick := j.firstAttempt(nominal)
	tick.Missed = of.plan.missed
	r := s.newRun(claimKey(s.cfg.Group, j.Name, tick.ID, !tick.Parallel), tick)
	cmps := append(l.unmoved(of.c, of.plan), l.claim.Guard()...)
	if !tick.Parallel {
		for _, dir := range l.before(j) {
			cmps = append(cmps, absent(dir).WithPrefix())
		}
	}
	cl, value, err := s.claimRun(ctx, of.until, r, cmps, clientv3.OpPut(s.keys.high(j.Name), keyspace.Instant(of.plan.high)))
	if of.err = err; err != nil {
		return
	}
	of.rev, r.Admitted = cl.Revision(), cl.Revision()
	s.view.put(s.keys.run(j.Name, r.ID), value, of.rev)
	of.starter.adopt(of.job, r, value, cl, begun)
}
