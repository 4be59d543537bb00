package sched

import (
	"cmp"
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

// Explain returns what became of the tick that is due at the nominal time, and why: a
// sentence for people, whose words may change. It reads the state of the job and its history.
// Runs of RunNow are not considered, those of Backfill are. The records of a job are limited to
// Job.History, so it is not known what became of an old tick.
//
// If this process does not know the schedule (see [JobInfo]), Explain assumes that the
// instant is one of the schedule.
//
// Errors: [ErrUnknownJob], etcdclaims.ErrPassthrough, and those of the etcd client.
func (s *Scheduler) Explain(ctx context.Context, job string, nominal time.Time) (text string, err error) {
	if text, err = s.explainTick(ctx, job, nominal.UTC().Round(0)); err != nil {
		return "", errtext.Wrap(fmt.Sprintf("sched: explain a tick of job %.80q", job), s.explained(err))
	}
	return text, nil
}

func (s *Scheduler) explainTick(ctx context.Context, job string, nominal time.Time) (string, error) {
	if s.Passthrough() {
		return "", etcdclaims.ErrPassthrough
	}
	st, err := s.read(ctx, job)
	switch {
	case err != nil:
		return "", err
	case st.specRev == 0:
		return "", s.unknownJob(job)
	}
	if text := st.inProgress(nominal); text != "" {
		return text, nil
	}
	// The history is read after the state: a tick that has ended in between is in it.
	if text, err := s.requested(ctx, job, nominal, st); err != nil || text != "" {
		return text, err
	}
	records, err := s.records(ctx, job)
	if err != nil {
		return "", err
	}
	for _, e := range records {
		if e.Nominal.Equal(nominal) && explains(e.id) {
			return e.explain(), nil
		}
	}
	if text, _ := s.undecided(job, nominal, st); text != "" {
		return text, nil
	}
	if text := givenUp(nominal, without(s.scheduleOf(job, st), st.reset.Decided), records); text != "" {
		return text, nil
	}
	if n := len(records); n >= st.spec.limit() {
		return fmt.Sprintf("not known: the job keeps %d records, and the oldest is of %s", n, stamp(records[n-1].Nominal)), nil
	}
	return "did not run, and no record says why: it was given up at a pause, or before an operator moved the mark", nil
}

// explains reports whether the id is that of a tick of the schedule, or of its backfill.
func explains(id string) bool { return !isManual(id) || isBackfill(id) }

// inProgress explains a tick that waits or runs. It returns an empty text of any other.
func (st *jobSnapshot) inProgress(nominal time.Time) string {
	of := func(r ready) bool { return r.Nominal.Equal(nominal) && explains(r.ID) }
	for _, r := range st.running {
		if of(r.Ready) {
			return fmt.Sprintf("running since %s by %s, attempt %d", stamp(r.Began), r.Owner, r.Attempt)
		}
	}
	for _, w := range st.waiting {
		switch {
		case !of(w.ready):
		case w.Attempt > 1:
			return fmt.Sprintf("waits for attempt %d, not before %s: %s", w.Attempt, stamp(w.After), w.Note)
		default:
			return fmt.Sprintf("admitted, and waits to begin: %d runs of the job are in progress", len(st.running))
		}
	}
	return ""
}

// before returns the name of the job that the job runs after.
func (st *jobSnapshot) before() (string, bool) {
	if st.spec.Schedule == "" && st.definitionErr == nil { // no owner could register the definition
		return st.definition.After, st.definition.After != ""
	}
	return st.spec.before()
}

// requested explains a tick after another job that was requested and is not admitted.
func (s *Scheduler) requested(ctx context.Context, job string, nominal time.Time, st *jobSnapshot) (string, error) {
	before, follows := st.before()
	if !follows || st.requests == 0 {
		return "", nil
	}
	resp, err := retry.Get(ctx, core.Of(s.claims).KV(), readTime, clientv3.OpGet(s.keys.AsksOf(job), clientv3.WithPrefix()))
	if err != nil {
		return "", err
	}
	for _, kv := range resp.Kvs {
		a, err := decode[ask](string(kv.Key), kv.Value)
		if err != nil || a.After == "" || isManual(a.After) || !a.At.Equal(nominal) {
			continue
		}
		text := "not admitted so far"
		if problem := st.problem(); problem != "" {
			text = "waits for an owner that can run the job: " + problem
		}
		return fmt.Sprintf("requested by a success of %s, and %s", before, text), nil
	}
	return "", nil
}

// undecided explains a tick without a record that neither waits nor runs. It returns an empty text
// if the mark has passed the tick since. Late reports whether the tick should have been admitted.
func (s *Scheduler) undecided(job string, nominal time.Time, st *jobSnapshot) (text string, late bool) {
	schedule, now := s.scheduleOf(job, st), s.now()
	before, follows := st.before()
	switch {
	case st.reset.Decided.have(nominal):
		text = fmt.Sprintf("decided, and not run again: the mark was put back by %s at %s", st.reset.By, stamp(st.reset.At))
		if st.reset.Note != "" {
			text += ": " + st.reset.Note
		}
		return text, false
	case follows:
		return fmt.Sprintf("not due: the job runs when %s has succeeded for this instant, which is not recorded; explain that job", before), false
	case schedule != nil && !has(schedule, nominal):
		why := "has no tick at this instant"
		if has(whole(schedule), nominal) {
			why = "has a calendar that leaves this instant out"
		}
		return fmt.Sprintf("not due: the schedule %s %s; the next one is at %s", st.spec.Schedule, why, stamp(schedule.Next(nominal))), false
	case nominal.After(st.high) && nominal.After(now):
		return fmt.Sprintf("not due yet: in %v", nominal.Sub(now).Round(time.Second)), false
	case nominal.After(st.high) && st.paused != nil:
		return fmt.Sprintf("not admitted: the job is paused by %s since %s: %s", st.paused.By, stamp(st.paused.At), st.paused.Note), false
	case nominal.After(st.high):
		why := st.problem()
		if why == "" {
			why = "the group has no owner, its owner does not have the job or is busy, or its clock is behind"
		}
		return fmt.Sprintf("due for %v and not admitted: %s", now.Sub(nominal).Round(time.Second), why), true
	case nominal.Before(st.spec.Since):
		return fmt.Sprintf("before the schedule %s was registered at %s", st.spec.Schedule, stamp(st.spec.Since)), false
	}
	return "", false
}

// why has the reason of each outcome whose record has none.
var why = map[Outcome]string{
	OutcomeOK:          "the handler returned nil",
	OutcomeSkipped:     "another run of the job was in progress or waited, or a newer tick came due, and its Overlap leaves such ticks out",
	OutcomeLate:        "it had not begun by its StartDeadline",
	OutcomeMissed:      "no owner admitted it in time, and CatchUp leaves such ticks out",
	OutcomePaused:      "the job was paused",
	OutcomeInterrupted: "its scheduler stopped, or its claim was in doubt",
}

// explain explains a tick that has the record.
func (e Entry) explain() string {
	text := string(e.Outcome)
	if e.Outcome.Bad() && !e.Again {
		text += " for good, with no attempt left"
	}
	if e.Attempt > 0 {
		text += fmt.Sprintf(", attempt %d by %s from %s to %s", e.Attempt, e.Owner, stamp(e.Began), stamp(e.Ended))
	} else {
		text += fmt.Sprintf(", recorded at %s", stamp(e.Ended))
	}
	return text + ": " + cmp.Or(e.Error, why[e.Outcome])
}

// givenUp explains a tick that a later record counts, with the word of that record. It returns
// "" if no record counts the tick.
func givenUp(nominal time.Time, schedule calendar.Schedule, records []Entry) string {
	for _, e := range slices.Backward(records) { // the oldest first
		if e.Missed == 0 || !e.Nominal.After(nominal) || isManual(e.id) {
			continue
		}
		to, itself := e.Nominal.Add(-1), e.Outcome == OutcomeMissed || e.Outcome == OutcomePaused
		if itself {
			to = e.Nominal // the record counts its own tick too
		}
		if schedule != nil && (Job{Schedule: schedule}).count(nominal.Add(-1), to) > e.Missed {
			continue
		}
		if itself {
			return fmt.Sprintf("%s, one of %d ticks that one record counts, until %s: %s", e.Outcome, e.Missed, stamp(e.Nominal), cmp.Or(e.Error, why[e.Outcome]))
		}
		return fmt.Sprintf("missed, one of %d ticks that came due while no owner could admit them: CatchUp went on with the tick of %s", e.Missed, stamp(e.Nominal))
	}
	return ""
}
