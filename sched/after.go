package sched

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// After is the schedule of a job that runs after each success of another job of the
// group, with the same nominal time. A success of any tick counts: of the schedule,
// RunNow, Backfill, or another After. If the other job fails, is lost or is left out, the
// job does not run for that tick.
//
// The tick is requested in the transaction that records the success, so it is neither
// lost nor requested twice, whichever process dies in between. The job's Overlap applies
// to it, and its StartDeadline, counted from the nominal time. While the job is paused,
// such ticks are recorded as skipped. Add the job in all processes: a process that does
// not have it requests nothing.
//
// Job.Overdue has no effect on such a schedule. Add refuses calendar.Except and Only with it, a circle
// of jobs, and more than 32 jobs after one. A job that is defined at run time has
// Definition.After instead.
func After(job string) calendar.Schedule { return after(job) }

type after string

func (after) Next(time.Time) time.Time { return time.Time{} }

func (a after) String() string { return afterText + string(a) }

const (
	afterText   = jobstate.AfterText
	mostAfter   = 32
	pausedAfter = "the job is paused"
)

// askAfter returns the operations that request the ticks after a run that succeeded.
func (s *Scheduler) askAfter(ctx context.Context, r run) (ops []clientv3.Op, err error) {
	defined, err := s.catalog.definedFollowers(ctx, r.Job)
	if err != nil {
		return nil, err
	}
	a := ask{Version: valueVersion, ID: r.Run, By: r.Job, At: r.Nominal, After: r.ID}
	for _, name := range s.catalog.following(r.Job) {
		a.Job = name
		ops = append(ops, clientv3.OpPut(s.keys.AsksOf(name)+a.ID, encode(a)))
	}
	for _, name := range slices.Sorted(maps.Keys(defined)) {
		a.Job, a.Defined = name, defined[name]
		put := clientv3.OpPut(s.keys.AsksOf(name)+a.ID, encode(a))
		is := clientv3.Compare(clientv3.CreateRevision(s.keys.Definition(name)), ">", 0)
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{is}, []clientv3.Op{put}, nil))
	}
	return ops, nil
}

// afterPause leaves out a tick after another job, because the job is paused.
func (l *leadership) afterPause(c *jobState, r *request) decision {
	p := past{ID: tick.AfterID + r.After, Outcome: OutcomeSkipped, Nominal: r.At, Ended: l.s.now(), Error: pausedAfter}
	return decision{
		cmps: []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(r.key), "=", r.rev),
			clientv3.Compare(clientv3.CreateRevision(l.s.keys.Paused(r.Job)), ">", 0),
		},
		ops: append([]clientv3.Op{clientv3.OpDelete(r.key)}, l.s.record(c.job, p)...),
		done: func(reply txn.Reply) {
			if !reply.Succeeded {
				l.doubt(c)
				return
			}
			l.s.view.Remove(r.key, reply.Rev)
			l.s.left(c.job, p)
		},
	}
}

// admitAfter lets the jobs after a job run that has succeeded in a passthrough scheduler.
// The mutex is held.
func (l *local) admitAfter(r run) {
	for _, name := range l.s.catalog.following(r.Job) {
		if a := l.jobs[name]; a != nil {
			l.admitTick(a, ready{Job: name, ID: tick.AfterID + r.ID, Nominal: r.Nominal, Actual: r.Nominal, Attempt: 1})
		}
	}
}
