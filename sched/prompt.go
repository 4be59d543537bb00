package sched

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// promptRun is the run of a tick that begins in the transaction that admits it. This saves a
// round trip, and the tick never waits.
type promptRun struct {
	starter *starter
	c       *jobState
	job     Job
	plan    tick.Plan
	until   time.Duration // for how long it may be tried

	mark tick.Mark // from its begin on
	err  error     // why it did not begin
}

// mayBegin returns the run of a due tick that can begin at once, as far as this process sees:
// no tick waits, and no run is in progress, that the job's Overlap has to deal with.
func (l *leadership) mayBegin(c *jobState, p tick.Plan, now time.Time) (*promptRun, bool) {
	s := l.s
	r := &promptRun{starter: s.starter.Load(), c: c, plan: p, until: readTime}
	if s.cfg.Spread || s.cfg.Limit > 0 || r.starter == nil || c.refused || len(p.Ticks) != 1 || p.Late {
		return nil, false
	}
	if d := c.job.StartDeadline; d > 0 {
		r.until = min(r.until, d-now.Sub(p.Ticks[0]))
	}
	if _, skips := c.job.CatchUp.(SkipMissed); skips {
		r.until = min(r.until, s.cfg.Grace-now.Sub(c.job.rules().Actual(p.Ticks[0])))
	}
	for _, dir := range s.keys.Before(c.job.rules()) {
		if s.view.CountIn(dir) > 0 {
			return nil, false
		}
	}
	var has bool
	r.job, has = s.catalog.job(c.job.Name)
	return r, has && r.until > 0
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
		l.moved(r.c, r.mark)
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
	s, j := l.s, of.c.job.rules()
	first := j.First(of.plan.Ticks[0])
	first.Missed = of.plan.Missed
	r := s.newRun(tick.RunClaim(s.cfg.Group, j.Name, first.ID, !first.Parallel), first)
	st := tick.Prompt{Keys: s.keys, Job: j, Mark: of.c.mark(), Plan: of.plan, Run: r, Value: encode(r), Guard: guard(l.claim)}
	cl, err := s.claimRun(ctx, of.until, r, st.Build())
	if of.err = err; err != nil {
		return
	}
	mark, is := st.Judge(cl.Revision())
	of.mark = mark
	s.view.PutRun(s.keys.Run(j.Name, r.ID), st.Value, is, mark.Rev)
	of.starter.adopt(of.job, *is, st.Value, cl, begun)
}

// guard is the condition that a claim is held.
func guard(claim *etcdclaims.Claim) []*pb.Compare { return txn.Of(claim.Guard(), nil, nil).Compare }
