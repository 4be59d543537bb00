package sched

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/tick"
)

// takeHalt takes over a pause of many jobs. One that cannot be read is of the group and has no end.
func (l *leadership) takeHalt(key string, is live.KV) {
	delete(l.halts, key)
	delete(l.pauses, key)
	if !is.Gone {
		h, err := decode[tick.Halt](key, []byte(is.Value))
		if err != nil {
			h = tick.Halt{}
		} else if h.Ended.IsZero() {
			l.pauses[key] = h.Pause
		}
		l.halts[key] = halted{h, is.Rev}
	}
}

// halted is a pause of many jobs, and its revision.
type halted struct {
	tick.Halt
	rev int64
}

// halted returns the revision up to which this owner knows the pauses of many jobs.
func (l *leadership) halted() (rev int64) {
	for _, h := range l.halts {
		rev = max(rev, h.rev)
	}
	return rev
}

// rehalt computes anew which jobs are paused with the group or a tag, and when the first of these pauses
// ends by itself.
func (l *leadership) rehalt() {
	now := l.now()
	l.haltEnds = time.Time{}
	for _, h := range l.halts {
		if !h.Until.IsZero() && h.End(now).IsZero() && (l.haltEnds.IsZero() || h.Until.Before(l.haltEnds)) {
			l.haltEnds = h.Until
		}
	}
	all := l.allHalts()
	for _, c := range l.jobs {
		c.takeHalts(all, now)
		l.serve(c)
		l.schedule(c)
		l.unpaused(c)
	}
}

// allHalts returns the pauses of many jobs.
func (l *leadership) allHalts() (all tick.Halts) {
	for _, h := range l.halts {
		all = append(all, h.Halt)
	}
	return all
}

// takeHalts computes whether the job is paused with the group or a tag.
func (c *jobState) takeHalts(all tick.Halts, now time.Time) {
	of := all.Of(c.job.Tags)
	c.halt, c.leftOut, c.plan = of.Active(now), of.LeftOut(now), nil
}

// pauseOf returns the pause of a job that is paused.
func (l *leadership) pauseOf(c *jobState) *tick.Asked {
	if c.halt == nil {
		return &tick.Asked{Key: l.keys.Paused(c.job.Name), Rev: c.pauseRev}
	}
	key := l.keys.Halt(c.halt.Tag)
	return &tick.Asked{Key: key, Rev: l.halts[key].rev}
}

// hearHalts takes over the pauses of many jobs that have changed, or have ended by themselves. It is called before the
// other duties of a round, so that all decisions of the round are about the same pauses.
func (l *leadership) hearHalts(context.Context) (more bool, err error) {
	if len(l.heard) > 0 || !l.haltEnds.IsZero() && !l.now().Before(l.haltEnds) {
		for key, is := range l.heard {
			l.takeHalt(key, is)
		}
		clear(l.heard)
		l.rehalt()
	}
	return false, nil
}
