package sched

import (
	"context"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// admit admits what is due. It returns when nothing is, as far as is known.
func (t *tenure) admit(ctx context.Context) error {
	for {
		now := t.s.now()
		var steps []decision
		for _, c := range t.jobs {
			if c.paused || c.at.IsZero() || c.at.After(now) || c.highRev == 0 {
				continue
			}
			d := c.job.due(c.high, now, t.s.cfg.Grace)
			if d.high.IsZero() {
				t.schedule(c) // not yet: its jitter is not over, or the clock was put back
				continue
			}
			steps = append(steps, t.admission(c, d, now))
		}
		if len(steps) == 0 {
			return nil
		}
		if err := t.take(ctx, steps); err != nil || t.stale {
			return err
		}
	}
}

// admission is the step that decides about the next due ticks of a job. Of all
// such steps, by whichever owner, one moves the mark from where it is: it requires
// that nobody moved it since, that the tick is beyond it, and that the job is not
// paused.
func (t *tenure) admission(c *charge, d due, now time.Time) decision {
	k, j := t.s.keys, c.job
	high := k.high(j.Name)
	st := decision{
		cmps: []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(high), "=", c.highRev),
			clientv3.Compare(clientv3.Value(high), "<", enc(d.high)),
			clientv3.Compare(clientv3.CreateRevision(k.paused(j.Name)), "=", 0),
		},
		ops: []clientv3.Op{clientv3.OpPut(high, enc(d.high))},
	}
	var told []past
	var decided func(bool, int64, []*pb.ResponseOp)
	switch {
	case d.run.IsZero():
		p := past{ID: nominalID(d.high), Outcome: OutcomeMissed, Nominal: d.high, Missed: d.missed, Ended: now}
		if d.late {
			p.Outcome, p.Actual = OutcomeLate, j.actual(d.high)
		}
		told = append(told, p)
		st.ops = append(st.ops, t.s.add(j, p)...)
	default:
		r := ready{Version: valueVersion, Job: j.Name, ID: nominalID(d.run), Nominal: d.run, Actual: j.actual(d.run), Attempt: 1, Missed: d.missed, Parallel: j.parallel()}
		cmps, op, then := t.decide(c, r, now)
		st.cmps = append(st.cmps, cmps...)
		st.ops = append(st.ops, op)
		decided = then
	}
	st.done = func(ok bool, rev int64, replies []*pb.ResponseOp) {
		if !ok {
			t.stale = true
			return
		}
		c.high, c.highRev = d.high, rev
		t.schedule(c)
		for _, p := range told {
			t.s.left(j, p)
		}
		if decided != nil {
			decided(true, rev, replies[len(replies)-1:])
		}
	}
	return st
}

// decide says whether a tick waits to be begun, by the job's Overlap: cmps are
// conditions of the step that it is part of, and op does the one or the other,
// judged by etcd at that instant.
func (t *tenure) decide(c *charge, r ready, now time.Time) (cmps []clientv3.Cmp, op clientv3.Op, done func(bool, int64, []*pb.ResponseOp)) {
	k, j := t.s.keys, c.job
	r.Epoch = t.s.epoch.Load()
	key, value := k.ready(j.Name, r.ID), encode(r)
	admit := []clientv3.Op{clientv3.OpPut(key, value)}
	skipped := past{ID: r.ID, Outcome: OutcomeSkipped, Nominal: r.Nominal, Actual: r.Actual, Missed: r.Missed, Ended: now}
	admitted := func(ok bool, rev int64, replies []*pb.ResponseOp) {
		if !ok {
			t.stale = true
			return
		}
		inner := replies[0].GetResponseTxn()
		if !inner.Succeeded {
			t.s.left(j, skipped)
			return
		}
		t.s.view.put(key, value, rev)
	}
	switch policy := j.Overlap.(type) {
	case BufferOne:
		op = clientv3.OpTxn([]clientv3.Cmp{absent(k.readyOf(j.Name)).WithPrefix()}, admit, t.s.add(j, skipped))
	case BufferAll:
		// Those that wait are begun in their order, so as many wait as are allowed
		// if and only if the one does that has so many behind it.
		var full []clientv3.Cmp
		if waiting := t.s.waiting(j.Name); len(waiting) >= policy.max() {
			full = append(full, absent(waiting[len(waiting)-policy.max()].key))
		}
		op = clientv3.OpTxn(full, admit, t.s.add(j, skipped))
	case Allow:
		op = clientv3.OpTxn(nil, admit, nil)
	case CancelRunning:
		return t.replace(c, r, admit, now)
	default:
		free := []clientv3.Cmp{
			absent(k.readyOf(j.Name)).WithPrefix(), absent(k.runOf(j.Name)).WithPrefix(),
			absent(t.s.claims.OwnKey(jobKey(t.s.cfg.Group, j.Name))),
		}
		op = clientv3.OpTxn(free, admit, t.s.add(j, skipped))
	}
	return nil, op, admitted
}

// replace lets the tick wait in the place of all that wait, and asks what runs to
// end.
func (t *tenure) replace(c *charge, r ready, admit []clientv3.Op, now time.Time) (cmps []clientv3.Cmp, op clientv3.Op, done func(bool, int64, []*pb.ResponseOp)) {
	k, j := t.s.keys, c.job
	waiting := t.s.waiting(j.Name)
	waiting = waiting[max(0, len(waiting)-2):] // what is left goes with the next
	var replaced []past
	for _, w := range waiting {
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(w.key), "=", w.rev))
		admit = append(admit, clientv3.OpDelete(w.key))
		p := w.leftOut(OutcomeReplaced, now)
		replaced = append(replaced, p)
		admit = append(admit, t.s.add(j, p)...)
	}
	request := encode(cancelling{Version: valueVersion, By: "sched", Note: "the next tick is due: " + r.ID, At: now})
	// Nothing to cancel needs no request.
	admit = append(admit, clientv3.OpTxn(
		[]clientv3.Cmp{absent(k.runOf(j.Name)).WithPrefix()}, nil, []clientv3.Op{clientv3.OpPut(k.cancel(j.Name), request)}))
	return cmps, clientv3.OpTxn(nil, admit, nil), func(ok bool, rev int64, _ []*pb.ResponseOp) {
		if !ok {
			t.stale = true
			return
		}
		for i, w := range waiting {
			t.s.view.remove(w.key, rev)
			t.s.left(j, replaced[i])
		}
		t.s.view.put(k.ready(j.Name, r.ID), encode(r), rev)
	}
}

// absent is the condition that a key, or a prefix, has nothing.
func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// left reports that a tick was not run here, or its run was lost.
func (s *Scheduler) left(j Job, p past) {
	p.Job = j.Name
	s.log.Warn("a tick was left out", zap.String("job", j.Name), zap.String("tick", p.ID), zap.String("outcome", string(p.Outcome)),
		zap.Int("missed", p.Missed))
	if hook := s.cfg.Hooks.Left; hook != nil {
		hook(p.entry(s.cfg.Group))
	}
}

// waiter is a tick that waits to be begun.
type waiter struct {
	ready
	key string
	rev int64
}

// admitted is the revision at which the tick was admitted.
func (w waiter) admitted() int64 {
	if w.Admitted > 0 {
		return w.Admitted
	}
	return w.rev
}

// leftOut is the record of a tick that waited and is not begun. If an attempt of
// it was, that may have done its work: it is the record of that.
func (w waiter) leftOut(why Outcome, now time.Time) past {
	if w.Last == nil {
		return past{ID: w.ID, Outcome: why, Nominal: w.Nominal, Actual: w.Actual, Missed: w.Missed, Admitted: w.admitted(), Ended: now}
	}
	p := *w.Last
	p.Ended, p.Error = now, limitText(p.Error+"; it was not begun again: "+string(why))
	return p
}

// waiting returns the ticks of a job that wait, in their order; backfills have
// one of their own.
func (s *Scheduler) waiting(job string) []waiter { return s.waitersUnder(s.keys.readyOf(job)) }

func (s *Scheduler) waitersUnder(prefix string) []waiter {
	var out []waiter
	for key, is := range s.view.under(prefix) {
		if is.ready != nil {
			out = append(out, waiter{ready: *is.ready, key: key, rev: is.rev})
		}
	}
	return inOrder(out)
}

// inOrder sorts ticks by when they are due.
func inOrder(out []waiter) []waiter {
	slices.SortFunc(out, func(a, b waiter) int {
		if c := a.Nominal.Compare(b.Nominal); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}
