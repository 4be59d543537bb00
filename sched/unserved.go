package sched

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// mostUnserved is how many requests of ticks after another job wait for an owner that can run
// the job. If there are more, the oldest are given up, some at a time, with one record.
const (
	mostUnserved  = 128
	givenUpAtOnce = 32
)

// cannotServe reports whether this owner cannot serve the requests of a job: it does not have
// the job, cannot run its definition, or cannot read its state.
func (l *leadership) cannotServe(id string) bool {
	c := l.jobs[id]
	return c == nil || c.job.problem != "" || c.broken
}

// giveUpRequests removes some requests of ticks after another job that no owner can serve:
// those of definitions that were removed, and the oldest of jobs that have too many.
func (l *leadership) giveUpRequests(ctx context.Context) (more bool, err error) {
	if len(l.unserved) == 0 || !l.s.catalogued.Load() { // this process may still learn of the job
		return false, nil
	}
	var todo []decision
	var some []string
	for id := range l.unserved {
		if len(todo) >= mostSteps {
			more = true
			break
		}
		some = append(some, id)
		if !l.cannotServe(id) {
			continue
		}
		if l.jobs[id] == nil {
			todo = append(todo, l.ofRemoved(id)...)
		}
		if oldest := l.excess(id); len(oldest) > 0 {
			todo = append(todo, l.giveUp(l.jobs[id], oldest))
		}
	}
	for _, id := range some {
		delete(l.unserved, id)
	}
	if err := l.take(ctx, todo); err != nil {
		for _, id := range some {
			l.unserved[id] = true
		}
		return false, err
	}
	return more, nil
}

// afterOthers returns the requests of ticks of a job after another one, oldest first.
func (l *leadership) afterOthers(id string, defined bool) (all []*request) {
	for _, r := range l.requestsOf[id] {
		if r.After != "" && (r.Defined != 0 || !defined) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *request) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.key, b.key)) })
	return all
}

// ofRemoved returns the decisions that remove the requests of a job that this process does not
// have, if the job is not defined. A process that knew the definition has requested them.
func (l *leadership) ofRemoved(id string) (steps []decision) {
	for some := range slices.Chunk(l.afterOthers(id, true), givenUpAtOnce) {
		steps = append(steps, l.removal(some, l.s.definedAs(some[0].Job, 0), nil, func() {
			l.s.log.Info("ticks dropped: the definition of the job was removed", zap.String("job", some[0].Job), zap.Int("ticks", len(some)))
		}))
	}
	return steps
}

// excess returns the oldest requests of a job that has too many.
func (l *leadership) excess(id string) []*request {
	all := l.afterOthers(id, false)
	if len(all) <= mostUnserved {
		return nil
	}
	return all[:givenUpAtOnce]
}

// giveUp returns the decision that gives up the oldest requests of a job. They have one record,
// unless this owner does not have the job.
func (l *leadership) giveUp(c *jobState, oldest []*request) decision {
	last := oldest[len(oldest)-1]
	why := "the owner of the group does not have the job"
	switch {
	case c == nil:
	case c.broken:
		why = "the state of the job cannot be read"
	default:
		why = c.job.problem
	}
	p := past{
		ID: afterID + last.After, Outcome: OutcomeMissed, Nominal: last.At, Missed: len(oldest), Ended: l.s.now(),
		Error: limitText(fmt.Sprintf("more than %d ticks waited for an owner that can run the job: %s", mostUnserved, why)),
	}
	job := Job{Name: last.Job}
	var record []clientv3.Op
	if c != nil && !c.broken {
		job.History = c.spec.limit()
		record = l.s.record(job, p)
	}
	present := clientv3.Compare(clientv3.ModRevision(last.key), "=", last.rev)
	return l.removal(oldest, present, record, func() {
		l.unserved[keyspace.Digest(job.Name)] = true // there may be more
		l.s.log.Error("ticks given up: too many wait for an owner that can run the job", zap.String("job", job.Name), zap.Int("ticks", len(oldest)), zap.String("problem", why))
		l.s.left(job, p)
	})
}

// removal returns the decision that removes requests, if the condition holds.
func (l *leadership) removal(some []*request, condition clientv3.Cmp, more []clientv3.Op, done func()) decision {
	d := decision{cmps: []clientv3.Cmp{condition}}
	for _, r := range some {
		d.ops = append(d.ops, clientv3.OpDelete(r.key))
	}
	d.ops = append(d.ops, more...)
	d.done = func(reply txn.Reply) {
		if !reply.Succeeded {
			return
		}
		for _, r := range some {
			l.s.view.remove(r.key, reply.Rev)
		}
		done()
	}
	return d
}
