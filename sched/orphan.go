package sched

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// orphanCheck is how often the owner reads the claims of recorded runs.
const orphanCheck = 5 * time.Second

// suspect is a run that may be an orphan.
type suspect struct {
	key string
	is  live.KV
}

// settleOrphans ends the records of some runs whose claim is gone.
func (l *leadership) settleOrphans(ctx context.Context) (more bool, err error) {
	if len(l.suspects) == 0 && (l.rescan || time.Since(l.looked) >= orphanCheck) {
		l.rescan, l.looked = false, clock.Mono()
		runs := l.view.Runs()
		l.unknown.keep(runs)
		if err := l.suspect(ctx, runs); err != nil {
			return false, err
		}
	}
	if len(l.suspects) == 0 {
		return false, nil
	}
	some := l.suspects[:min(l.steps, len(l.suspects))]
	var ops txn.Ops
	owns, specs := make([]txn.Op, len(some)), make([]txn.Op, len(some)) // specs of jobs that this owner cannot run
	for i, su := range some {
		owns[i] = ops.Add(clientv3.OpGet(l.claims.OwnKey(su.is.Run.Claim), clientv3.WithKeysOnly()))
		if l.runnable(keyspace.Digest(su.is.Run.Job)) == nil {
			specs[i] = ops.Add(clientv3.OpGet(l.keys.Spec(su.is.Run.Job)))
		}
	}
	resp, err := retry.Read(ctx, core.Of(l.claims).KV(), readTime, ops...)
	if err != nil {
		return false, txn.Denied(err)
	}
	reply := txn.ReplyIn(resp)
	fates, err := l.fates(ctx, some)
	if err != nil {
		return false, err
	}
	var steps []decision
	counted := make(map[*jobState]bool)
	for i, su := range some {
		if !tick.IsOrphan(reply.First(owns[i]).GetModRevision(), su.is.Rev) {
			continue
		}
		c := l.runnable(keyspace.Digest(su.is.Run.Job))
		if c == nil && specs[i] != 0 {
			c = l.stranger(su.key, *su.is.Run, reply.First(specs[i]))
		}
		if c == nil { // an owner that has the job settles it
			continue
		}
		st, counts := l.settle(c, su, !fates[i].never)
		if counts && (counted[c] || !c.readAt.IsZero()) {
			l.rescan = l.rescan || counted[c] // one transaction counts one failure of a job
			continue
		}
		steps, counted[c] = append(steps, st), counted[c] || counts
	}
	if err := l.take(ctx, steps); err != nil {
		l.suspects, l.rescan = nil, true
		return false, err
	}
	l.suspects = l.suspects[len(some):]
	return len(l.suspects) > 0 || l.rescan, nil
}

// suspect notes the recorded runs that this process does not have.
func (l *leadership) suspect(ctx context.Context, runs map[string]live.KV) error {
	var all []suspect
	for key, is := range runs {
		all = append(all, suspect{key, is})
	}
	fates, err := l.fates(ctx, all)
	if err != nil {
		return err
	}
	for i, su := range all {
		if !fates[i].alive {
			l.suspects = append(l.suspects, su)
		}
	}
	return nil
}

// fates returns what this process knows of runs.
func (l *leadership) fates(ctx context.Context, of []suspect) ([]fate, error) {
	var ids []string
	for _, su := range of {
		ids = append(ids, su.is.Run.Run)
	}
	return l.starter.fates(ctx, ids)
}

// settle ends one record: the run is recorded as lost, or its tick waits again. It reports
// whether that may count a failure.
func (l *leadership) settle(c *jobState, of suspect, begun bool) (d decision, counts bool) {
	r, rev := *of.is.Run, of.is.Rev
	j, p := c.job, r.Past()
	p.Fence, p.Ended = keyspace.Fence(r.Epoch, rev), l.now()
	l.explain(j, r, &p)
	if j.problem != "" {
		p.Error = limitText(p.Error + "; " + j.problem)
	}
	st := tick.Settle{
		Standing: l.standing(c, p.Ended), Run: r, Rev: rev, Past: p,
		// An attempt of this process without a confirmed claim has called no handler.
		Begun:    begun,
		By:       l.withdrawn[c.id].Withdrawal,
		Outdated: l.outdated(c, r.ID),
	}
	return decision{st.Build(), func(reply txn.Reply) { l.settled(c, r, st.Rev, st.Judge(reply), reply.Rev) }}, st.Counts()
}

// settled takes over whether a record, put at the revision began, was ended at rev.
func (l *leadership) settled(c *jobState, r run, began int64, d tick.Settled, rev int64) {
	if !l.tallied(c, d.Tally, d.Done, rev, d.Paused) {
		return
	}
	l.starter.settled(r.Run)
	if d.Waits != nil {
		l.view.PutTick(*d.Waits, rev)
	}
	l.removed(r, began, rev)
	if d.Left != nil {
		l.left(c.job, *d.Left)
		return
	}
	l.log.Warn("tick waits for another attempt", zap.String("job", c.job.Name),
		zap.String("key", r.Claim), zap.String("tick", r.ID), zap.Int("attempt", d.Waits.Ready.Attempt))
}

// outdated reports whether a newer tick is about to replace one that would wait again.
func (l *leadership) outdated(c *jobState, id string) bool {
	if !c.job.rules.NewestOnly(id) || c.isPaused() || !c.registered() {
		return false
	}
	p := c.planned().Plan(c.from(), l.now(), l.cfg.Grace, 1)
	return len(p.Ticks) > 0 && !p.Late
}
