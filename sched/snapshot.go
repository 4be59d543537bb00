package sched

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// jobSnapshot is the state of a job at one revision, except for its history.
type jobSnapshot struct {
	err       error // why the state cannot be decoded; the other fields are zero then
	rev       int64 // the revision
	spec      spec
	specRev   int64 // 0 if the job is unknown
	high      time.Time
	highRev   int64
	paused    *pause // nil if the job is not paused
	pausedRev int64
	failures  tick.Failures
	waiting   []waiter
	running   []runner
	last      *past
	reset     resetting // the last ResetMark
	resetRev  int64     // 0 if the mark was never put back
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
	return all[0], all[0].err
}

// readAll reads the states of jobs at one revision.
func (s *Scheduler) readAll(ctx context.Context, jobs []string) ([]*jobSnapshot, error) {
	var ops txn.Ops
	var reads []jobReads
	for _, job := range jobs {
		if err := checkName(job); err != nil {
			return nil, fmt.Errorf("%w: the name %w", ErrUnknownJob, err)
		}
		reads = append(reads, readsOf(s.keys, &ops, job))
	}
	resp, err := retry.Read(ctx, core.Of(s.claims).KV(), readTime, ops...)
	if err != nil {
		return nil, err
	}
	var all []*jobSnapshot
	for _, of := range reads {
		st, err := of.snapshot(txn.ReplyIn(resp))
		if err != nil {
			st = &jobSnapshot{err: unreadable{err}}
		}
		all = append(all, st)
	}
	return all, nil
}

// jobReads are the reads of the state of a job.
type jobReads struct {
	spec, high, paused, fail, last, withdraw, reset, definition, requests txn.Op
	waiting, running                                                      [2]txn.Op // the second of backfills
}

// readsOf adds the reads of the state of a job: jobsPerRead counts them.
func readsOf(k keys, ops *txn.Ops, job string) (r jobReads) {
	get := func(key string, opts ...clientv3.OpOption) txn.Op { return ops.Add(clientv3.OpGet(key, opts...)) }
	all := clientv3.WithPrefix()
	r.spec, r.high, r.paused, r.fail = get(k.Spec(job)), get(k.High(job)), get(k.Paused(job)), get(k.Fail(job))
	r.waiting = [2]txn.Op{get(k.ReadyOf(job), all), get(k.Backfills(job), all)}
	r.running = [2]txn.Op{get(k.RunOf(job), all), get(k.Backfilling(job), all)}
	r.last = get(k.Records(job), all, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(1))
	r.withdraw, r.reset = get(k.Withdraw(job), clientv3.WithKeysOnly()), get(k.Reset(job))
	r.definition, r.requests = get(k.Definition(job)), get(k.AsksOf(job), all, clientv3.WithCountOnly())
	return r
}

// snapshot decodes the state of a job.
func (r jobReads) snapshot(reply txn.Reply) (st *jobSnapshot, err error) {
	st = &jobSnapshot{rev: reply.Rev}
	for _, kv := range reply.Kvs(r.spec) {
		st.specRev = kv.ModRevision
		if st.spec, err = decode[spec](string(kv.Key), kv.Value); err != nil {
			return nil, err
		}
	}
	for _, kv := range reply.Kvs(r.high) {
		st.highRev = kv.ModRevision
		if st.high, err = tick.Instant(kv.Value); err != nil {
			return nil, fmt.Errorf("the high-water mark %s is invalid: %w; correct the value", kv.Key, err)
		}
	}
	for _, kv := range reply.Kvs(r.paused) {
		p, err := decode[pause](string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		st.paused, st.pausedRev = &p, kv.ModRevision
	}
	for _, kv := range reply.Kvs(r.fail) {
		if st.failures, err = decode[tick.Failures](string(kv.Key), kv.Value); err != nil {
			return nil, err
		}
	}
	withdrawn := int64(0)
	for _, kv := range reply.Kvs(r.withdraw) {
		withdrawn = kv.ModRevision
	}
	for _, kv := range slices.Concat(reply.Kvs(r.waiting[0]), reply.Kvs(r.waiting[1])) {
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
	for _, kv := range slices.Concat(reply.Kvs(r.running[0]), reply.Kvs(r.running[1])) {
		is, err := decode[run](string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		st.running = append(st.running, runner{*is.At(kv.ModRevision), kv.ModRevision})
	}
	for _, kv := range reply.Kvs(r.last) {
		p, err := decode[past](string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		st.last = &p
	}
	for _, kv := range reply.Kvs(r.definition) {
		st.definitionRev = kv.ModRevision
		st.definition, st.definitionErr = decodeDefinition(kv)
	}
	st.requests = int(reply.Count(r.requests))
	for _, kv := range reply.Kvs(r.reset) {
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
