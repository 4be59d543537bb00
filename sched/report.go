package sched

import (
	"github.com/etcdclaims/claims/internal/tick"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/zap"
)

// gaveUp logs that ticks were given up in favour of those that were admitted.
func (g *group) gaveUp(j Job, p tick.Plan) {
	g.log.Warn("ticks missed", g.aboutJob(j.Name, zap.Int("missed", p.Missed), zap.String("next", tick.NominalID(p.Ticks[0])))...)
}

// left logs that a tick was not run, or that its run was lost, and calls the hook. A
// policy that leaves out a tick is no reason for a warning.
func (g *group) left(j Job, p past) {
	p.Job = j.Name
	if p.Attempt == 0 { // otherwise another attempt may follow
		g.noteEnd(j, p)
	}
	fields := g.aboutJob(j.Name, zap.String("tick", p.ID), zap.String("outcome", string(p.Outcome)), zap.Int("missed", p.Missed))
	switch {
	case p.Failed() && !p.Outcome.Bad():
		g.log.Error("tick given up; its last attempt failed",
			append(fields, zap.Int("attempt", p.Attempt), zap.String("error", p.Error))...)
	case p.Outcome == OutcomeSkipped, p.Outcome == OutcomeCancelled:
		g.log.Info("tick skipped", fields...)
	case p.Outcome == OutcomeLate, p.Outcome == OutcomeMissed:
		g.log.Warn("tick missed", fields...)
	default:
		g.log.Warn("run lost", append(fields, zap.Int("attempt", p.Attempt), zap.Int64("fence", p.Fence), zap.String("error", p.Error))...)
	}
	if hook := g.cfg.Hooks.Left; hook != nil {
		hook(entryOf(g.cfg.Group, p))
	}
}

// paused logs that a tally has paused the job.
func (g *group) paused(j Job, t tick.Tally) {
	g.log.Warn("job paused: too many of its runs failed in a row", zap.String("job", j.Name),
		zap.String("key", jobKey(g.cfg.Group, j.Name)), zap.Int("failures", j.PauseOnFailure), zap.String("error", t.Last.Error))
}

// resumed logs that a pause has ended by itself.
func (g *group) resumed(j Job, p pause) {
	g.log.Info("job resumed: its pause has ended", zap.String("job", j.Name), zap.String("key", jobKey(g.cfg.Group, j.Name)),
		zap.String("paused by", p.By), zap.Time("until", p.Until))
}

// readFailures decodes the failures of a job. One of a later version is not counted on.
func (g *group) readFailures(job string, kv *mvccpb.KeyValue) (f tick.Counted) {
	if kv == nil {
		return f
	}
	var err error
	if f.Failures, err = decode[tick.Failures](string(kv.Key), kv.Value); err != nil {
		g.log.Error("failures not counted: their record cannot be read",
			zap.String("job", job), zap.ByteString("etcd_key", kv.Key), zap.Error(err))
	}
	f.Rev, f.Unreadable = kv.ModRevision, err != nil
	return f
}
