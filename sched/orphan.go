package sched

import (
	"context"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// orphanCheck is how often the owner reads the claims of recorded runs.
const orphanCheck = 5 * time.Second

// suspect is a run that may be an orphan.
type suspect struct {
	key string
	is  kv
}

// settleOrphans ends the records of some runs whose claim is gone. The claim and the
// record of a run are put in one transaction, so a claim of another revision is not the
// run's. A run deletes its record before it gives up its claim.
func (l *leadership) settleOrphans(ctx context.Context) (more bool, err error) {
	if len(l.suspects) == 0 && (l.rescan || time.Since(l.looked) >= orphanCheck) {
		l.rescan, l.looked = false, clock.Mono()
		var runs map[string]kv
		if l.s.view.anyRuns() {
			runs = l.s.view.runs()
		}
		l.unknown.keep(runs)
		for key, is := range runs {
			if !l.s.runs(is.run.Run) {
				l.suspects = append(l.suspects, suspect{key, is})
			}
		}
	}
	if len(l.suspects) == 0 {
		return false, nil
	}
	some := l.suspects[:min(l.steps, len(l.suspects))]
	var ops txn.Ops
	owns, specs := make([]txn.Op, len(some)), make([]txn.Op, len(some)) // specs of jobs that this owner cannot run
	for i, su := range some {
		owns[i] = ops.Add(clientv3.OpGet(l.s.claims.OwnKey(su.is.run.Claim), clientv3.WithKeysOnly()))
		if l.runnable(keyspace.Digest(su.is.run.Job)) == nil {
			specs[i] = ops.Add(clientv3.OpGet(l.s.keys.spec(su.is.run.Job)))
		}
	}
	reading, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
	resp, err := core.Of(l.s.claims).KV().Txn(reading).Then(ops...).Commit()
	cancel()
	if err != nil {
		return false, txn.Denied(err)
	}
	reply := txn.ReplyIn(resp)
	var steps []decision
	counted := make(map[*jobState]bool)
	for i, su := range some {
		if own := reply.First(owns[i]); own != nil && own.ModRevision == su.is.rev {
			continue
		}
		c := l.runnable(keyspace.Digest(su.is.run.Job))
		if c == nil && specs[i] != 0 {
			c = l.stranger(su.key, *su.is.run, reply.First(specs[i]))
		}
		if c == nil { // an owner that has the job settles it
			continue
		}
		st, counts := l.settle(c, su.key, *su.is.run, su.is.rev)
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

// settle ends one record: the run is recorded as lost, or its tick waits again. It reports
// whether that may count a failure.
func (l *leadership) settle(c *jobState, key string, r run, rev int64) (st decision, counts bool) {
	j := c.job
	st = decision{
		cmps: []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(key), "=", rev),
			clientv3.Compare(clientv3.ModRevision(l.s.claims.OwnKey(r.Claim)), "!=", rev),
		},
	}
	p := r.past()
	p.Fence, p.Ended = keyspace.Fence(r.Epoch, rev), l.s.now()
	l.s.explain(j, r, &p)
	if j.problem != "" {
		p.Error = limitText(p.Error + "; " + j.problem)
	}
	// An attempt of this process without a confirmed claim has called no handler.
	begun := !l.s.neverBegun(r.Run)
	again, over := r.ready, false
	switch {
	case !begun:
	case r.mayBeginAgain(j):
		again = r.again(p, "was lost")
	default:
		over = true
	}
	switch wd := l.withdrawn[c.id]; {
	case over:
	case wd.rev > rev:
		p, over = again.withdrawn(p, wd.cancelling), true
	case l.outdated(c, r.ID):
		p, over = waiter{ready: again}.leftOut(OutcomeSkipped, p.Ended), true
	default:
		st.cmps = append(st.cmps, l.s.notWithdrawn(j, rev)) // otherwise the next search for orphans settles it
	}
	var cleanup []clientv3.Op
	if note := l.s.keys.stuck(j.Name, r.ID); !l.s.view.get(note).gone {
		cleanup = append(cleanup, clientv3.OpDelete(note))
	}
	if over {
		t := l.tally(c, p)
		st.cmps = append(st.cmps, t.cmps...)
		st.ops = slices.Concat(txn.Ops{clientv3.OpDelete(key)}, l.s.record(j, p), cleanup)
		pauses := t.add(&st.ops)
		st.done = func(reply txn.Reply) {
			if l.tallied(c, t, reply.Succeeded, reply, pauses) {
				l.s.begunNever(r.Run, false)
				l.s.view.remove(key, reply.Rev)
				l.s.left(j, p)
			}
		}
		return st, t.cmps != nil
	}
	waits, instead := l.s.keys.ready(j.Name, r.ID), p
	var t tally
	if j.newestOnly(r.ID) {
		instead = again.instead(p)
		t = l.tally(c, instead)
		st.cmps = append(st.cmps, t.cmps...)
	}
	// The tick waits again before its run is gone, also for those that watch both. So a
	// starter that sees no run sees the tick, and does not begin a later one first.
	wait := l.s.waitAgain(j, again, p, instead, t)
	st.ops = append(append(wait.ops, clientv3.OpDelete(key)), cleanup...)
	st.done = func(reply txn.Reply) {
		if !reply.Succeeded {
			l.tallied(c, t, false, reply, 0)
			return
		}
		l.s.begunNever(r.Run, false)
		if otherwise, is := wait.replaced(reply); is {
			l.tallied(c, t, true, otherwise, wait.pauses)
			l.s.view.remove(key, reply.Rev)
			l.s.left(j, instead)
			return
		}
		l.s.view.put(waits, encode(again), reply.Rev)
		l.s.view.remove(key, reply.Rev)
		l.s.log.Warn("tick waits for another attempt", zap.String("job", j.Name), zap.String("key", r.Claim), zap.String("tick", r.ID), zap.Int("attempt", again.Attempt))
	}
	return st, t.cmps != nil
}

// outdated reports whether a newer tick is about to replace one that would wait again.
func (l *leadership) outdated(c *jobState, id string) bool {
	return c.job.newestOnly(id) && !c.paused && c.registered() && c.planned().runsNext(c.high, l.s.now(), l.s.cfg.Grace)
}

// runsNext reports whether a tick after the mark is due and will run.
func (j Job) runsNext(high, now time.Time, grace time.Duration) bool {
	p := j.plan(high, now, grace, 1)
	return len(p.ticks) > 0 && !p.late
}

// newestOnly reports whether any newer tick replaces the tick.
func (j Job) newestOnly(id string) bool {
	_, is := j.Overlap.(CancelRunning)
	return is && !isBackfill(id)
}

// again returns the tick for its next attempt. The previous attempt ended as p.
func (r run) again(p past, how string) ready {
	next := r.ready
	next.Attempt++
	next.Last = &p
	next.Note = "attempt " + itoa(r.Attempt) + " by " + r.Owner + " " + how
	return next
}

// mayBeginAgain reports whether AtLeastOnce begins the tick again.
func (r run) mayBeginAgain(j Job) bool {
	return j.Guarantee == AtLeastOnce && r.Attempt-r.Retries < j.MaxStarts
}

// notWithdrawn is the condition that no Cancel of the job has come since a run began at the
// revision.
func (s *Scheduler) notWithdrawn(j Job, begun int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.keys.withdraw(j.Name)), "<", begun)
}

// withdrawn returns the record of an attempt that ended as p, and whose next attempt was
// withdrawn.
func (r ready) withdrawn(p past, by cancelling) past {
	if p.Again {
		p.Again, p.Error = false, p.Error+"; not tried again"
	} else {
		p = waiter{ready: r}.leftOut(OutcomeCancelled, p.Ended)
	}
	p.Error = by.explain(p.Error)
	return p
}

// instead returns the record of a tick that would wait again, after an attempt that ended as
// p, and that a newer tick replaces.
func (r ready) instead(p past) past {
	if !p.Again {
		return waiter{ready: r}.leftOut(OutcomeSkipped, p.Ended)
	}
	p.Again, p.Error = false, limitText(p.Error+"; not tried again, because a newer tick waits")
	return p
}

// waitOps are the operations that make a tick wait again.
type waitOps struct {
	ops    txn.Ops
	newest txn.Op // the transaction that asks whether a newer tick waits; 0 if none does
	pauses txn.Op // of the tally, in the second branch of that
}

// replaced reports whether a newer tick has replaced the tick, and returns the reply to what
// was done instead.
func (w waitOps) replaced(r txn.Reply) (txn.Reply, bool) {
	otherwise := r.Inner(w.newest)
	return otherwise, w.newest != 0 && !otherwise.Succeeded
}

// waitAgain returns the operations that make a begun tick wait again, after an attempt
// that ended as p; an attempt that Retry repeats is recorded too. With CancelRunning, if a
// newer tick waits, the operation records instead, and has the tally of that.
func (s *Scheduler) waitAgain(j Job, r ready, p, instead past, t tally) (w waitOps) {
	ops := txn.Ops{clientv3.OpPut(s.keys.ready(j.Name, r.ID), encode(r))}
	if p.Again {
		ops = append(ops, s.record(j, p)...)
	}
	if !j.newestOnly(r.ID) {
		return waitOps{ops: ops}
	}
	otherwise := txn.Ops(s.record(j, instead))
	w.pauses = t.add(&otherwise)
	w.newest = w.ops.Add(clientv3.OpTxn([]clientv3.Cmp{absent(s.keys.readyOf(j.Name)).WithPrefix()}, ops, otherwise))
	return w
}

// watchRuns watches the claims of the group until ctx ends.
func (s *Scheduler) watchRuns(ctx context.Context) {
	const watching = "watch claims"
	for try := 0; ctx.Err() == nil; try++ {
		for ev, err := range s.claims.Watch(ctx, "sched/"+s.cfg.Group+"/") {
			if err != nil {
				s.outage.fail(watching, err, zap.String("key", "sched/"+s.cfg.Group+"/"))
				break
			}
			s.outage.succeed(watching)
			s.heard(ev)
		}
		retry.Pause(ctx, try+5)
	}
}
