package sched

import (
	"context"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// readFailures decodes the failures of a job. One of a later version is not counted on.
func (s *Scheduler) readFailures(job string, kv *mvccpb.KeyValue) (f tick.Counted) {
	if kv == nil {
		return f
	}
	var err error
	if f.Failures, err = decode[tick.Failures](string(kv.Key), kv.Value); err != nil {
		s.log.Error("failures not counted: their record cannot be read", zap.String("job", job), zap.ByteString("etcd_key", kv.Key), zap.Error(err))
	}
	f.Rev, f.Unreadable = kv.ModRevision, err != nil
	return f
}

// paused logs that a tally has paused the job.
func (s *Scheduler) paused(j Job, t tick.Tally) {
	s.log.Warn("job paused: too many of its runs failed in a row", zap.String("job", j.Name),
		zap.String("key", jobKey(s.cfg.Group, j.Name)), zap.Int("failures", j.PauseOnFailure), zap.String("error", t.Last.Error))
}

// countEnd sets the tally of a run that ends.
func (s *Scheduler) countEnd(ctx context.Context, j Job, e *tick.End) error {
	e.Tally = tick.Tally{}
	if !e.Tallies() {
		return nil
	}
	resp, err := retry.Get(ctx, core.Of(s.claims).KV(), readTime, clientv3.OpGet(s.keys.Fail(j.Name)))
	if err != nil {
		return err
	}
	var kv *mvccpb.KeyValue
	if len(resp.Kvs) > 0 {
		kv = resp.Kvs[0]
	}
	e.Tally = s.keys.CountEnd(e.Job, s.readFailures(j.Name, kv), e.Left(), e.Began) // also if they cannot be read
	return nil
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
			l.s.paused(c.job, t)
		}
	default:
		c.failures = tick.Counted{Failures: t.Sum, Rev: rev}
	}
	return ok
}
