package sched

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
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
	case st.SpecRev == 0:
		return "", s.unknownJob(job)
	}
	st.State = st.Lift(s.now())
	if err := s.readPlaces(ctx, st, nominal); err != nil {
		return "", err
	}
	if text := st.InProgress(nominal); text != "" {
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
	for _, p := range records {
		if p.Nominal.Equal(nominal) && jobstate.Explains(p.ID) {
			return jobstate.Explain(p), nil
		}
	}
	if text, _ := s.undecided(job, nominal, st); text != "" {
		return text, nil
	}
	if text := st.InPause(nominal, s.now()); text != "" {
		return text, nil
	}
	if text := jobstate.GivenUp(nominal, jobstate.Without(s.scheduleOf(job, st), st.Reset.Decided), records); text != "" {
		return text, nil
	}
	if n := len(records); n >= st.Spec.Limit() {
		return fmt.Sprintf("not known: the job keeps %d records, and the oldest is of %s", n, stamp(records[n-1].Nominal)), nil
	}
	if d := st.Spec.HistoryFor; d > 0 && s.now().Sub(nominal) > d {
		return fmt.Sprintf("not known: the job keeps records for %v", d), nil
	}
	return "did not run, and no record says why: it was given up at a pause, or before an operator moved the mark", nil
}

// before returns after which jobs the job runs.
func (st *jobSnapshot) before() (f tick.Following, follows bool) {
	f = st.Spec.Following
	if st.Spec.Schedule == "" && st.definitionErr == nil { // no owner could register the definition
		f = st.definition.Following
	}
	return f, len(f.Jobs()) > 0
}

// requested explains a tick after other jobs that was requested and is not admitted.
func (s *Scheduler) requested(ctx context.Context, job string, nominal time.Time, st *jobSnapshot) (string, error) {
	before, follows := st.before()
	if !follows || st.Requests == 0 {
		return "", nil
	}
	resp, err := retry.Get(ctx, core.Of(s.claims).KV(), readTime, clientv3.OpGet(s.keys.AsksOf(job), clientv3.WithPrefix()))
	if err != nil {
		return "", err
	}
	var ends []ask
	for _, kv := range resp.Kvs {
		a, err := decode[ask](string(kv.Key), kv.Value)
		if err == nil && a.After != "" && !tick.IsManual(a.After) && a.At.Equal(nominal) {
			ends = append(ends, a)
		}
	}
	if len(ends) == 0 {
		return "", nil
	}
	ended, complete, _ := before.Joined(ends)
	if !complete {
		var by []string
		for _, a := range ended {
			by = append(by, a.By)
		}
		return fmt.Sprintf("not due: the job runs when %s for this instant, and only %s ended so far",
			before.Condition(), strings.Join(by, ", ")), nil
	}
	how := "a success"
	if before.AfterOn != "" {
		how = "an end"
	}
	if problem := st.problem(); problem != "" {
		return fmt.Sprintf("requested by %s of %s, and waits for an owner that can run the job: %s", how, before.Names(), problem), nil
	}
	return fmt.Sprintf("requested by %s of %s, and not admitted so far", how, before.Names()), nil
}

// undecided explains a tick without a record that neither waits nor runs. It returns an empty text
// if the mark has passed the tick since. Late reports whether the tick should have been admitted.
func (s *Scheduler) undecided(job string, nominal time.Time, st *jobSnapshot) (text string, late bool) {
	if before, follows := st.before(); follows && !st.Reset.Decided.Have(nominal) {
		return fmt.Sprintf("not due: the job runs when %s for this instant, which is not recorded; explain %s",
			before.Condition(), before.Names()), false
	}
	return st.Undecided(nominal, s.now(), s.scheduleOf(job, st), st.problem())
}

// overtaken explains a tick that has reached its bound, if it was decided before it came due,
// because the mark is ahead of the clock. It returns an empty text of any other.
func (s *Scheduler) overtaken(ctx context.Context, job string, nominal time.Time, st *jobSnapshot) (string, error) {
	text := st.Overtaken(nominal, s.now(), s.scheduleOf(job, st))
	if text == "" {
		return "", nil
	}
	records, err := s.records(ctx, job)
	if err != nil || jobstate.IsRecorded(records, nominal) {
		return "", err
	}
	return text, nil
}
