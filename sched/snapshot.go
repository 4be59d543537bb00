package sched

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/sched/calendar"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// jobSnapshot is the state of a job at one revision, except for its history.
type jobSnapshot struct {
	rev       int64 // the revision
	spec      spec
	specRev   int64 // 0 if the job is unknown
	high      time.Time
	highRev   int64
	paused    *pause // nil if the job is not paused
	pausedRev int64
	failures  failures
	waiting   []waiter
	running   []runner
	last      *past
	reset     resetting // the last ResetMark
	resetRev  int64     // 0 if there is none
	resetErr  error     // why it cannot be read
	requests  int       // that wait for the owner

	definition    definitionValue
	definitionRev int64 // 0 if the job is not defined
	definitionErr error // why the definition cannot be read
	unknownBefore bool  // whether no job has the name in its After; set by inspect
}

// runner is a run and the revision at which it began.
type runner struct {
	run
	rev int64
}

// unreadable is the error of a job whose state cannot be decoded.
type unreadable struct{ error }

func (u unreadable) Unwrap() error { return u.error }

// read reads the state of a job.
func (s *Scheduler) read(ctx context.Context, job string) (*jobSnapshot, error) {
	all, err := s.readAll(ctx, []string{job})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// readAll reads the states of jobs by one request. With an error it returns the states
// of those before the first that cannot be read.
func (s *Scheduler) readAll(ctx context.Context, jobs []string) ([]*jobSnapshot, error) {
	k := s.keys
	var ops []clientv3.Op
	for _, job := range jobs {
		if err := checkName(job); err != nil {
			return nil, fmt.Errorf("%w: the name %w", ErrUnknownJob, err)
		}
		ops = append(ops,
			clientv3.OpGet(k.spec(job)), clientv3.OpGet(k.high(job)), clientv3.OpGet(k.paused(job)), clientv3.OpGet(k.fail(job)),
			clientv3.OpGet(k.readyOf(job), clientv3.WithPrefix()), clientv3.OpGet(k.backfills(job), clientv3.WithPrefix()),
			clientv3.OpGet(k.runOf(job), clientv3.WithPrefix()), clientv3.OpGet(k.backfilling(job), clientv3.WithPrefix()),
			clientv3.OpGet(k.past(job), clientv3.WithPrefix(),
				clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(1)),
			clientv3.OpGet(k.withdraw(job), clientv3.WithKeysOnly()), clientv3.OpGet(k.reset(job)),
			clientv3.OpGet(k.definition(job)), clientv3.OpGet(k.asksOf(job), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	}
	resp, err := retry.Read(ctx, core.Of(s.claims).KV(), readTime, ops...)
	if err != nil {
		return nil, err
	}
	var all []*jobSnapshot
	for replies := range slices.Chunk(resp.Responses, len(ops)/len(jobs)) {
		st, err := snapshotOf(replies)
		if err != nil {
			return all, unreadable{err}
		}
		st.rev = resp.Header.Revision
		all = append(all, st)
	}
	return all, nil
}

// snapshotOf decodes the replies for one job.
func snapshotOf(replies []*pb.ResponseOp) (st *jobSnapshot, err error) {
	at := func(i int) []*mvccpb.KeyValue { return replies[i].GetResponseRange().Kvs }
	st = new(jobSnapshot)
	for _, kv := range at(0) {
		st.specRev = kv.ModRevision
		if st.spec, err = decode[spec](string(kv.Key), kv.Value); err != nil {
			return nil, err
		}
	}
	for _, kv := range at(1) {
		st.highRev = kv.ModRevision
		if st.high, err = dec(kv.Value); err != nil {
			return nil, fmt.Errorf("the high-water mark %s is invalid: %w; correct the value", kv.Key, err)
		}
	}
	for _, kv := range at(2) {
		p, err := decode[pause](string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		st.paused, st.pausedRev = &p, kv.ModRevision
	}
	for _, kv := range at(3) {
		if st.failures, err = decode[failures](string(kv.Key), kv.Value); err != nil {
			return nil, err
		}
	}
	withdrawn := int64(0)
	for _, kv := range at(9) {
		withdrawn = kv.ModRevision
	}
	for _, kv := range slices.Concat(at(4), at(5)) {
		if kv.ModRevision < withdrawn {
			continue // the owner will remove it
		}
		r, err := decode[ready](string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		st.waiting = append(st.waiting, waiter{ready: r, key: string(kv.Key), rev: kv.ModRevision})
	}
	slices.SortFunc(st.waiting, func(a, b waiter) int { return byTime(&a, &b) })
	for _, kv := range slices.Concat(at(6), at(7)) {
		r, err := decode[run](string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		st.running = append(st.running, runner{*r.at(kv.ModRevision), kv.ModRevision})
	}
	for _, kv := range at(8) {
		p, err := decode[past](string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		st.last = &p
	}
	for _, kv := range at(11) {
		st.definitionRev = kv.ModRevision
		st.definition, st.definitionErr = decodeDefinition(kv)
	}
	st.requests = int(replies[12].GetResponseRange().Count)
	for _, kv := range at(10) {
		st.resetRev = kv.ModRevision
		st.reset, st.resetErr = decode[resetting](string(kv.Key), kv.Value)
	}
	return st, nil
}

// scheduleOf returns the schedule that a job has in etcd, or nil if this process does
// not know it.
func (s *Scheduler) scheduleOf(job string, st *jobSnapshot) calendar.Schedule {
	if j, ok := s.job(job); ok && j.hash() == st.spec.Hash {
		return j.Schedule
	}
	if schedule, err := calendar.Cron(st.spec.Schedule); err == nil {
		return schedule
	}
	if d, err := st.definition.definition(); err == nil && st.definitionRev != 0 && st.definitionErr == nil {
		if schedule, err := d.schedule(s.parser()); err == nil && (Job{Schedule: schedule, Revision: d.Revision}).hash() == st.spec.Hash {
			return schedule
		}
	}
	return nil
}

// definitionText returns the text of the schedule of the definition, as far as this process
// can parse it.
func (s *Scheduler) definitionText(v definitionValue) string {
	if d, err := v.definition(); err == nil {
		if schedule, err := d.schedule(s.parser()); err == nil && (v.After != "" || v.Except != nil || v.Only != nil) {
			return Job{Schedule: schedule}.text()
		}
	}
	return v.Schedule
}
