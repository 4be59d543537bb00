package sched

import (
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// verdict is the outcome of ticks under their job's Overlap, as part of a decision:
// cmps are conditions of the decision, and op admits or leaves out the ticks. etcd
// evaluates the conditions of op in the same instant.
type verdict struct {
	n    int // the number of ticks that the verdict covers, from the first on
	cmps []clientv3.Cmp
	op   clientv3.Op
	done func(r txn.Reply) // called with the reply to op when that was carried out
}

// decide returns the verdict on ticks of a job, oldest first.
func (l *leadership) decide(c *jobState, ticks []ready, now time.Time) verdict {
	k, j := l.s.keys, c.job
	for i := range ticks {
		ticks[i].Epoch = l.s.epoch.Load()
	}
	switch policy := j.Overlap.(type) {
	case Allow:
		return l.admitAll(c, ticks)
	case BufferAll:
		waiting := l.waitingOf(c)
		if room := policy.max() - len(waiting); room > 0 {
			return l.admitAll(c, ticks[:min(room, len(ticks))])
		}
		// Waiting ticks begin in order, so the buffer is full when the tick Max places
		// back is still waiting.
		last := waiting[len(waiting)-policy.max()].key
		if len(ticks) > 1 {
			v := l.admitFirst(c, nil, nil, ticks, now)
			v.cmps = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(last), ">", 0)}
			return v
		}
		return l.admitFirst(c, []clientv3.Cmp{absent(last)}, ticks, nil, now)
	case BufferOne:
		return l.admitFirst(c, []clientv3.Cmp{absent(k.readyOf(j.Name)).WithPrefix()}, ticks[:1], ticks[1:], now)
	case CancelRunning:
		return l.replace(c, ticks, now)
	}
	return l.admitFirst(c, []clientv3.Cmp{
		absent(k.readyOf(j.Name)).WithPrefix(), absent(k.runOf(j.Name)).WithPrefix(),
		absent(l.s.claims.OwnKey(jobKey(l.s.cfg.Group, j.Name))),
	}, ticks[:1], ticks[1:], now)
}

// admitAll lets all ticks wait.
func (l *leadership) admitAll(c *jobState, ticks []ready) verdict {
	puts, admitted := l.puts(c.job, ticks)
	return verdict{n: len(ticks), op: clientv3.OpTxn(nil, puts, nil), done: func(r txn.Reply) { admitted(r.Rev) }}
}

// puts returns the operations that let ticks wait, and the function to call after they
// were carried out.
func (l *leadership) puts(j Job, ticks []ready) (ops []clientv3.Op, admitted func(rev int64)) {
	keys, values := make([]string, len(ticks)), make([]string, len(ticks))
	for i, r := range ticks {
		keys[i], values[i] = l.s.keys.ready(j.Name, r.ID), encode(r)
		ops = append(ops, clientv3.OpPut(keys[i], values[i]))
	}
	return ops, func(rev int64) {
		for i := range keys {
			l.s.view.put(keys[i], values[i], rev)
		}
	}
}

// admitFirst lets the first tick wait if the conditions room hold, and skips the rest.
// Otherwise it skips all.
func (l *leadership) admitFirst(c *jobState, room []clientv3.Cmp, first, rest []ready, now time.Time) verdict {
	j := c.job
	skip := func(ticks []ready) (out []past) {
		for _, r := range ticks {
			out = append(out, past{ID: r.ID, Outcome: OutcomeSkipped, Nominal: r.Nominal, Actual: r.Actual, Missed: r.Missed, Ended: now})
		}
		return out
	}
	some, all := skip(rest), skip(append(first[:len(first):len(first)], rest...))
	puts, admitted := l.puts(j, first)
	if len(some) > 0 {
		puts = append(puts, l.s.record(j, some...)...)
	}
	var otherwise []clientv3.Op
	if len(first) > 0 {
		otherwise = l.s.record(j, all...)
	}
	return verdict{
		n: len(all), op: clientv3.OpTxn(room, puts, otherwise),
		done: func(r txn.Reply) {
			skipped := some
			if r.Succeeded {
				admitted(r.Rev)
			} else {
				skipped = all
			}
			for _, p := range skipped {
				l.s.left(j, p)
			}
		},
	}
}

// replace lets the newest tick wait instead of all others, and requests the end of the
// run in progress.
func (l *leadership) replace(c *jobState, ticks []ready, now time.Time) verdict {
	k, j := l.s.keys, c.job
	newest := ticks[len(ticks)-1]
	var cmps []clientv3.Cmp
	var ops txn.Ops
	var replaced []past
	for _, r := range ticks[:len(ticks)-1] {
		replaced = append(replaced, past{ID: r.ID, Outcome: OutcomeSkipped, Nominal: r.Nominal, Actual: r.Actual, Missed: r.Missed, Ended: now})
	}
	waiting := l.waitingOf(c)
	waiting = waiting[max(0, len(waiting)-2):] // the next decision replaces the others
	for _, w := range waiting {
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(w.key), "=", w.rev))
		ops = append(ops, clientv3.OpDelete(w.key))
		replaced = append(replaced, w.leftOut(OutcomeSkipped, now))
	}
	put, admitted := l.puts(j, []ready{newest})
	ops = append(ops, put...)
	if len(replaced) > 0 {
		ops = append(ops, l.s.record(j, replaced...)...)
	}
	request := encode(cancelling{Version: valueVersion, By: "sched", Note: "the next tick is due: " + newest.ID, At: now})
	// No request is needed if no run is recorded.
	cancel := []clientv3.Op{clientv3.OpPut(k.newer(j.Name), request)}
	ofBackfills := clientv3.OpTxn([]clientv3.Cmp{absent(k.backfilling(j.Name)).WithPrefix()}, nil, cancel)
	ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{absent(k.runOf(j.Name)).WithPrefix()}, []clientv3.Op{ofBackfills}, cancel))
	t := l.tally(c, replaced...)
	cmps = append(cmps, t.cmps...)
	pauses := t.add(&ops)
	gone := make([]*waiter, len(waiting))
	copy(gone, waiting)
	return verdict{n: len(ticks), cmps: cmps, op: clientv3.OpTxn(nil, ops, nil), done: func(r txn.Reply) {
		l.tallied(c, t, true, r, pauses)
		for _, w := range gone {
			l.s.view.remove(w.key, r.Rev)
		}
		for _, p := range replaced {
			l.s.left(j, p)
		}
		admitted(r.Rev)
	}}
}

// absent is the condition that a key does not exist, or no key of a prefix.
func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}
