package sched

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// JobInfo is the state of a job in etcd.
type JobInfo struct {
	Group     string
	Job       string
	Schedule  string // the text of the schedule, with its calendars
	After     string // the jobs that this one runs after, separated by commas; empty if it has a schedule
	Revision  string // Job.Revision
	CatchUp   string // the name of the policy, such as "latest"
	Overlap   string // the name of the policy, such as "skip"
	Guarantee string // "at-most-once" or "at-least-once"
	Kind      string // the kind of the definition; empty for a job in code
	Version   int64  // the version of the definition; 0 if the job is not defined
	Tags      []string
	Limits    map[string]int // Job.Limits, Priority and RunsOn, as the owner registered them
	Priority  int
	RunsOn    []string
	// Problem is why the job does not run as it is defined. The reasons are: the owner of
	// the group cannot run the definition, or has not taken it up yet; the definition was
	// removed; the job in its After is unknown; the job has never run, and its schedule
	// has no further instant; the next tick is due and not admitted, see Unadmitted; the
	// mark is ahead of the clock, see Ahead. Problem is empty if the job runs as defined.
	Problem string
	Since   time.Time // when the owner registered this revision of the job
	High    time.Time // the high-water mark: all ticks up to here are decided
	// Ahead is how far High is ahead of the clock of this process, if that is more than an
	// interval of the schedule and more than 5 s. It is zero otherwise, and if the job is paused.
	// The clock of an owner was ahead then, or this one is behind. Ticks that come due before
	// High do not run. See ResetMark.
	Ahead time.Duration
	// Next is when the next tick is due. It is zero if no tick
	// follows, if the job is paused, or if this process does not know the schedule: the
	// job was not added here, and calendar.Cron cannot parse its text.
	Next time.Time
	// Ended is whether the schedule has no instant left, after those that it had. The job
	// remains: RunNow and Backfill work.
	Ended bool
	// Unadmitted is Next if that tick is due and the owner has not admitted it within its
	// TTL + 5 s. The clock of this process decides. The owner may not have the job, as
	// during a deployment: it admits ticks of the jobs of its own process. Unadmitted is
	// zero otherwise, and while the job has another Problem.
	Unadmitted time.Time
	// Overdue is the nominal time of the oldest scheduled tick that came due more than
	// Job.Overdue ago and has not ended, by the clock of this process. If Ahead is set and no
	// such tick waits or runs, Overdue is the newest tick of that age that the mark passed over.
	// It is zero if there is no such tick.
	Overdue  time.Time
	Paused   *Pause     // nil if the job is not paused, or the pause is over by the clock of this process
	Failures int        // runs that failed in a row, counted if PauseOnFailure is set
	Waiting  []TickInfo // admitted ticks that have not begun
	Running  []TickInfo // runs that are recorded as in progress; their processes may have died since
	// Requests is how many requests of RunNow, of Backfill, and of ticks after another
	// job wait for the owner of the group. They wait for long only if the owner cannot
	// run the job: see Problem. At most 128 requests after another job then wait. If
	// there are more, the owner drops the oldest, and records them.
	Requests int
	Last     *Entry // the newest record, or nil

	schedule calendar.Schedule // nil if the job is paused, or this process does not know the schedule
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

// TickInfo is a tick that waits, or whose run is in progress.
type TickInfo struct {
	ID       string // see Tick.ID
	Nominal  time.Time
	Actual   time.Time
	Attempt  int
	Missed   int
	Admitted int64
	Note     string // who requested the tick, or how the previous attempt ended
	// After is when the tick can begin, if it waits for another attempt by Retry.
	After time.Time

	// The following fields are set if the tick has begun.
	Revision int64 // the revision of the run's claim: its fence without the epoch
	Owner    string
	Instance string
	Began    time.Time
}

func stamp(t time.Time) string { return jobstate.Stamp(t) }

// Jobs yields all jobs of the group that an owner has registered or that are defined, sorted
// by name. Jobs that no process has any more are included. For jobs whose state cannot be read
// Jobs yields an error, and continues. Any other error ends the sequence.
func (s *Scheduler) Jobs(ctx context.Context) iter.Seq2[JobInfo, error] {
	return func(yield func(JobInfo, error) bool) {
		names, hidden, err := s.names(ctx)
		owner := s.ownerRead(ctx)
		fails := func(err error) bool {
			return err != nil && !yield(JobInfo{}, errtext.Wrap(fmt.Sprintf("sched: list the jobs of group %q", s.cfg.Group), s.explained(err)))
		}
		for some := range slices.Chunk(names, jobsPerRead) {
			var infos []JobInfo
			var unread error
			infos, unread, err = s.inspect(ctx, owner, some...)
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
			}
			if fails(unread) {
				return
			}
			if err != nil {
				break
			}
		}
		for _, unread := range hidden {
			if fails(unread) {
				return
			}
		}
		fails(err)
	}
}

// jobsPerRead is how many jobs Jobs reads by one request. Each takes thirteen of the 128
// operations that etcd allows, and the pauses of many jobs one.
const jobsPerRead = 9

// names returns the names of all jobs, sorted. Hidden has an error for each job whose name
// cannot be read.
func (s *Scheduler) names(ctx context.Context) (names []string, hidden []error, err error) {
	if s.Passthrough() {
		for _, j := range s.catalog.all() {
			names = append(names, j.Name)
		}
		slices.Sort(names)
		return names, nil, nil
	}
	specs, notices, _, err := s.readJobs(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, kv := range notices {
		// One that cannot be read must not hide the others. Definitions reports it.
		if n, err := decode[notice](string(kv.Key), kv.Value); err == nil {
			names = append(names, n.Job)
		}
	}
	for _, kv := range specs {
		sp, err := decode[spec](string(kv.Key), kv.Value)
		switch {
		case err == nil:
			names = append(names, sp.Job)
		case !slices.ContainsFunc(names, func(name string) bool { return s.keys.Spec(name) == string(kv.Key) }):
			hidden = append(hidden, err)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), hidden, nil
}

// readJobs reads the specs of all jobs, and the notices of all definitions, at one revision.
func (s *Scheduler) readJobs(ctx context.Context) (specs, notices []*mvccpb.KeyValue, rev int64, err error) {
	var ops txn.Ops
	ofSpecs := ops.Add(clientv3.OpGet(s.keys.Specs(), clientv3.WithPrefix()))
	ofNotices := ops.Add(clientv3.OpGet(s.keys.AllDefined(), clientv3.WithPrefix()))
	resp, err := retry.Read(ctx, core.Of(s.claims).KV(), readTime, ops...)
	if err != nil {
		return nil, nil, 0, err
	}
	reply := txn.ReplyIn(resp)
	return reply.Kvs(ofSpecs), reply.Kvs(ofNotices), reply.Rev, nil
}

// Inspect returns the state of a job, read at one revision of etcd. In a passthrough
// scheduler it returns the policies and the next tick only.
//
// Errors: [ErrUnknownJob], and those of the etcd client.
func (s *Scheduler) Inspect(ctx context.Context, job string) (JobInfo, error) {
	infos, unread, err := s.inspect(ctx, s.ownerRead(ctx), job)
	if err = cmp.Or(err, unread); err == nil && len(infos) == 0 {
		err = s.unknownJob(job)
	}
	if err != nil {
		return JobInfo{}, errtext.Wrap(fmt.Sprintf("sched: inspect job %.80q", job), s.explained(err))
	}
	return infos[0], nil
}

// inspect returns the states of those of the jobs that exist, in their order. Unread is the
// error of the first job whose state cannot be decoded.
func (s *Scheduler) inspect(ctx context.Context, owner ownerRead, jobs ...string) (infos []JobInfo, unread, err error) {
	if s.Passthrough() {
		for _, job := range jobs {
			if j, ok := s.catalog.job(job); ok {
				infos = append(infos, s.inspectLocal(j))
			}
		}
		return infos, nil, nil
	}
	all, err := s.readAll(ctx, jobs)
	if err != nil {
		return nil, nil, err
	}
	if err := s.readBefore(ctx, all); err != nil {
		return nil, nil, err
	}
	for i, st := range all {
		unread = cmp.Or(unread, st.err)
		if st.SpecRev == 0 && st.definitionRev == 0 {
			continue
		}
		st.State = st.Lift(s.now())
		info := s.info(jobs[i], st)
		if lost := st.notAdmitted(&info, s.now(), owner); lost != nil {
			return infos, unread, lost
		}
		if lost := s.passedOver(ctx, &info, st); lost != nil {
			return infos, unread, lost
		}
		infos = append(infos, info)
	}
	return infos, unread, nil
}

// info returns the state of a job as users see it.
func (s *Scheduler) info(job string, st *jobSnapshot) JobInfo {
	i := JobInfo{
		Group: s.cfg.Group, Job: job, Schedule: st.Spec.Schedule, Revision: st.Spec.Revision, CatchUp: st.Spec.CatchUp,
		Overlap: st.Spec.Overlap, Guarantee: st.Spec.Guarantee, Since: st.Spec.Since, High: st.High, Failures: st.Failures.InARow,
		Tags: st.Spec.Tags, Limits: st.Spec.Limits, Priority: st.Spec.Priority, RunsOn: st.Spec.RunsOn,
		Kind: st.Spec.Kind, Version: st.definitionRev, Problem: st.problem(), Requests: st.Requests,
	}
	if i.Schedule == "" { // no owner could register the definition
		i.Schedule, i.Kind = s.definitionText(st.definition), st.definition.Kind
	}
	if before, follows := st.before(); follows {
		i.After = before.Names()
	}
	if st.Paused != nil {
		i.Paused = new(pauseOf(*st.Paused, st.Halted))
	} else if schedule := s.scheduleOf(job, st); schedule != nil && st.Spec.Hash != "" {
		schedule = jobstate.Without(schedule, st.Reset.Decided)
		i.schedule, i.Next = schedule, schedule.Next(st.High)
		never := st.Last == nil && len(st.Waiting)+len(st.Running) == 0
		i.Ended = i.over() && !never
		if i.Problem == "" && i.Version != 0 && i.over() && never && !st.definition.RunOnStart {
			i.Problem = "no tick follows: the schedule has no instant after " + stamp(st.High)
		}
		if i.Ahead = jobstate.Ahead(schedule, st.High, s.now()); i.Problem == "" && i.Ahead > 0 {
			i.Problem = st.AheadBy(i.Ahead)
		}
	}
	for _, w := range st.Waiting {
		i.Waiting = append(i.Waiting, infoOf(s.cfg.Group, w.Ready, w.AdmittedAt()))
	}
	for _, r := range st.Running {
		t := infoOf(s.cfg.Group, r.Ready, r.Admitted)
		t.Revision, t.Owner, t.Instance, t.Began = r.Rev, r.Owner, r.Instance, r.Began
		i.Running = append(i.Running, t)
	}
	i.Overdue = st.Overdue(i.Next, s.now())
	if st.Last != nil {
		i.Last = new(entryOf(s.cfg.Group, *st.Last))
	}
	return i
}

// over reports whether a job with a schedule has no further tick.
func (i JobInfo) over() bool {
	starts, is := i.schedule.(interface{ OnStart() bool })
	return i.Next.IsZero() && i.After == "" && !(is && starts.OnStart())
}

// problem returns why the job does not run as it is defined, or an empty text.
func (st *jobSnapshot) problem() string {
	switch {
	case st.ResetErr != nil:
		return "no tick is admitted, because it cannot be read which ones are decided: " + st.ResetErr.Error()
	case st.definitionRev == 0 && !st.Spec.InCode() && st.Spec.Hash != "":
		return "the definition is gone"
	case st.definitionRev == 0:
		return st.Spec.Problem // that it was removed
	case st.SpecRev != 0 && st.Spec.InCode():
		return errInCode.Error() + ", and runs instead of the definition"
	case st.definitionErr != nil:
		return st.definitionErr.Error()
	case st.Spec.Defined != st.definitionRev:
		return fmt.Sprintf("no owner has taken up version %d of the definition so far", st.definitionRev)
	}
	if st.unknownBefore != "" && st.Spec.Problem == "" {
		return fmt.Sprintf("the job %q, after which it runs, is neither defined nor registered by an owner", st.unknownBefore)
	}
	return st.Spec.Problem
}

func infoOf(group string, r ready, admitted int64) TickInfo {
	return TickInfo{
		ID: group + "/" + r.Job + "/" + r.ID, Nominal: r.Nominal, Actual: r.Actual, Attempt: r.Attempt, Missed: r.Missed,
		Admitted: admitted, Note: r.Note, After: r.After,
	}
}

// passedOver sets Overdue of a job whose mark is ahead of the clock.
func (s *Scheduler) passedOver(ctx context.Context, i *JobInfo, st *jobSnapshot) error {
	if i.Ahead == 0 || !i.Overdue.IsZero() || st.Spec.Overdue == 0 || i.schedule == nil {
		return nil
	}
	to := s.now().Add(-st.Spec.Overdue)
	newest := (tick.Job{Schedule: i.schedule}).LastOnes(to.AddDate(-1, 0, 0), to, 1)
	if len(newest) == 0 || st.InProgress(newest[0]) != "" {
		return nil
	}
	text, err := s.overtaken(ctx, i.Job, newest[0], st)
	if text != "" {
		i.Overdue = newest[0]
	}
	return err
}

// pastsPerRead is how many records History reads by one request. It is more than the default of
// Job.History.
const pastsPerRead = 200

// History yields the records of the job's last ticks, up to Job.History of them. The one
// that was written last comes first, whatever the clocks of the processes were. The sequence
// is empty in a passthrough scheduler and for unknown jobs. It ends after the first error.
func (s *Scheduler) History(ctx context.Context, job string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if s.Passthrough() {
			return
		}
		records, err := s.records(ctx, job)
		for _, p := range records {
			if !yield(entryOf(s.cfg.Group, p), nil) {
				return
			}
		}
		if err != nil {
			yield(Entry{}, errtext.Wrap(fmt.Sprintf("sched: read the history of job %.80q", job), s.explained(err)))
		}
	}
}

// records returns the records of a job, newest first. With an error it returns those before the
// first that cannot be read.
func (s *Scheduler) records(ctx context.Context, job string) (records []past, err error) {
	var all []*mvccpb.KeyValue
	op := clientv3.OpGet(s.keys.Records(job), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
	for page, err := range retry.List(ctx, core.Of(s.claims).KV(), readTime, op, pastsPerRead, pastsPerRead) {
		if err != nil {
			return nil, err
		}
		all = append(all, page.Kvs...)
	}
	// Those of one revision stay in the order of their times.
	slices.SortStableFunc(all, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(b.CreateRevision, a.CreateRevision) })
	for _, kv := range all {
		p, err := decode[past](string(kv.Key), kv.Value)
		if err != nil {
			return records, err
		}
		records = append(records, p)
	}
	return records, nil
}
