package sched

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ending is the transaction that ends the record of a run.
type ending struct {
	cmps   []clientv3.Cmp
	ops    txn.Ops
	wait   waitOps // of ops, if the tick waits again
	left   past    // the record, if it does not
	tally  tally   // of that record
	pauses txn.Op  // of the tally, if the tick does not wait again
}

// end replaces the record of a run in progress: by the waiting tick if there is a next
// attempt, and by p otherwise. It returns the record that it stored: of a tick that was
// withdrawn or replaced in the meantime, another one than p. It retries until the result is
// known or the claim is lost. The transaction is under the guard of the claim, and changes
// nothing if the record is gone. So a request that arrives late, or twice, does no harm.
func (s *Scheduler) end(a *active, value string, p past, next *ready) (past, error) {
	if s.Passthrough() {
		return p, nil
	}
	j, key := a.job, s.keys.run(a.job.Name, a.run.ID)
	waits, withdraw := s.keys.ready(j.Name, a.run.ID), s.keys.withdraw(j.Name)
	// An end has the job to itself if it depends on what ends of other runs of the job do: on
	// their failures, or on whether their ticks wait again.
	alone := a.run.Parallel && j.PauseOnFailure == 0 && !j.newestOnly(a.run.ID)
	concern, ctx := s.keys.concern(j.Name, a.run.ID, alone), context.WithoutCancel(a.ctx)
	for try := 0; ; try++ {
		done := a.counts(p, next)
		e, err := s.ending(ctx, a, value, p, next)
		if err != nil {
			done()
			if !s.wait(a, try) {
				return p, err
			}
			continue
		}
		entry := s.keys.entry(j.Name, e.left)
		var reads txn.Ops
		readWaits, readEntry := reads.Add(clientv3.OpGet(waits)), reads.Add(clientv3.OpGet(entry))
		readRun, readWithdraw := reads.Add(clientv3.OpGet(key)), reads.Add(clientv3.OpGet(withdraw))
		readPast := reads.Add(readOldest(s.keys.past(j.Name), 0))
		resp, err := txn.Concerning(a.claim.Txn(ctx), concern).If(e.cmps...).Then(e.ops...).Else(reads...).Commit()
		done()
		switch {
		case err == nil && resp.Succeeded:
			p = s.ended(a, e, p, next, txn.ReplyIn(resp))
			s.trimHistory(ctx, a, concern)
			return p, nil
		case err == nil:
			reply := txn.ReplyIn(resp)
			s.rings.learnOf(reply.Rev, reply.Range(readPast))
			switch stored, wd := reply.First(readEntry), reply.First(readWithdraw); {
			// An earlier request succeeded, and its reply was lost.
			case stored != nil:
				return decode[past](entry, stored.Value)
			case next != nil && string(reply.First(readWaits).GetValue()) == encode(next):
				return p, nil
			case string(reply.First(readRun).GetValue()) != value:
				return p, errors.New("the record of the run is gone")
			case next != nil && wd.GetModRevision() > a.claim.Revision():
				by, _ := decode[cancelling](withdraw, wd.Value) // the owner logs one that cannot be read
				p, next = next.withdrawn(p, by), nil
			}
			continue // or another run has counted a failure in the meantime
		case errors.Is(err, etcdclaims.ErrLost), errors.Is(err, etcdclaims.ErrReleased), errors.Is(err, etcdclaims.ErrClosed):
			return p, err
		}
		if !s.wait(a, try) {
			return p, err
		}
	}
}

// counts waits until no other run of the job in this process is about to count its failure,
// or the claim ends. It returns a function that lets the next one do so. Of those that have
// read one count only one could store the next.
func (a *active) counts(p past, next *ready) (done func()) {
	if a.job.PauseOnFailure > 0 && next == nil && (p.Outcome == OutcomeOK || p.failed()) {
		select {
		case a.all.counting <- struct{}{}:
			return func() { <-a.all.counting }
		case <-a.claim.Done():
		}
	}
	return func() {}
}

// ended takes over that the transaction of end succeeded, and returns the record that it
// stored.
func (s *Scheduler) ended(a *active, e ending, p past, next *ready, reply txn.Reply) past {
	j := a.job
	s.rings.learn(reply)
	if otherwise, replaced := e.wait.replaced(reply); replaced {
		p = e.left
		e.tally.told(s, j, otherwise, e.wait.pauses)
	} else if next != nil {
		s.view.put(s.keys.ready(j.Name, a.run.ID), encode(next), reply.Rev)
	}
	e.tally.told(s, j, reply, e.pauses)
	s.view.remove(s.keys.run(j.Name, a.run.ID), reply.Rev)
	return p
}

// ending returns the transaction that ends the record of a run.
func (s *Scheduler) ending(ctx context.Context, a *active, value string, p past, next *ready) (ending, error) {
	j, key := a.job, s.keys.run(a.job.Name, a.run.ID)
	e := ending{cmps: []clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", value)}, left: p}
	if next != nil && j.newestOnly(next.ID) {
		e.left = next.instead(p)
	}
	var err error
	if next == nil || j.newestOnly(next.ID) {
		if e.tally, err = s.countFailure(ctx, a, e.left); err != nil {
			return ending{}, err
		}
		e.cmps = append(e.cmps, e.tally.cmps...)
	}
	if next != nil {
		e.cmps = append(e.cmps, s.notWithdrawn(j, a.claim.Revision()))
		e.wait = s.waitAgain(j, *next, p, e.left, e.tally)
		e.ops = append(e.wait.ops, clientv3.OpDelete(key)) // in this order: see settle
	} else {
		e.ops = append(txn.Ops{clientv3.OpDelete(key)}, s.record(j, p)...)
		if p.Outcome == OutcomeOK {
			asks, err := s.askAfter(ctx, a.run)
			if err != nil {
				return ending{}, err
			}
			e.ops = append(e.ops, asks...)
		}
	}
	if a.stuck.Load() {
		e.ops = append(e.ops, clientv3.OpDelete(s.keys.stuck(j.Name, a.run.ID)))
	}
	if next == nil {
		e.pauses = e.tally.add(&e.ops)
	}
	return e, nil
}

// trimHistory deletes records beyond the limit of the history. The owner does so in its rounds,
// and does not see what other processes record.
func (s *Scheduler) trimHistory(ctx context.Context, a *active, concern string) {
	if s.owning.Load() {
		return
	}
	ops := s.rings.excessOf(s.keys.past(a.job.Name))
	if len(ops) == 0 {
		return
	}
	// If this fails, the next record deletes more.
	if resp, err := txn.Concerning(a.claim.Txn(ctx), concern).Then(ops...).Commit(); err == nil && resp.Succeeded {
		s.rings.learn(txn.ReplyIn(resp))
	}
}
