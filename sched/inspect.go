package sched

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// JobInfo is the state of a job in etcd.
type JobInfo struct {
	Group    string
	Job      string
	Schedule string    // the text of the schedule
	Revision string    // Job.Revision
	CatchUp  string    // the name of the policy, such as "latest"
	Overlap  string    // the name of the policy, such as "skip"
	Delivery string    // "at-most-once" or "at-least-once"
	Since    time.Time // when the owner registered this revision of the job
	High     time.Time // the high-water mark: all ticks up to here are decided
	// Next is when the next tick is due. It is zero if no tick follows, if the job is
	// paused, or if this process does not know the schedule: the job was not added
	// here, and Cron cannot parse its text.
	Next     time.Time
	Paused   *Pause     // nil if the job is not paused
	Failures int        // runs that failed in a row, counted if PauseOnFailure is set
	Waiting  []TickInfo // admitted ticks that have not begun
	Running  []TickInfo // runs that are recorded as in progress; their processes may have died since
	Last     *Entry     // the newest record; nil if there is none

	schedule Schedule // nil if the job is paused, or this process does not know the schedule
}

// Upcoming returns the next n instants of the schedule, oldest first. The first is
// Next. There are fewer, or none, for the reasons that Next is zero. Upcoming does no
// I/O.
func (i JobInfo) Upcoming(n int) []time.Time {
	var all []time.Time
	if i.schedule == nil {
		return nil
	}
	last := i.High
	for t := i.Next; t.After(last) && len(all) < n; t = i.schedule.Next(t) {
		all, last = append(all, t), t
	}
	return all
}

// Pause describes who paused a job, and why.
type Pause struct {
	By   string // the Config.Owner of the client, or "sched" for PauseOnFailure
	Note string
	At   time.Time
}

// TickInfo is a tick that waits, or whose run is in progress.
type TickInfo struct {
	ID       string // see Tick.ID
	Nominal  time.Time
	Actual   time.Time
	Attempt  int
	Missed   int
	Admitted int64
	Note     string // who requested the tick, or how the previous attempt ended

	// The following fields are set if the tick has begun.
	Revision int64 // the revision of the run's claim: its fence without the epoch
	Owner    string
	Instance string
	Began    time.Time
}

// String returns some lines of text. The format may change.
func (i JobInfo) String() string {
	out := []string{fmt.Sprintf("%s/%s: %s", i.Group, i.Job, i.Schedule)}
	switch {
	case i.Paused != nil:
		out = append(out, fmt.Sprintf("  paused by %s since %s: %s", i.Paused.By, stamp(i.Paused.At), i.Paused.Note))
	case i.Next.IsZero():
		out = append(out, "  next: not known, or never")
	default:
		out = append(out, "  next: "+stamp(i.Next))
	}
	for _, r := range i.Running {
		out = append(out, fmt.Sprintf("  running: %s attempt %d by %s since %s", r.ID, r.Attempt, r.Owner, stamp(r.Began)))
	}
	for _, w := range i.Waiting {
		out = append(out, "  waiting: "+w.ID)
	}
	if i.Last != nil {
		out = append(out, "  last: "+i.Last.String())
	}
	return lines(out)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Jobs yields all jobs of the group that an owner has registered, sorted by name. Jobs
// that no process has any more are included. The sequence ends after the first error.
func (s *Scheduler) Jobs(ctx context.Context) iter.Seq2[JobInfo, error] {
	return func(yield func(JobInfo, error) bool) {
		names, err := s.names(ctx)
		for size := jobsPerRead; err == nil && len(names) > 0; {
			some := names[:min(size, len(names))]
			var infos []JobInfo
			infos, err = s.inspect(ctx, some...)
			if isTooLarge(err) && size > 1 {
				size, err = size/2, nil
				continue
			}
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
			}
			names = names[len(some):]
		}
		if err != nil {
			yield(JobInfo{}, errtext.Wrap(fmt.Sprintf("sched: list the jobs of group %q", s.cfg.Group), denial(err)))
		}
	}
}

// jobsPerRead is how many jobs Jobs reads by one request. Each takes ten of the 128
// operations that etcd allows.
const jobsPerRead = 12

// names returns the names of all jobs, sorted.
func (s *Scheduler) names(ctx context.Context) ([]string, error) {
	var names []string
	if s.Passthrough() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for name := range s.jobs {
			names = append(names, name)
		}
		slices.Sort(names)
		return names, nil
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
	defer cancel()
	resp, err := s.claims.Etcd().Get(ctx, s.keys.specs(), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for _, kv := range resp.Kvs {
		sp, err := decode[spec](string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		names = append(names, sp.Job)
	}
	slices.Sort(names)
	return names, nil
}

// Inspect returns the state of a job, read at one revision of etcd. In a passthrough
// scheduler it returns the policies and the next tick only.
//
// Errors: [ErrUnknownJob], and those of the etcd client.
func (s *Scheduler) Inspect(ctx context.Context, job string) (JobInfo, error) {
	infos, err := s.inspect(ctx, job)
	if err == nil && len(infos) == 0 {
		err = ErrUnknownJob
	}
	if err != nil {
		return JobInfo{}, errtext.Wrap(fmt.Sprintf("sched: inspect job %.80q", job), denial(err))
	}
	return infos[0], nil
}

// inspect returns the states of those of the jobs that exist, in their order, read at
// one revision.
func (s *Scheduler) inspect(ctx context.Context, jobs ...string) (infos []JobInfo, err error) {
	if s.Passthrough() {
		for _, job := range jobs {
			if j, ok := s.job(job); ok {
				infos = append(infos, s.inspectLocal(j))
			}
		}
		return infos, nil
	}
	all, err := s.readAll(ctx, jobs)
	for i, st := range all {
		if st.specRev != 0 {
			infos = append(infos, s.info(jobs[i], st))
		}
	}
	return infos, err
}

// info returns the state of a job as users see it.
func (s *Scheduler) info(job string, st *jobSnapshot) JobInfo {
	i := JobInfo{
		Group: s.cfg.Group, Job: job, Schedule: st.spec.Schedule, Revision: st.spec.Revision, CatchUp: st.spec.CatchUp,
		Overlap: st.spec.Overlap, Delivery: st.spec.Delivery, Since: st.spec.Since, High: st.high, Failures: st.failures.InARow,
	}
	if st.paused != nil {
		i.Paused = &Pause{By: st.paused.By, Note: st.paused.Note, At: st.paused.At}
	} else if schedule := s.scheduleOf(job, st.spec); schedule != nil {
		i.schedule, i.Next = schedule, schedule.Next(st.high)
	}
	for _, w := range st.waiting {
		i.Waiting = append(i.Waiting, w.ready.info(s.cfg.Group, w.admitted()))
	}
	for _, r := range st.running {
		t := r.ready.info(s.cfg.Group, r.Admitted)
		t.Revision, t.Owner, t.Instance, t.Began = r.rev, r.Owner, r.Instance, r.Began
		i.Running = append(i.Running, t)
	}
	if st.last != nil {
		e := st.last.entry(s.cfg.Group)
		i.Last = &e
	}
	return i
}

func (r ready) info(group string, admitted int64) TickInfo {
	return TickInfo{
		ID: group + "/" + r.Job + "/" + r.ID, Nominal: r.Nominal, Actual: r.Actual, Attempt: r.Attempt, Missed: r.Missed,
		Admitted: admitted, Note: r.Note,
	}
}

// scheduleOf returns the schedule that a job has in etcd, or nil if this process does
// not know it.
func (s *Scheduler) scheduleOf(job string, sp spec) Schedule {
	if j, ok := s.job(job); ok && j.hash() == sp.Hash {
		return j.Schedule
	}
	if schedule, err := Cron(sp.Schedule); err == nil {
		return schedule
	}
	return nil
}

// History yields the records of the job's last ticks, newest first, up to Job.History
// of them. The sequence is empty in a passthrough scheduler and for unknown jobs. It
// ends after the first error.
func (s *Scheduler) History(ctx context.Context, job string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if s.Passthrough() {
			return
		}
		reading, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
		resp, err := s.claims.Etcd().Get(reading, s.keys.past(job), clientv3.WithPrefix(),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
		cancel()
		if err != nil {
			yield(Entry{}, errtext.Wrap(fmt.Sprintf("sched: read the history of job %.80q", job), denial(err)))
			return
		}
		for _, kv := range resp.Kvs {
			p, err := decode[past](string(kv.Key), kv.Value)
			if err != nil {
				err = errtext.Wrap(fmt.Sprintf("sched: read the history of job %.80q", job), denial(err))
			}
			if !yield(p.entry(s.cfg.Group), err) || err != nil {
				return
			}
		}
	}
}

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
}

// runner is a run and the revision at which it began.
type runner struct {
	run
	rev int64
}

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
			clientv3.OpGet(k.past(job), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(1)),
			clientv3.OpGet(k.withdraw(job), clientv3.WithKeysOnly()))
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
	defer cancel()
	resp, err := s.claims.Etcd().Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, err
	}
	var all []*jobSnapshot
	for replies := range slices.Chunk(resp.Responses, len(ops)/len(jobs)) {
		st, err := snapshotOf(replies)
		if err != nil {
			return all, err
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
		st.running = append(st.running, runner{r, kv.ModRevision})
	}
	for _, kv := range at(8) {
		p, err := decode[past](string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		st.last = &p
	}
	return st, nil
}
