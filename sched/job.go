package sched

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
)

// Job is a function to run at each tick of a schedule, once across all processes of
// a group. Name, Schedule and Handler are required.
type Job struct {
	// Name identifies the job in its group. It is UTF-8 of 1 to 200 bytes, without
	// control characters, and does not end with "/after" (see Tick.ID). etcd stores the
	// state of a job under its name, so a renamed job is a new job.
	Name string
	// Schedule returns the instants at which the job is due. Examples are
	// calendar.Must(calendar.Cron("30 2 * * *")) and calendar.Must(calendar.Every(time.Hour, 0)).
	// A schedule of another package can be used, too. If its Next panics, no instant
	// follows, and the panic is logged. Fixed intervals of robfig/cron and River count from
	// the time of the call, so processes disagree on them: use calendar.Every for those.
	//
	// If a calendar of calendar.Except or Only changes, the job has a new schedule: see
	// Revision. Other processes cannot compute when such a job is due, unless the job was
	// added there, too.
	Schedule calendar.Schedule
	// Handler does the work of one tick. Its context ends when the scheduler stops,
	// when the run's claim is lost, when the run is cancelled, and after Timeout. The
	// handler then has a drain (etcdclaims.Config.Drain) to return. After the drain the
	// scheduler stops waiting. Later writes that carry its fence are refused. If the handler
	// returns an error or panics, the run has
	// failed, and Retry decides. Handler is called concurrently if Overlap permits.
	Handler func(ctx context.Context, t Tick) error

	// Tags are names by which jobs of the group are paused together; see Scheduler.PauseTag. At most
	// 16, of the form of Name. Default: none.
	Tags []string
	// Limits bound how many runs of several jobs of the group are in progress at once, in all
	// processes. The map has the names of limits, of the form of Name, and how many runs each
	// permits, from 1 to 1000. At most 4.
	//
	// Jobs can have different numbers for one limit, and so can the versions of a job during a
	// deployment. For each number, at most so many runs of jobs with that number or a lower one
	// are in progress. So the greatest number bounds all runs, and jobs with a lower
	// number leave the other slots to those with a greater one.
	//
	// A tick begins when a slot of each of its limits is free. Until then it waits, as Explain
	// reports, and its StartDeadline applies. It holds no slot while it waits, and delays no
	// other job whose slots are free. A tick with several limits can wait longer than those with one.
	//
	// A run has its slots until its end is recorded. If its process dies or loses the claim of the
	// run, they are free when the claim has ended in etcd and the owner has recorded the loss.
	// The context of the handler ends before that, with a cause that matches etcdclaims.ErrLost.
	// A handler that ignores the end of its context, or whose process is frozen, can continue beside
	// the next run. The fence of its tick is then refused.
	//
	// Runs of a version of the job without a limit have no slot of it: they are not bounded, and do not
	// count. An earlier version of this package ignores the Limits and the RunsOn of a job in code, and
	// does not run definitions that have them. Default: none.
	Limits map[string]int
	// Priority decides which tick begins first if several wait, because of Limits or
	// Config.Limit: that of the lower Priority, as in package queue, and then the older one. It is any
	// number. Ticks of backfills come last. With Spread it decides in each process. A tick waits as
	// long as those of a lower Priority leave no slot free. To keep slots free for some jobs, give
	// the others lower numbers in Limits. Default: 0.
	Priority int
	// RunsOn are labels: only processes whose Config.Labels have all of them run the job. It
	// needs Config.Spread, since the owner runs all ticks without it. At most 16, of the form of
	// Name. While no such process runs, ticks wait, and StartDeadline applies. The owner admits
	// ticks whatever its labels are. Explain and Hooks.Overdue report which processes are known to
	// have the labels. They can miss a process: of schedulers of one group that share a client, the
	// labels of one are known. Nor are those of a process known for a moment when the owner changes.
	// Default: none, so every process can run the job.
	RunsOn []string
	// Revision identifies this version of the job, together with the text of its
	// schedule. When either changes, ticks of the old version are not caught up with,
	// and RunOnStart is due once more. Revision is required if the schedule is not a
	// fmt.Stringer, because its changes could not be detected otherwise. Default:
	// empty.
	Revision string
	// CatchUp decides about missed ticks. Default: Latest.
	CatchUp CatchUp
	// Overlap decides about ticks that come due while a run of the job is in progress.
	// Default: Skip.
	Overlap Overlap
	// Guarantee decides about a run whose process died. Default: AtMostOnce.
	Guarantee Guarantee
	// MaxStarts limits how often AtLeastOnce begins a tick, so that a tick that
	// kills its process does not do so forever. Default: etcdclaims.DefaultMaxAttempts, 5.
	MaxStarts int
	// Retry decides about a run that fails. Default: no further attempt.
	Retry Retry
	// StartDeadline is how late a tick can start, counted from its nominal time. A
	// tick that has not started by then is not run, and is recorded as late. The
	// deadline includes the jitter. A take-over can use up a StartDeadline below 10 s.
	// Zero means no limit.
	StartDeadline time.Duration
	// Overdue is the longest time from a tick's nominal time to the end of its last attempt.
	// A tick that takes longer is reported at least once: by Hooks.Overdue, a warning in
	// the log, and JobInfo.Overdue. It still runs. Ticks that are
	// skipped, or that come due in a pause, are not reported. While etcd cannot be read, each
	// process also reports ticks whose end it does not know. Such a tick
	// may have been run by another process just before. If no process runs, nothing is
	// reported: let a monitor outside watch important jobs, as in the example of
	// [Middleware]. Each tick costs a request to etcd when it reaches the bound. Zero means
	// never.
	Overdue time.Duration
	// Jitter delays each start by less than this duration, and never past the next
	// nominal time. The delay is a hash of the job's name and the nominal time, so it
	// is the same in all processes. It is not part of the tick's identity. Default:
	// none.
	Jitter time.Duration
	// Timeout is how long a handler can run before its context ends with
	// context.DeadlineExceeded. Zero means no limit.
	Timeout time.Duration
	// RunOnStart makes the job due once when it is registered, and once for each new
	// revision. If the job is paused then, it is due when no pause lasts any more. Until then,
	// Inspect and Explain report the pause, and not that a start waits for its end. A new
	// process or a new owner does not make it due again. The cron expression @reboot sets
	// it, and is due at no other time.
	RunOnStart bool
	// PauseOnFailure pauses the job when this number of its runs have failed in a row.
	// A run that is tried again does not count. A tick counts once if its last attempt
	// failed, or if it waits for another attempt and becomes late or is replaced. Failures
	// while the job is paused do not pause it again: they count for nothing when the pause
	// ends, also by itself, see For. Zero means never.
	PauseOnFailure int
	// History is how many records of ticks are kept, from 1 to 1000. Records that are
	// added at the same time can leave a few more until their process, or the owner, trims
	// them, usually within a second. Default: 20.
	History int
	// HistoryFor is how old a record can be when the next one of the job is written: older ones
	// are then removed, by the clock of the process that writes. History still limits their number. Zero
	// means no limit.
	HistoryFor time.Duration

	rules tick.Job // what decides about the ticks

	// The following fields are those of a job that is defined in etcd.

	kind      string
	defined   int64     // the version of the definition; 0 for a job in code
	definedAt time.Time // when that was stored
	problem   string    // why this process cannot run the job, which is then never registered nor admitted
}

// kindHandler is the function of a kind.
type kindHandler = func(ctx context.Context, t Tick, payload json.RawMessage) error

const (
	mostNameBytes = 200
	mostHistory   = 1000
	mostTags      = 16 // and labels
	mostLimits    = 4
	mostSlots     = 1000
)

// withDefaults returns the job with its defaults filled in, or an error if the job
// is invalid.
func (j Job) withDefaults() (Job, error) {
	fail := func(format string, args ...any) (Job, error) {
		return Job{}, fmt.Errorf(format, args...)
	}
	if err := checkName(j.Name); err != nil {
		return fail("Name %w", err)
	}
	if strings.HasSuffix(j.Name, "/after") {
		return fail("Name ends with /after, so the IDs of its ticks could be those of a job that runs after another one; want another name")
	}
	if j.CatchUp == nil {
		j.CatchUp = Latest{}
	}
	if j.Overlap == nil {
		j.Overlap = Skip{}
	}
	j.MaxStarts = cmp.Or(j.MaxStarts, etcdclaims.DefaultMaxAttempts)
	j.History = cmp.Or(j.History, jobstate.DefaultHistory)
	if s, ok := j.Schedule.(interface{ OnStart() bool }); ok && s.OnStart() {
		j.RunOnStart = true
	}
	if _, err := j.CatchUp.catchUp(); err != nil {
		return fail("%w", err)
	}
	if err := j.Retry.check(); err != nil {
		return fail("%w", err)
	}
	if _, err := j.Overlap.overlap(); err != nil {
		return fail("%w", err)
	}
	if all, is := j.CatchUp.(All); is {
		if err := all.check(j.Overlap); err != nil {
			return fail("%w", err)
		}
	}
	_, named := j.Schedule.(fmt.Stringer)
	switch {
	case j.Schedule == nil:
		return fail("the job has no Schedule")
	case j.Handler == nil:
		return fail("the job has no Handler")
	case !named && j.Revision == "":
		return fail("changes of the Schedule %T cannot be detected, because it has no String method; set Revision", j.Schedule)
	case int(j.Guarantee) < 0 || int(j.Guarantee) >= len(guaranteeNames):
		return fail("Guarantee(%d) is not a guarantee; want AtMostOnce or AtLeastOnce", int(j.Guarantee))
	case j.MaxStarts < 0:
		return fail("MaxStarts %d is negative", j.MaxStarts)
	case j.PauseOnFailure < 0:
		return fail("PauseOnFailure %d is negative", j.PauseOnFailure)
	case j.StartDeadline < 0:
		return fail("StartDeadline %v is negative", j.StartDeadline)
	case j.Jitter < 0:
		return fail("Jitter %v is negative", j.Jitter)
	case j.Timeout < 0:
		return fail("Timeout %v is negative", j.Timeout)
	case j.Overdue < 0:
		return fail("Overdue %v is negative", j.Overdue)
	case j.StartDeadline > 0 && j.Jitter >= j.StartDeadline:
		return fail("Jitter %v can use up the StartDeadline %v, so some ticks would never start; "+
			"want a shorter Jitter", j.Jitter, j.StartDeadline)
	case len(j.Tags) > mostTags:
		return fail("%d Tags; the limit is %d", len(j.Tags), mostTags)
	case j.HistoryFor < 0:
		return fail("HistoryFor %v is negative", j.HistoryFor)
	case j.History < 1 || j.History > mostHistory:
		return fail("History %d is out of range; want 1 to %d", j.History, mostHistory)
	}
	for _, tag := range j.Tags {
		if err := checkName(tag); err != nil {
			return fail("a tag %w", err)
		}
	}
	if err := j.checkPlaces(); err != nil {
		return fail("%w", err)
	}
	j.Limits, j.RunsOn = maps.Clone(j.Limits), slices.Clone(j.RunsOn)
	return j.ruled(), nil
}

// checkPlaces returns an error if the limits or the labels are invalid.
func (j Job) checkPlaces() error {
	if len(j.Limits) > mostLimits {
		return fmt.Errorf("%d Limits; the limit is %d", len(j.Limits), mostLimits)
	}
	for limit, n := range j.Limits {
		if err := checkName(limit); err != nil {
			return fmt.Errorf("a name in Limits %w", err)
		}
		if n < 1 || n > mostSlots {
			return fmt.Errorf("the limit %.80q is %d; want 1 to %d", limit, n, mostSlots)
		}
	}
	return checkLabels("RunsOn", j.RunsOn)
}

// checkLabels returns an error if labels of a process or a job are invalid.
func checkLabels(what string, labels []string) error {
	if len(labels) > mostTags {
		return fmt.Errorf("%d labels in %s; the limit is %d", len(labels), what, mostTags)
	}
	for _, label := range labels {
		if err := checkName(label); err != nil {
			return fmt.Errorf("a label in %s %w", what, err)
		}
	}
	return nil
}

// runsOn reports whether a process with the labels can run the job.
func (j Job) runsOn(labels []string) bool {
	return !slices.ContainsFunc(j.RunsOn, func(label string) bool { return !slices.Contains(labels, label) })
}

// checkName returns an error if the name of a job or a group is invalid.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > mostNameBytes:
		return fmt.Errorf("has %d bytes; the limit is %d", len(name), mostNameBytes)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("must be UTF-8 without control characters")
	}
	return nil
}

// text returns the schedule as text.
func (j Job) text() string { return jobstate.Text(j.Schedule) }

// hash identifies the revision of the job.
func (j Job) hash() string {
	sum := sha256.Sum256([]byte(j.text() + "\n" + j.Revision))
	return hex.EncodeToString(sum[:8])
}

// withoutPanics returns a schedule of the job that does not panic.
func withoutPanics(log *zap.Logger, job string, schedule calendar.Schedule) calendar.Schedule {
	if _, follows := schedule.(after); follows {
		return schedule
	}
	var once sync.Once
	return jobstate.Guard(schedule, func(panicked any) {
		once.Do(func() {
			log.Error("schedule panicked; the job has no further tick", zap.String("job", job),
				zap.Any("panic", panicked), zap.ByteString("stack", debug.Stack()))
		})
	})
}

// same reports whether two jobs of one name come from the same definition, or both from
// code.
func (j Job) same(o Job) bool { return j.defined == o.defined && j.problem == o.problem }

// ruled returns the job with its rules, which are made of its other fields.
func (j Job) ruled() Job {
	is := tick.Job{
		Name: j.Name, Schedule: j.Schedule, Defined: j.defined, StartDeadline: j.StartDeadline, Jitter: j.Jitter,
		Again: j.Guarantee == AtLeastOnce, MaxStarts: j.MaxStarts, PauseOnFailure: j.PauseOnFailure, History: j.History,
	}
	switch policy := j.CatchUp.(type) {
	case SkipMissed:
		is.CatchUp = tick.SkipMissed
	case All:
		is.CatchUp, is.CatchUpMax, is.Window = tick.All, policy.max(), policy.Window
	}
	switch policy := j.Overlap.(type) {
	case BufferOne:
		is.Overlap = tick.BufferOne
	case BufferAll:
		is.Overlap, is.Buffer = tick.BufferAll, policy.max()
	case CancelRunning:
		is.Overlap = tick.CancelRunning
	case Allow:
		is.Overlap = tick.Allow
	}
	j.rules = is
	return j
}

// describe returns the specification of a job, without its past.
func describe(group string, j Job) spec {
	is := spec{
		Version: valueVersion, Group: group, Job: j.Name, Schedule: j.text(), Revision: j.Revision, Hash: j.hash(),
		Guarantee: j.Guarantee.String(), History: j.History, HistoryFor: j.HistoryFor,
		Overdue: j.Overdue, Jitter: j.Jitter, Kind: j.kind, Defined: j.defined, Tags: j.Tags,
		Limits: j.Limits, Priority: j.Priority, RunsOn: j.RunsOn,
	}
	if before, follows := j.Schedule.(after); follows {
		is.Following = before.Following
	}
	is.CatchUp, _ = j.CatchUp.catchUp()
	is.Overlap, _ = j.Overlap.overlap()
	return is
}
