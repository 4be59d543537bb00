package sched

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// end replaces the record of a run in progress: by the waiting tick if there is a next
// attempt, and by p otherwise. It returns the record that it stored: of a tick that was
// withdrawn or replaced in the meantime, another one than p. It retries until the result is
// known, ctx ends, or the claim is lost.
func (x *runner) end(ctx context.Context, a *active, p past, next *ready) (past, error) {
	if x.claims.Passthrough() {
		return p, nil
	}
	j := a.job
	e := &tick.End{Keys: x.keys, Job: j.rules, Run: a.run, Value: a.value, Began: a.claim.Revision(), Past: p, Next: next}
	// An end has the job to itself if it depends on what ends of other runs of the job do: on
	// their failures, or on whether their ticks wait again.
	alone := a.run.Parallel && j.PauseOnFailure == 0 && !e.Job.NewestOnly(a.run.ID)
	_, concern := x.keys.SlotsOf(a.run)
	concern = append(concern, x.keys.Concern(j.Name, a.run.ID, alone))
	for try := 0; ; try++ {
		ended, known, err := x.tryEnd(ctx, a, e, concern)
		switch {
		case ended.Now:
			x.trimHistory(ctx, a, concern)
			return ended.Past, nil
		case ended.Done:
			return ended.Past, err
		case known && err == nil:
			continue // with another record, or another run has counted a failure in the meantime
		case known, errors.Is(err, etcdclaims.ErrLost), errors.Is(err, etcdclaims.ErrReleased), errors.Is(err, etcdclaims.ErrClosed):
			return e.Past, err
		}
		if !retry.PauseUnless(ctx, a.claim.Done(), try) || a.claim.Err() != nil {
			return e.Past, err
		}
	}
}

// tryEnd sends the step once. It reports whether the outcome is known.
func (x *runner) tryEnd(ctx context.Context, a *active, e *tick.End, concern []string) (ended tick.Ended, known bool, err error) {
	j := a.job
	defer a.counts(e)()
	if err := x.countEnd(ctx, j, e); err != nil {
		return ended, false, err
	}
	if e.Next == nil || e.Job.NewestOnly(a.run.ID) {
		followers, err := x.catalog.readFollowing(ctx, j.Name)
		if err != nil {
			return ended, false, err
		}
		e.Followers = func(string) []tick.Follower { return followers }
	}
	e.Stuck, e.History = a.stuck.Load(), x.history(j)
	resp, err := txn.CommitMessage(txn.Concerning(a.claim.Txn(ctx), concern...), e.Build())
	if err != nil {
		return ended, false, err
	}
	reply := txn.ReplyIn(resp)
	ended, err = e.Judge(reply)
	if !ended.Now {
		x.histories.LearnOf(reply.Rev, reply.Range(ended.History))
		return ended, true, err
	}
	x.histories.Learn(reply)
	if ended.Waits != nil {
		x.view.PutTick(*ended.Waits, reply.Rev)
	}
	if ended.Paused {
		x.paused(j, e.Tally)
	}
	x.removed(a.run, e.Began, reply.Rev)
	return ended, true, nil
}

// counts waits until no other run of the job in this process is about to count its failure,
// or the claim ends. It returns a function that lets the next one do so. Of those that have
// read one count only one could store the next.
func (a *active) counts(e *tick.End) (done func()) {
	if e.Tallies() && e.Next == nil {
		select {
		case a.counting <- struct{}{}:
			return func() { <-a.counting }
		case <-a.claim.Done():
		}
	}
	return func() {}
}

// trimHistory deletes records beyond the limit of the history. The owner does so in its rounds,
// and does not see what other processes record.
func (x *runner) trimHistory(ctx context.Context, a *active, concern []string) {
	if x.owning.Load() {
		return
	}
	ops := x.histories.ExcessOf(x.keys.Records(a.job.Name))
	if len(ops) == 0 {
		return
	}
	// If this fails, the next record deletes more.
	resp, err := txn.CommitMessage(txn.Concerning(a.claim.Txn(ctx), concern...), &pb.TxnRequest{Success: ops})
	if err == nil && resp.Succeeded {
		x.histories.Learn(txn.ReplyIn(resp))
	}
}

// countEnd sets the tally of a run that ends.
func (x *runner) countEnd(ctx context.Context, j Job, e *tick.End) error {
	e.Tally = tick.Tally{}
	if !e.Tallies() {
		return nil
	}
	resp, err := retry.Get(ctx, core.Of(x.claims).KV(), readTime, clientv3.OpGet(x.keys.Fail(j.Name)))
	if err != nil {
		return err
	}
	var kv *mvccpb.KeyValue
	if len(resp.Kvs) > 0 {
		kv = resp.Kvs[0]
	}
	e.Tally = x.keys.CountEnd(e.Job, x.readFailures(j.Name, kv), e.Left(), e.Began) // also if they cannot be read
	return nil
}
