package sched

import (
	"cmp"
	"slices"
	"sync"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// rings trims the histories of jobs. Each transaction that adds records also reads the
// oldest ones, so that the next transaction knows which records to delete.
type rings struct {
	prefix   int // length of the keys of byPrefix
	mu       sync.Mutex
	byPrefix map[string]*ring
	over     map[string]*ring // those with more records than their limit
}

type ring struct {
	tick.History
	rev int64 // of the last reply
}

// history returns the history of a job, as it is known.
func (s *Scheduler) history(job Job) tick.History {
	s.rings.mu.Lock()
	defer s.rings.mu.Unlock()
	return s.rings.of(s.keys.Records(job.Name), job).History
}

// record returns the operations that add records, oldest first, and trim the history.
func (s *Scheduler) record(job Job, all ...past) []clientv3.Op {
	return txn.OpsOf(s.history(job).Record(s.keys, job.Name, all...))
}

// of returns the ring of a job; the mutex is held.
func (r *rings) of(prefix string, job Job) *ring {
	is := r.byPrefix[prefix]
	if is == nil {
		is = &ring{}
		r.byPrefix[prefix] = is
	}
	is.Limit = job.History
	return is
}

// forget drops the ring of a job that was removed. It is learned anew if it is used again.
func (r *rings) forget(prefix string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byPrefix, prefix)
	delete(r.over, prefix)
}

// forgetAll drops what was learned before etcd was restored: revisions have begun anew.
func (r *rings) forgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.byPrefix)
	clear(r.over)
}

// recordWithdrawn returns the operations that remove waiting ticks and add a record for
// each, unless the tick has begun. It also returns the transaction of each tick.
func (s *Scheduler) recordWithdrawn(job Job, ticks []*waiter, records []past) (ops txn.Ops, each []txn.Op) {
	var keys []string
	var takeBack []clientv3.Op
	for i, w := range ticks {
		p := records[i]
		p.Version, p.Job = valueVersion, job.Name
		keys = append(keys, s.keys.Entry(job.Name, p))
		takeBack = append(takeBack, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(w.key), "=", w.rev)},
			[]clientv3.Op{clientv3.OpDelete(w.key), clientv3.OpPut(keys[i], encode(p))}, nil))
	}
	ops = txn.OpsOf(s.history(job).Trim(keys))
	for _, op := range takeBack {
		each = append(each, ops.Add(op))
	}
	ops = append(ops, txn.OpsOf([]*pb.RequestOp{s.keys.ReadOldest(job.Name, len(ticks))})...)
	return ops, each
}

// excess returns the operations that trim the histories with more records than their
// limit, one list per history and at most the given number of lists. A history exceeds its
// limit after a transaction that did not know all its records: the first of a process, or
// one beside another.
func (r *rings) excess(most int) (trims [][]clientv3.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for prefix := range r.over {
		if len(trims) == most {
			break
		}
		if ops := r.cut(prefix); len(ops) > 0 {
			trims = append(trims, ops)
		}
	}
	return trims
}

// excessOf is excess for one history.
func (r *rings) excessOf(prefix string) []clientv3.Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut(prefix)
}

// cut returns the operations that trim a history, if it exceeds its limit. The mutex is held.
func (r *rings) cut(prefix string) []clientv3.Op {
	ring := r.over[prefix]
	delete(r.over, prefix)
	if ring == nil {
		return nil
	}
	ops := ring.Trim(nil)
	if len(ops) == 0 {
		return nil
	}
	return txn.OpsOf(append(ops, tick.ReadOldestOf(prefix, 0)))
}

// byCreation orders records as they were written, whatever the clocks were.
func byCreation(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) }

// learn updates the rings from the reply to a transaction. Of the histories that were read
// together the last has the most records.
func (r *rings) learn(reply txn.Reply) {
	for got := range reply.Reads() {
		r.learnOf(reply.Rev, got)
	}
}

// learnOf updates a ring from the reply to readOldest. A reply that comes late is of the past.
func (r *rings) learnOf(rev int64, got *pb.RangeResponse) {
	if len(got.Kvs) == 0 || len(got.Kvs[0].Key) < r.prefix {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	prefix := string(got.Kvs[0].Key[:r.prefix])
	is := r.byPrefix[prefix]
	if is == nil || !(rev > is.rev || rev == is.rev && int(got.Count) > is.Count) {
		return
	}
	is.rev = rev
	is.Count, is.Oldest = int(got.Count), is.Oldest[:0:0]
	// Of two clocks the one behind writes records whose keys are less than those of before.
	for _, kv := range slices.SortedStableFunc(slices.Values(got.Kvs), byCreation) {
		is.Oldest = append(is.Oldest, string(kv.Key))
	}
	if is.Count > is.Limit {
		r.over[prefix] = is
	} else {
		delete(r.over, prefix)
	}
}
