package sched

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Fate is what has become of a tick so far.
type Fate string

// The fates of ticks.
const (
	FateNotDue    Fate = "not due"   // the schedule has no tick at the instant
	FateFuture    Fate = "future"    // the tick is not due yet
	FatePaused    Fate = "paused"    // the job is paused, or a pause left the tick out; then Entry is the record of the pause
	FateOverdue   Fate = "overdue"   // the tick is due, and not admitted
	FateWaiting   Fate = "waiting"   // the tick was admitted, and no attempt is in progress
	FateRunning   Fate = "running"   // a run is recorded as in progress
	FateDone      Fate = "done"      // the tick is recorded; Entry has its outcome
	FateExhausted Fate = "exhausted" // the last attempt failed; Entry has its outcome
	FateMissed    Fate = "missed"    // given up together with others; Entry is the record that counts it
	FateBefore    Fate = "before"    // from before the registration of the job, or of this revision of its schedule
	FateUnknown   Fate = "unknown"   // decided, but without a record
)

// Explanation is what became of one tick of a job, and why.
type Explanation struct {
	Job     string
	Nominal time.Time
	Fate    Fate
	Entry   *Entry // the newest record of the tick; nil if there is none
	Text    string // one sentence for people, whose words may change
}

// String returns the sentence.
func (x Explanation) String() string { return x.Text }

// Explain returns what became of the tick that is due at the nominal time, and why. It
// reads the state of the job and its history. Runs of RunNow are not considered, those of
// Backfill are. The records of a job are limited to Job.History, so the fate of an old tick
// is unknown.
//
// If this process does not know the schedule (see [JobInfo]), Explain assumes that the
// instant is one of the schedule.
//
// Errors: [ErrUnknownJob], etcdclaims.ErrPassthrough, and those of the etcd client.
func (s *Scheduler) Explain(ctx context.Context, job string, nominal time.Time) (Explanation, error) {
	x := Explanation{Job: job, Nominal: nominal.UTC().Round(0)}
	fail := func(err error) (Explanation, error) {
		return Explanation{}, errtext.Wrap(fmt.Sprintf("sched: explain a tick of job %.80q", job), s.explained(err))
	}
	if s.Passthrough() {
		return fail(etcdclaims.ErrPassthrough)
	}
	st, err := s.read(ctx, job)
	if err == nil && st.specRev == 0 {
		err = s.unknownJob(job)
	}
	if err != nil {
		return fail(err)
	}
	if s.inProgress(&x, st) {
		return x, nil
	}
	// The history is read after the state: a tick that has ended in between is in it.
	if err := s.requested(ctx, &x, st); err != nil || x.Fate != "" {
		if err != nil {
			return fail(err)
		}
		return x, nil
	}
	var records []Entry
	for e, err := range s.History(ctx, job) {
		if err != nil {
			return fail(err)
		}
		records = append(records, e)
	}
	s.decided(&x, st, records)
	return x, nil
}

// explains reports whether the id is that of a tick of the schedule, or of its backfill.
func explains(id string) bool { return !isManual(id) || isBackfill(id) }

func (x *Explanation) is(fate Fate, format string, args ...any) {
	x.Fate, x.Text = fate, fmt.Sprintf(format, args...)
}

// inProgress explains a tick that waits or runs.
func (s *Scheduler) inProgress(x *Explanation, st *jobSnapshot) bool {
	of := func(r ready) bool { return r.Nominal.Equal(x.Nominal) && explains(r.ID) }
	for _, r := range st.running {
		if of(r.ready) {
			x.is(FateRunning, "running since %s by %s, attempt %d", stamp(r.Began), r.Owner, r.Attempt)
			return true
		}
	}
	for _, w := range st.waiting {
		switch {
		case !of(w.ready):
		case w.Attempt > 1:
			x.is(FateWaiting, "waits for attempt %d, not before %s: %s", w.Attempt, stamp(w.After), w.Note)
			return true
		default:
			x.is(FateWaiting, "admitted, and waits to begin: %d runs of the job are in progress", len(st.running))
			return true
		}
	}
	return false
}

// before returns the name of the job that the job runs after.
func (st *jobSnapshot) before() (string, bool) {
	if st.spec.Schedule == "" && st.definitionErr == nil { // no owner could register the definition
		return st.definition.After, st.definition.After != ""
	}
	return st.spec.before()
}

// requested explains a tick after another job that was requested and is not admitted.
func (s *Scheduler) requested(ctx context.Context, x *Explanation, st *jobSnapshot) error {
	before, follows := st.before()
	if !follows || st.requests == 0 {
		return nil
	}
	resp, err := retry.Get(ctx, core.Of(s.claims).KV(), readTime,
		clientv3.OpGet(s.keys.asksOf(x.Job), clientv3.WithPrefix()))
	if err != nil {
		return err
	}
	for _, kv := range resp.Kvs {
		a, err := decode[ask](string(kv.Key), kv.Value)
		if err != nil || a.After == "" || isManual(a.After) || !a.At.Equal(x.Nominal) {
			continue
		}
		text := "not admitted so far"
		if problem := st.problem(); problem != "" {
			text = "waits for an owner that can run the job: " + problem
		}
		x.is(FateWaiting, "requested by a success of %s, and %s", before, text)
		return nil
	}
	return nil
}

// decided explains a tick that neither waits nor runs.
func (s *Scheduler) decided(x *Explanation, st *jobSnapshot, records []Entry) {
	schedule, now := s.scheduleOf(x.Job, st), s.now()
	before, follows := st.before()
	at := slices.IndexFunc(records, func(e Entry) bool { return e.Nominal.Equal(x.Nominal) && explains(e.id) })
	switch {
	case at >= 0:
		x.recorded(&records[at])
	case st.reset.Decided.have(x.Nominal):
		x.is(FateDone, "decided, and not run again: the mark was put back by %s at %s, and the record of before is gone", st.reset.By, stamp(st.reset.At))
	case follows:
		x.is(FateNotDue, "not due: the job runs when %s has succeeded for this instant, which is not recorded; explain that job", before)
	case schedule != nil && leftOut(schedule, x.Nominal):
		x.is(FateNotDue, "not due: a calendar of the schedule %s leaves this instant out; the next one is at %s", st.spec.Schedule, stamp(schedule.Next(x.Nominal)))
	case schedule != nil && !has(schedule, x.Nominal):
		x.is(FateNotDue, "not due: the schedule %s has no tick at this instant; the next one is at %s", st.spec.Schedule, stamp(schedule.Next(x.Nominal)))
	case x.Nominal.After(st.high) && x.Nominal.After(now):
		x.is(FateFuture, "not due yet: in %v", x.Nominal.Sub(now).Round(time.Second))
	case x.Nominal.After(st.high) && st.paused != nil:
		x.is(FatePaused, "not admitted: the job is paused by %s since %s: %s", st.paused.By, stamp(st.paused.At), st.paused.Note)
	case x.Nominal.After(st.high) && st.problem() != "":
		x.is(FateOverdue, "due for %v and not admitted: %s", now.Sub(x.Nominal).Round(time.Second), st.problem())
	case x.Nominal.After(st.high):
		x.is(FateOverdue, "due for %v and not admitted: the group has no owner, its owner does not have the job or is busy, or its clock is behind", now.Sub(x.Nominal).Round(time.Second))
	case x.Nominal.Before(st.spec.Since):
		x.is(FateBefore, "before the schedule %s was registered at %s", st.spec.Schedule, stamp(st.spec.Since))
	case x.givenUp(without(schedule, st.reset.Decided), records):
	case len(records) >= st.spec.limit():
		x.is(FateUnknown, "not known: the job keeps %d records, and the oldest is of %s", len(records), stamp(records[len(records)-1].Nominal))
	default:
		x.is(FateUnknown, "did not run, and no record says why: it was given up at a pause, or before an operator moved the mark")
	}
}

// leftOut reports whether a calendar leaves out an instant that the schedule would have.
func leftOut(s calendar.Schedule, at time.Time) bool { return has(whole(s), at) && !has(s, at) }

// why has the reason of each outcome whose record has none.
var why = map[Outcome]string{
	OutcomeOK:          "the handler returned nil",
	OutcomeSkipped:     "another run of the job was in progress or waited, and its Overlap leaves such ticks out",
	OutcomeLate:        "it had not begun by its StartDeadline",
	OutcomeReplaced:    "a newer tick came due, and the Overlap prefers that",
	OutcomeMissed:      "no owner admitted it in time, and CatchUp leaves such ticks out",
	OutcomePaused:      "the job was paused",
	OutcomeInterrupted: "its scheduler stopped, or its claim was in doubt",
}

// recorded explains a tick that has a record.
func (x *Explanation) recorded(e *Entry) {
	x.Entry = e
	fate, text := FateDone, string(e.Outcome)
	switch {
	case e.Again:
		fate = FateWaiting
	case e.Outcome.bad():
		fate, text = FateExhausted, text+" for good, with no attempt left"
	}
	if e.Attempt > 0 {
		text += fmt.Sprintf(", attempt %d by %s from %s to %s", e.Attempt, e.Owner, stamp(e.Began), stamp(e.Ended))
	} else {
		text += fmt.Sprintf(", recorded at %s", stamp(e.Ended))
	}
	reason := e.Error
	if reason == "" {
		reason = why[e.Outcome]
	}
	x.is(fate, "%s: %s", text, reason)
}

// givenUp explains a tick that a later record counts. It has the word of that record.
func (x *Explanation) givenUp(schedule calendar.Schedule, records []Entry) bool {
	for i := len(records) - 1; i >= 0; i-- { // the oldest first
		e := &records[i]
		if e.Missed == 0 || !e.Nominal.After(x.Nominal) || isManual(e.id) {
			continue
		}
		to := e.Nominal.Add(-1)
		if e.Outcome == OutcomeMissed || e.Outcome == OutcomePaused {
			to = e.Nominal // the record counts its own tick too
		}
		if schedule != nil && (Job{Schedule: schedule}).count(x.Nominal.Add(-1), to) > e.Missed {
			continue
		}
		x.Entry = e
		switch e.Outcome {
		case OutcomePaused:
			x.is(FatePaused, "paused, one of %d ticks that one record counts, until %s: %s", e.Missed, stamp(e.Nominal), e.Error)
		case OutcomeMissed:
			x.is(FateMissed, "missed, one of %d ticks that one record counts, until %s: %s", e.Missed, stamp(e.Nominal), why[OutcomeMissed])
		default:
			x.is(FateMissed, "missed, one of %d ticks that came due while no owner could admit them: CatchUp went on with the tick of %s", e.Missed, stamp(e.Nominal))
		}
		return true
	}
	return false
}
