package sched

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// ending is the transaction that ends the record of a run.
type ending struct {
	cmps   []clientv3.Cmp
	ops    []clientv3.Op
	left   past // the record, if the tick does not wait again
	pauses int  // the index of the operation that pauses the job; 0 if there is none
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
	ctx := txn.Concerning(context.WithoutCancel(a.ctx), s.keys.concern(j.Name, a.run.ID, alone))
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
		resp, err := a.claim.Txn(ctx).If(e.cmps...).Then(e.ops...).
			Else(clientv3.OpGet(waits), clientv3.OpGet(entry), clientv3.OpGet(key), clientv3.OpGet(withdraw)).Commit()
		done()
		switch {
		case err == nil && resp.Succeeded:
			return s.ended(a, e, p, next, resp), nil
		case err == nil:
			there := func(i int) *mvccpb.KeyValue {
				if kvs := resp.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
					return kvs[0]
				}
				return new(mvccpb.KeyValue)
			}
			switch stored, wd := there(1), there(3); {
			// An earlier request succeeded, and its reply was lost.
			case stored.ModRevision != 0:
				return decode[past](entry, stored.Value)
			case next != nil && string(there(0).Value) == encode(next):
				return p, nil
			case string(there(2).Value) != value:
				return p, errors.New("the record of the run is gone")
			case next != nil && wd.ModRevision > a.claim.Revision():
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
	if a.job.PauseOnFailure > 0 && next == nil && (p.Outcome == OutcomeOK || p.Outcome.bad()) {
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
func (s *Scheduler) ended(a *active, e ending, p past, next *ready, resp *clientv3.TxnResponse) past {
	j, at := a.job, resp.Header.Revision
	s.rings.learn(at, resp.Responses)
	inner := resp.Responses[0].GetResponseTxn()
	if waits := inner == nil || inner.Succeeded; next != nil && waits {
		s.view.put(s.keys.ready(j.Name, a.run.ID), encode(next), at)
	} else if next != nil {
		p = e.left
	}
	s.view.remove(s.keys.run(j.Name, a.run.ID), at)
	if e.pauses > 0 && resp.Responses[e.pauses].GetResponseTxn().Succeeded {
		s.log.Warn("job paused: too many of its runs failed in a row", zap.String("job", j.Name),
			zap.String("key", s.keys.paused(j.Name)), zap.Int("failures", j.PauseOnFailure), zap.String("error", p.Error))
	}
	return p
}

// ending returns the transaction that ends the record of a run.
func (s *Scheduler) ending(ctx context.Context, a *active, value string, p past, next *ready) (ending, error) {
	j, key := a.job, s.keys.run(a.job.Name, a.run.ID)
	e := ending{cmps: []clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", value)}, left: p}
	if next != nil {
		e.cmps = append(e.cmps, s.notWithdrawn(j, a.claim.Revision()))
		ops, left := s.waitAgain(j, *next, p)
		e.ops, e.left = append(ops, clientv3.OpDelete(key)), left // in this order: see settle
	} else {
		e.ops = append([]clientv3.Op{clientv3.OpDelete(key)}, s.record(j, p)...)
		if err := s.countFailure(ctx, &e, a, p); err != nil {
			return ending{}, err
		}
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
	return e, nil
}

// countFailure counts runs that fail in a row, and pauses the job when PauseOnFailure
// is reached. If the definition of the job was removed since the run began, the run does not
// count, also if the job has been defined again.
func (s *Scheduler) countFailure(ctx context.Context, e *ending, a *active, p past) error {
	j := a.job
	if j.PauseOnFailure == 0 || p.Outcome != OutcomeOK && !p.Outcome.bad() {
		return nil
	}
	key := s.keys.fail(j.Name)
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
	defer cancel()
	resp, err := s.claims.KV().Get(ctx, key)
	if err != nil {
		return err
	}
	var f failures
	rev := int64(0)
	if len(resp.Kvs) > 0 {
		if f, err = decode[failures](key, resp.Kvs[0].Value); err != nil {
			// It may be of a later version. The run ends all the same.
			s.log.Error("failures not counted: their record cannot be read", zap.String("job", j.Name), zap.String("key", key), zap.Error(err))
			return nil
		}
		rev = resp.Kvs[0].ModRevision
	}
	e.cmps = append(e.cmps, clientv3.Compare(clientv3.ModRevision(key), "=", rev))
	f.Version, f.InARow = valueVersion, f.InARow+1
	var counts []clientv3.Cmp
	if j.defined != 0 {
		created := clientv3.CreateRevision(s.keys.definition(j.Name))
		counts = []clientv3.Cmp{clientv3.Compare(created, ">", 0), clientv3.Compare(created, "<", a.claim.Revision())}
	}
	switch {
	case p.Outcome == OutcomeOK:
		e.ops = append(e.ops, clientv3.OpDelete(key))
	case f.InARow < j.PauseOnFailure:
		e.ops = append(e.ops, clientv3.OpTxn(counts, []clientv3.Op{clientv3.OpPut(key, encode(f))}, nil))
	default:
		note := fmt.Sprintf("%d runs failed in a row; the last: %s", f.InARow, p.Error)
		stop := encode(pause{Version: valueVersion, By: "sched", Note: limitText(note), At: p.Ended})
		paused := s.keys.paused(j.Name)
		e.ops = append(e.ops, clientv3.OpDelete(key),
			clientv3.OpTxn(append(counts, absent(paused)), []clientv3.Op{clientv3.OpPut(paused, stop)}, nil))
		e.pauses = len(e.ops) - 1
	}
	return nil
}
