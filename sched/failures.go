package sched

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// failures is the value of fail/.
type failures struct {
	Version int `json:"v"`
	InARow  int `json:"inARow"`
}

// failed reports whether the record is that of a tick that failed for good: its last attempt
// failed, or its next one was late or replaced. A tick that an operator takes back between two
// attempts has not failed.
func (p past) failed() bool {
	switch p.Outcome {
	case OutcomeLate, OutcomeSkipped:
		return p.Attempt > 0
	}
	return p.Outcome.bad() && !p.Again
}

// tally is what a transaction needs to count failures: the condition that no other one has
// counted since they were read, and the operations. The zero tally counts nothing.
type tally struct {
	cmps   []clientv3.Cmp
	ops    []clientv3.Op
	pauses bool // whether the last of ops pauses the job, unless it is paused
	sum    failures
	last   past // the record of the last tick that failed
}

// countedFailures are the failures of a job as they were read.
type countedFailures struct {
	failures
	rev        int64 // 0 if there are none
	unreadable bool
}

// readFailures decodes the failures of a job. One of a later version is not counted on.
func (s *Scheduler) readFailures(job string, kv *mvccpb.KeyValue) (f countedFailures) {
	if kv == nil {
		return f
	}
	var err error
	if f.failures, err = decode[failures](string(kv.Key), kv.Value); err != nil {
		s.log.Error("failures not counted: their record cannot be read", zap.String("job", job), zap.ByteString("etcd_key", kv.Key), zap.Error(err))
	}
	f.rev, f.unreadable = kv.ModRevision, err != nil
	return f
}

// tally counts n more ticks that failed in a row. The last of them is recorded as p. The
// failures count if the conditions hold.
func (s *Scheduler) tally(j Job, f countedFailures, n int, p past, counts ...clientv3.Cmp) tally {
	if j.PauseOnFailure == 0 || n == 0 || f.unreadable {
		return tally{}
	}
	key := s.keys.fail(j.Name)
	t := tally{cmps: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", f.rev)}}
	t.sum, t.last = failures{Version: valueVersion, InARow: f.InARow + n}, p
	if t.sum.InARow < j.PauseOnFailure {
		t.ops = []clientv3.Op{clientv3.OpTxn(counts, []clientv3.Op{clientv3.OpPut(key, encode(t.sum))}, nil)}
		return t
	}
	note := fmt.Sprintf("%d runs failed in a row; the last: %s", t.sum.InARow, p.Error)
	stop := encode(pause{Version: valueVersion, By: "sched", Note: limitText(note), At: p.Ended})
	paused := s.keys.paused(j.Name)
	t.ops = []clientv3.Op{
		clientv3.OpDelete(key),
		clientv3.OpTxn(append(counts, absent(paused)), []clientv3.Op{clientv3.OpPut(paused, stop)}, nil),
	}
	t.pauses = true
	return t
}

// add adds the operations of the tally. It returns the one that pauses the job, if one does.
func (t tally) add(to *txn.Ops) (pauses txn.Op) {
	for _, op := range t.ops {
		pauses = to.Add(op)
	}
	if !t.pauses {
		return 0
	}
	return pauses
}

// told logs that the job was paused, if it was by the operation that add has returned.
func (t tally) told(s *Scheduler, j Job, r txn.Reply, pauses txn.Op) {
	if !r.Inner(pauses).Succeeded {
		return
	}
	s.log.Warn("job paused: too many of its runs failed in a row", zap.String("job", j.Name),
		zap.String("key", jobKey(s.cfg.Group, j.Name)), zap.Int("failures", j.PauseOnFailure), zap.String("error", t.last.Error))
}

// countFailure returns the tally of a run that ends as p, without another attempt. A success
// ends the row. If the definition of the job was removed since the run began, the run does not
// count, also if the job has been defined again.
func (s *Scheduler) countFailure(ctx context.Context, a *active, p past) (tally, error) {
	j := a.job
	if j.PauseOnFailure == 0 || p.Outcome != OutcomeOK && !p.failed() {
		return tally{}, nil
	}
	key := s.keys.fail(j.Name)
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
	defer cancel()
	resp, err := core.Of(s.claims).KV().Get(ctx, key)
	if err != nil {
		return tally{}, err
	}
	f := s.readFailures(j.Name, first(resp.Kvs)) // the run ends also if they cannot be read
	if p.Outcome == OutcomeOK && !f.unreadable {
		return tally{
			cmps: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", f.rev)},
			ops:  []clientv3.Op{clientv3.OpDelete(key)},
		}, nil
	}
	var counts []clientv3.Cmp
	if j.defined != 0 {
		created := clientv3.CreateRevision(s.keys.definition(j.Name))
		counts = []clientv3.Cmp{clientv3.Compare(created, ">", 0), clientv3.Compare(created, "<", a.claim.Revision())}
	}
	return s.tally(j, f, 1, p, counts...), nil
}

// tally counts the ticks that failed by their records, as the owner knows the failures. If a
// run has counted one since, the decision is refused.
func (l *leadership) tally(c *jobState, records ...past) tally {
	n, last := 0, past{}
	for _, p := range records {
		if p.failed() {
			n, last = n+1, p
		}
	}
	return l.s.tally(c.job, c.failures, n, last)
}

// tallied takes over whether a decision with the tally was carried out, which it returns.
func (l *leadership) tallied(c *jobState, t tally, ok bool, r txn.Reply, pauses txn.Op) bool {
	switch {
	case t.cmps == nil:
	case !ok:
		l.doubt(c)
	case t.pauses:
		c.failures = countedFailures{}
		t.told(l.s, c.job, r, pauses)
	default:
		c.failures = countedFailures{failures: t.sum, rev: r.Rev}
	}
	return ok
}
