package sched

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/sched/calendar"
)

// jobSnapshot is the state of a job at one revision, with its definition.
type jobSnapshot struct {
	jobstate.State
	err error // why the state cannot be decoded; the other fields are zero then

	definition    definitionValue
	definitionRev int64  // 0 if the job is not defined
	definitionErr error  // why the definition cannot be read
	unknownBefore string // a name in its After that no job has; set by inspect
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
	type read struct {
		state      jobstate.Reads
		definition txn.Op
	}
	var ops txn.Branch
	var reads []read
	for _, job := range jobs { // jobsPerRead counts the operations
		if err := checkName(job); err != nil {
			return nil, fmt.Errorf("%w: the name %w", ErrUnknownJob, err)
		}
		reads = append(reads, read{jobstate.Read(s.keys, job, &ops), ops.Add(txn.Get([]byte(s.keys.Definition(job))))})
	}
	readHalts := ops.Add(txn.Range(s.keys.Halts()))
	resp, err := retry.Read(ctx, core.Of(s.claims).KV(), readTime, txn.OpsOf(ops)...)
	if err != nil {
		return nil, err
	}
	reply := txn.ReplyIn(resp)
	halts := haltsFrom(reply.Kvs(readHalts))
	all := make([]*jobSnapshot, len(jobs))
	for i, of := range reads {
		st, err := of.state.State(reply)
		st.Halts = halts.all.Of(st.Spec.Tags)
		if all[i] = (&jobSnapshot{State: st}); err != nil {
			all[i].err = unreadable{err}
		} else if kv := reply.First(of.definition); kv != nil {
			all[i].definitionRev = kv.ModRevision
			all[i].definition, all[i].definitionErr = decodeDefinition(kv)
		}
	}
	return all, nil
}

// scheduleOf returns the schedule that a job has in etcd, or nil if this process does
// not know it.
func (s *Scheduler) scheduleOf(job string, st *jobSnapshot) calendar.Schedule {
	if j, ok := s.catalog.job(job); ok && j.hash() == st.Spec.Hash {
		return j.Schedule
	}
	if schedule, err := calendar.Cron(st.Spec.Schedule); err == nil {
		return schedule
	}
	if d, err := st.definition.definition(); err == nil && st.definitionRev != 0 && st.definitionErr == nil {
		schedule, err := d.schedule(s.catalog.parser())
		if err == nil && (Job{Schedule: schedule, Revision: d.Revision}).hash() == st.Spec.Hash {
			return schedule
		}
	}
	return nil
}

// definitionText returns the text of the schedule of the definition, as far as this process
// can parse it.
func (s *Scheduler) definitionText(v definitionValue) string {
	if d, err := v.definition(); err == nil {
		if schedule, err := d.schedule(s.catalog.parser()); err == nil && v.storedVersion() > valueVersion {
			return Job{Schedule: schedule}.text()
		}
	}
	return v.Schedule
}
