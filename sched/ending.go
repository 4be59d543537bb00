package sched

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
)

// end replaces the record of a run in progress: by the waiting tick if there is a next
// attempt, and by p otherwise. It returns the record that it stored: of a tick that was
// withdrawn or replaced in the meantime, another one than p. It retries until the result is
// known or the claim is lost.
func (s *Scheduler) end(a *active, value string, p past, next *ready) (past, error) {
	if s.Passthrough() {
		return p, nil
	}
	j := a.job
	e := &tick.End{Keys: s.keys, Job: j.rules(), Run: a.run, Value: value, Began: a.claim.Revision(), Past: p, Next: next}
	// An end has the job to itself if it depends on what ends of other runs of the job do: on
	// their failures, or on whether their ticks wait again.
	alone := a.run.Parallel && j.PauseOnFailure == 0 && !e.Job.NewestOnly(a.run.ID)
	concern, ctx := s.keys.Concern(j.Name, a.run.ID, alone), context.WithoutCancel(a.ctx)
	for try := 0; ; try++ {
		ended, known, err := s.tryEnd(ctx, a, e, concern)
		switch {
		case ended.Now:
			s.trimHistory(ctx, a, concern)
			return ended.Past, nil
		case ended.Done:
			return ended.Past, err
		case known && err == nil:
			continue // with another record, or another run has counted a failure in the meantime
		case known, errors.Is(err, etcdclaims.ErrLost), errors.Is(err, etcdclaims.ErrReleased), errors.Is(err, etcdclaims.ErrClosed):
			return e.Past, err
		}
		if !s.wait(a, try) {
			return e.Past, err
		}
	}
}

// tryEnd sends the step once. It reports whether the outcome is known.
func (s *Scheduler) tryEnd(ctx context.Context, a *active, e *tick.End, concern string) (ended tick.Ended, known bool, err error) {
	j := a.job
	defer a.counts(e)()
	if err := s.countEnd(ctx, j, e); err != nil {
		return ended, false, err
	}
	if e.Next == nil && e.Past.Outcome == OutcomeOK {
		asks, err := s.askAfter(ctx, a.run)
		if err != nil {
			return ended, false, err
		}
		if len(asks) > 0 {
			e.Asks = txn.Then(asks...).Success
		}
	}
	e.Stuck, e.History = a.stuck.Load(), s.history(j)
	cmps, then, els := txn.Operations(e.Build())
	resp, err := txn.Concerning(a.claim.Txn(ctx), concern).If(cmps...).Then(then...).Else(els...).Commit()
	if err != nil {
		return ended, false, err
	}
	reply := txn.ReplyIn(resp)
	ended, err = e.Judge(reply)
	if !ended.Now {
		s.histories.LearnOf(reply.Rev, reply.Range(ended.History))
		return ended, true, err
	}
	s.histories.Learn(reply)
	if ended.Waits != nil {
		s.view.PutTick(*ended.Waits, reply.Rev)
	}
	if ended.Paused {
		s.paused(j, e.Tally)
	}
	s.view.Remove(s.keys.Run(j.Name, a.run.ID), reply.Rev)
	return ended, true, nil
}

// counts waits until no other run of the job in this process is about to count its failure,
// or the claim ends. It returns a function that lets the next one do so. Of those that have
// read one count only one could store the next.
func (a *active) counts(e *tick.End) (done func()) {
	if e.Tallies() && e.Next == nil {
		select {
		case a.all.counting <- struct{}{}:
			return func() { <-a.all.counting }
		case <-a.claim.Done():
		}
	}
	return func() {}
}

// trimHistory deletes records beyond the limit of the history. The owner does so in its rounds,
// and does not see what other processes record.
func (s *Scheduler) trimHistory(ctx context.Context, a *active, concern string) {
	if s.owning.Load() {
		return
	}
	ops := s.histories.ExcessOf(s.keys.Records(a.job.Name))
	if len(ops) == 0 {
		return
	}
	// If this fails, the next record deletes more.
	if resp, err := txn.Concerning(a.claim.Txn(ctx), concern).Then(ops...).Commit(); err == nil && resp.Succeeded {
		s.histories.Learn(txn.ReplyIn(resp))
	}
}
