package sched

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// orphanCheck is how often runs are looked at whose end nobody has told of.
const orphanCheck = 5 * time.Second

// epochShift is where a fence has the epoch, above the revision.
const epochShift = 47

// settleOrphans ends the records of runs whose claim is gone. The claim and the
// record are put in one transaction, so the claim is the run's own if it has the
// record's revision; and a run deletes its record before it gives up its claim.
func (t *tenure) settleOrphans(ctx context.Context) error {
	t.looked = time.Now()
	type suspect struct {
		key string
		is  kv
	}
	var suspects []suspect
	for key, is := range t.s.view.under(t.s.keys.runs()) {
		if is.run != nil && !t.s.runs(is.run.Run) {
			suspects = append(suspects, suspect{key, is})
		}
	}
	for len(suspects) > 0 {
		some := suspects[:min(t.batch, len(suspects))]
		suspects = suspects[len(some):]
		ops := make([]clientv3.Op, len(some))
		for i, su := range some {
			ops[i] = clientv3.OpGet(t.s.claims.OwnKey(su.is.run.Claim), clientv3.WithKeysOnly())
		}
		reading, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
		resp, err := t.s.claims.Etcd().Txn(reading).Then(ops...).Commit()
		cancel()
		if err != nil {
			return err
		}
		var steps []decision
		for i, su := range some {
			own := resp.Responses[i].GetResponseRange().Kvs
			if len(own) > 0 && own[0].ModRevision == su.is.rev {
				continue
			}
			if c := t.jobs[digest(su.is.run.Job)]; c != nil { // else its owner is to be one that has the job
				steps = append(steps, t.settle(c, su.key, *su.is.run, su.is.rev))
			}
		}
		if err := t.take(ctx, steps); err != nil {
			return err
		}
	}
	return nil
}

// settle ends one record: the run is lost, or waits to be begun again.
func (t *tenure) settle(c *charge, key string, r run, rev int64) decision {
	j := c.job
	st := decision{
		cmps: []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(key), "=", rev),
			clientv3.Compare(clientv3.ModRevision(t.s.claims.OwnKey(r.Claim)), "!=", rev),
		},
		ops: []clientv3.Op{clientv3.OpDelete(key)},
	}
	p := r.past()
	p.Outcome, p.Fence, p.Ended = OutcomeLost, r.Epoch<<epochShift+rev, t.s.now()
	p.Error = "its claim was lost, or its process died, before it had ended"
	// An attempt of this process whose claim was never confirmed did nothing.
	begun := !t.s.neverBegun(r.Run)
	again, over := r.ready, false
	switch {
	case !begun:
	case j.Delivery == AtLeastOnce && r.Attempt < j.MaxAttempts:
		again = r.again(p, "was lost")
	default:
		over = true
	}
	if !over && t.outdated(c, r.ID) {
		p, over = waiter{ready: again}.leftOut(OutcomeReplaced, p.Ended), true
	}
	if over {
		st.ops = append(st.ops, t.s.add(j, p)...)
		st.done = func(ok bool, at int64, _ []*pb.ResponseOp) {
			if ok {
				t.s.begunNever(r.Run, false)
				t.s.view.remove(key, at)
				t.s.left(j, p)
			}
		}
		return st
	}
	waits := t.s.keys.ready(j.Name, r.ID)
	op, instead := t.s.waitAgain(j, again, p.Ended)
	st.ops = append(st.ops, op)
	st.done = func(ok bool, at int64, replies []*pb.ResponseOp) {
		if !ok {
			return
		}
		t.s.begunNever(r.Run, false)
		t.s.view.remove(key, at)
		if inner := replies[1].GetResponseTxn(); inner != nil && !inner.Succeeded {
			t.s.left(j, instead)
			return
		}
		t.s.view.put(waits, encode(again), at)
		t.s.log.Warn("a tick is begun again", zap.String("job", j.Name), zap.String("tick", r.ID), zap.Int("attempt", again.Attempt))
	}
	return st
}

// outdated reports whether a newer tick is about to be admitted in the place of
// one that would wait again.
func (t *tenure) outdated(c *charge, id string) bool {
	return c.job.newestOnly(id) && !c.paused && c.highRev != 0 && !c.job.due(c.high, t.s.now(), t.s.cfg.Grace).run.IsZero()
}

// newestOnly reports whether a tick gives way to any newer one.
func (j Job) newestOnly(id string) bool {
	_, is := j.Overlap.(CancelRunning)
	return is && !isBackfill(id)
}

// again is the tick as it waits for its next attempt, after one that ended so.
func (r run) again(p past, how string) ready {
	next := r.ready
	next.Attempt++
	next.Last = &p
	next.Note = "attempt " + itoa(r.Attempt) + " by " + r.Owner + " " + how
	return next
}

// waitAgain lets a tick wait that was begun. With CancelRunning it does not if a
// newer one waits, and instead is what is recorded then.
func (s *Scheduler) waitAgain(j Job, r ready, now time.Time) (op clientv3.Op, instead past) {
	put := clientv3.OpPut(s.keys.ready(j.Name, r.ID), encode(r))
	if !j.newestOnly(r.ID) {
		return put, past{}
	}
	instead = waiter{ready: r}.leftOut(OutcomeReplaced, now)
	return clientv3.OpTxn([]clientv3.Cmp{absent(s.keys.readyOf(j.Name)).WithPrefix()}, []clientv3.Op{put}, s.add(j, instead)), instead
}

// watchRuns hears of claims that are gone, until ctx ends.
func (s *Scheduler) watchRuns(ctx context.Context) {
	for try := 0; ctx.Err() == nil; try++ {
		for ev, err := range s.claims.Watch(ctx, "sched/"+s.cfg.Group+"/") {
			if err != nil {
				s.log.Warn("the ends of runs cannot be watched; they are looked for now and then", zap.Error(err))
				break
			}
			s.heard(ev)
		}
		pauseFor(ctx, try+3)
	}
}
