package sched

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// fillAhead is how many ticks of a backfill wait at a time.
const fillAhead = 32

// answer does what was asked for: it admits manual ticks, and those of backfills
// some at a time. That an ask is gone, or moved on, is part of the transaction, so
// that each is answered once. One request has one manual tick of a job: etcd judges
// the conditions of all its steps before it carries out any. The first that was
// asked for goes first, as it will be begun first.
func (t *tenure) answer(ctx context.Context) error {
	type asking struct {
		ask
		key string
		rev int64
	}
	var asks []asking
	for key, is := range t.s.view.under(t.s.keys.asks()) {
		a, err := decode[ask](key, []byte(is.value))
		if err != nil {
			t.s.log.Error("a request cannot be read, and is left alone", zap.Error(err))
			continue
		}
		asks = append(asks, asking{a, key, is.rev})
	}
	slices.SortFunc(asks, func(a, b asking) int { return a.At.Compare(b.At) })
	var todo []decision
	asked, more := make(map[string]bool), false
	for _, a := range asks {
		c := t.jobs[digest(a.Job)]
		if c == nil {
			continue // for an owner that has the job
		}
		if a.To.IsZero() {
			if asked[a.Job] {
				more = true
				continue
			}
			asked[a.Job] = true
			todo = append(todo, t.runNow(c, a.key, a.rev, a.ask))
		} else if d, ok := t.backfill(c, a.key, a.rev, a.ask); ok {
			todo = append(todo, d)
		}
	}
	if err := t.take(ctx, todo); err != nil || !more || t.stale {
		return err
	}
	return t.answer(ctx)
}

// runNow admits a manual tick, as the job's Overlap has it.
func (t *tenure) runNow(c *charge, key string, rev int64, a ask) decision {
	r := ready{Version: valueVersion, Job: a.Job, ID: manualID + a.ID, Nominal: a.At, Actual: a.At, Attempt: 1, Parallel: c.job.parallel(), Note: "asked for by " + a.By}
	cmps, op, decided := t.decide(c, r, t.s.now())
	return decision{
		cmps: append([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", rev)}, cmps...),
		ops:  []clientv3.Op{clientv3.OpDelete(key), op},
		done: func(ok bool, at int64, replies []*pb.ResponseOp) {
			if !ok {
				t.stale = true
				return
			}
			t.s.view.remove(key, at)
			decided(true, at, replies[1:])
		},
	}
}

// backfill admits the next ticks of a backfill, if few enough wait.
func (t *tenure) backfill(c *charge, key string, rev int64, a ask) (decision, bool) {
	room := fillAhead - len(t.s.view.under(t.s.keys.ready(a.Job, backfillID+a.ID+"/")))
	if room <= 0 {
		return decision{}, false
	}
	var some []ready
	next, over := a, true
	for nominal := range Between(c.job.Schedule, a.From, a.To) {
		if len(some) == room {
			over = false
			break
		}
		next.From = nominal
		some = append(some, ready{
			Version: valueVersion, Job: a.Job, ID: backfillID + a.ID + "/" + nominalID(nominal), Nominal: nominal, Actual: nominal, Attempt: 1,
			Parallel: a.Parallel, Epoch: t.s.epoch.Load(), Note: "asked for by " + a.By,
		})
	}
	d := decision{cmps: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", rev)}}
	if over {
		d.ops = append(d.ops, clientv3.OpDelete(key))
	} else {
		d.ops = append(d.ops, clientv3.OpPut(key, encode(next)))
	}
	for _, r := range some {
		d.ops = append(d.ops, clientv3.OpPut(t.s.keys.ready(a.Job, r.ID), encode(r)))
	}
	d.done = func(ok bool, at int64, _ []*pb.ResponseOp) {
		if !ok {
			t.stale = true
			return
		}
		if over {
			t.s.view.remove(key, at)
		} else {
			t.s.view.put(key, encode(next), at)
		}
		for _, r := range some {
			t.s.view.put(t.s.keys.ready(a.Job, r.ID), encode(r), at)
		}
	}
	return d, true
}

// dropLate gives up ticks that have waited past their StartDeadline.
func (t *tenure) dropLate(ctx context.Context) error {
	now := t.s.now()
	t.late = time.Time{}
	var todo []decision
	for key, is := range t.s.view.under(t.s.keys.readies()) {
		if is.ready == nil {
			continue
		}
		c := t.jobs[digest(is.ready.Job)]
		if c == nil || c.job.StartDeadline == 0 || isManual(is.ready.ID) {
			continue
		}
		w := waiter{ready: *is.ready, key: key, rev: is.rev}
		if end := w.Nominal.Add(c.job.StartDeadline); !c.job.tooLate(w.Nominal, now) {
			if t.late.IsZero() || end.Before(t.late) {
				t.late = end
			}
			continue
		}
		p := w.leftOut(OutcomeLate, now)
		todo = append(todo, decision{
			cmps: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", w.rev)},
			ops:  append([]clientv3.Op{clientv3.OpDelete(key)}, t.s.add(c.job, p)...),
			done: func(ok bool, at int64, _ []*pb.ResponseOp) {
				if ok {
					t.s.view.remove(key, at)
					t.s.left(c.job, p)
				}
			},
		})
	}
	return t.take(ctx, todo)
}
