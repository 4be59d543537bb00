package sched

import (
	"context"
	"slices"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/lanes"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
)

// withdrawal is a Cancel.
type withdrawal struct {
	tick.Withdrawal
	due bool // whether ticks that it concerns may be left
}

// hearWithdrawal takes over a Cancel of waiting ticks.
func (l *leadership) hearWithdrawal(job string, is live.KV) {
	if is.Gone {
		delete(l.withdrawn, job)
		return
	}
	key := l.keys.Now() + live.KindWithdraw + "/" + job
	c, err := decode[cancelling](key, []byte(is.Value))
	if err != nil {
		l.log.Error("cancellation unreadable; waiting ticks withdrawn without its note", zap.String("etcd_key", key), zap.Error(err))
	}
	l.withdrawn[job] = withdrawal{Withdrawal: tick.Withdrawal{Cancelling: c, Rev: is.Rev}, due: true}
}

// withdraw removes some of the ticks that were cancelled while they waited.
func (l *leadership) withdraw(ctx context.Context) (more bool, err error) {
	if len(l.withdrawing) == 0 {
		for job, wd := range l.withdrawn {
			if c, all := l.runnable(job), l.waiting[job]; wd.due && c != nil {
				if all != nil {
					l.withdrawing = append(l.withdrawing, l.withdrawals(c, all, wd)...)
				}
				wd.due = false
				l.withdrawn[job] = wd
			}
		}
	}
	n := min(len(l.withdrawing), mostSteps)
	some := l.withdrawing[:n]
	l.withdrawing = l.withdrawing[n:]
	if err := l.take(ctx, some); err != nil {
		for job, wd := range l.withdrawn {
			wd.due = true
			l.withdrawn[job] = wd
		}
		l.withdrawing = nil
		return false, err
	}
	return len(l.withdrawing) > 0, nil
}

// withdrawals returns the decisions that remove the waiting ticks of a job. The number
// of records is limited; the last record counts the ticks without one.
func (l *leadership) withdrawals(c *jobState, all *jobWaiting, wd withdrawal) (steps []decision) {
	var ticks []*waiter
	for _, w := range all.keys {
		if w.Rev < wd.Rev {
			ticks = append(ticks, w)
		}
	}
	if len(ticks) == 0 {
		return nil
	}
	slices.SortFunc(ticks, lanes.ByTime)
	now := l.now()
	most := max(1, min(20, c.job.History-2)) // leave room for the records of cancelled runs
	records := make([]past, len(ticks))
	for i, w := range ticks {
		records[i] = w.LeftOut(OutcomeCancelled, now)
		records[i].Error = wd.Explain(records[i].Error)
	}
	if rest := len(ticks) - most; rest > 0 {
		last := len(ticks) - 1
		ticks[most-1], ticks[last], records[most-1], records[last] = ticks[last], ticks[most-1], records[last], records[most-1]
		records[most-1].Missed += rest
	}
	n := min(most, len(ticks))
	st := &tick.Withdraw{Keys: l.keys, Job: c.job.Name, Past: records[:n], History: l.history(c.job), Followers: l.followers}
	for _, w := range ticks[:n] {
		st.Ticks = append(st.Ticks, w.Waiting)
	}
	steps = append(steps, decision{st.Build(), func(r txn.Reply) {
		for i, of := range st.Judge(r) {
			l.withdrew(c, ticks[i], records[i], of)
		}
	}})
	for i, w := range ticks[n:] {
		take := tick.TakeBack(w.Waiting, l.keys.Follow(c.job.Name, st.Followers, records[n+i])...)
		steps = append(steps, decision{take, func(r txn.Reply) { l.withdrew(c, w, records[n+i], r) }})
	}
	return steps
}

func (l *leadership) withdrew(c *jobState, w *waiter, p past, r txn.Reply) {
	if !r.Succeeded {
		l.view.Forget(w.Key, w.Rev) // the tick has begun
		return
	}
	l.view.Remove(w.Key, r.Rev)
	l.left(c.job, p)
}

// trimHistories deletes the oldest records of some histories that exceed their limit.
func (l *leadership) trimHistories(ctx context.Context) (more bool, err error) {
	var todo []decision
	for _, ops := range l.histories.Excess(mostSteps) {
		todo = append(todo, decision{&pb.TxnRequest{Success: ops}, func(txn.Reply) {}})
	}
	if len(todo) == 0 {
		return false, nil
	}
	return len(todo) == mostSteps, l.take(ctx, todo)
}

// dropLate gives up waiting ticks that are past their StartDeadline.
func (l *leadership) dropLate(ctx context.Context) (more bool, err error) {
	now := l.now()
	over := func(w *waiter) bool { return w.Deadline.Before(now) }
	taken := l.late.TakeWhile(mostSteps, over)
	var todo []decision
	counts := make(map[*jobState]bool) // one transaction counts one failure of a job
	for _, w := range taken {
		c := l.runnable(keyspace.Digest(w.Job))
		if c == nil {
			continue
		}
		st := &tick.Drop{Standing: l.standing(c, now), Tick: w.Waiting, Outcome: OutcomeLate}
		in := st.Build()
		switch {
		case !st.Counts():
		case !c.readAt.IsZero():
			continue // it is late again when the job has been read
		case counts[c]:
			l.late.Set(w)
			continue
		default:
			counts[c] = true
		}
		todo = append(todo, decision{in, func(r txn.Reply) { l.dropped(c, w, st.Judge(r), r) }})
	}
	if err := l.take(ctx, todo); err != nil {
		for _, w := range taken {
			l.late.Set(w)
		}
		return false, err
	}
	first, ok := l.late.First()
	return ok && over(first), nil
}

// dropped takes over whether a tick was given up.
func (l *leadership) dropped(c *jobState, w *waiter, d tick.Decided, r txn.Reply) {
	switch {
	case r.Succeeded:
		l.decided(c, d, r.Rev)
	case d.Tally.Counts(): // a run may have counted a failure meanwhile
		l.doubt(c)
	default:
		l.view.Forget(w.Key, w.Rev) // the tick has begun, or was withdrawn
	}
}
