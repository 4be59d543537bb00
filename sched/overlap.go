package sched

import (
	"time"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// standing returns what a decision about ticks of a job is based on.
func (l *leadership) standing(c *jobState, now time.Time) tick.Standing {
	return tick.Standing{
		Keys:     l.s.keys,
		Job:      c.job.rules(),
		Failures: c.failures,
		History:  l.s.history(c.job),
		Epoch:    l.s.epoch.Load(),
		Now:      now,
	}
}

// overlapping is standing with the waiting ticks, which may be replaced or fill the buffer.
func (l *leadership) overlapping(c *jobState, now time.Time) tick.Standing {
	st := l.standing(c, now)
	switch st.Job.Overlap {
	case tick.BufferAll, tick.CancelRunning:
		st.Waiting = waitingTicks(l.waitingOf(c))
	}
	return st
}

// waitingTicks are waiting ticks as a step knows them.
type waitingTicks []*waiter

func (w waitingTicks) Len() int              { return len(w) }
func (w waitingTicks) At(i int) tick.Waiting { return w[i].Waiting }

// decided takes over what became of ticks.
func (l *leadership) decided(c *jobState, d tick.Decided, rev int64) {
	l.tallied(c, d.Tally, true, rev, d.Paused)
	for _, w := range d.Gone {
		l.s.view.Remove(w.Key, rev)
	}
	for _, p := range d.Left {
		l.s.left(c.job, p)
	}
	for _, w := range d.Waits {
		l.s.view.PutTick(w, rev)
	}
}

// step returns the decision that a step is. judge is called with the reply.
func step(in *pb.TxnRequest, judge func(r txn.Reply)) decision {
	cmps, ops, _ := txn.Operations(in)
	return decision{cmps: cmps, ops: ops, done: judge}
}
