package sched

import (
	"cmp"
	"slices"
	"strings"
	"sync"

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
	limit  int
	rev    int64    // of the last reply
	count  int      // the number of records in the last reply
	oldest []string // the keys of the oldest records in that reply, in the order of writing
}

// trimAtOnce is how many more records one transaction deletes than it adds. It is also how many of
// the newest records remain at least, up to the limit, if a clock was ahead when others were written.
const trimAtOnce = 64

// record returns the operations that add records, oldest first, and trim the history.
// Records that would be trimmed at once are not written.
func (s *Scheduler) record(job Job, all ...past) []clientv3.Op {
	all = all[max(0, len(all)-job.History):]
	prefix := s.keys.past(job.Name)
	s.rings.mu.Lock()
	defer s.rings.mu.Unlock()
	r := s.rings.of(prefix, job)
	var ops []clientv3.Op
	var keys []string
	for _, p := range all {
		p.Version, p.Job = valueVersion, job.Name
		key := s.keys.entry(job.Name, p)
		ops, keys = append(ops, clientv3.OpPut(key, encode(p))), append(keys, key)
	}
	ops = append(ops, r.trim(keys)...)
	// The ring changes only with a reply, because these operations may be in a branch
	// that is not taken.
	return append(ops, readOldest(prefix, len(all)))
}

// of returns the ring of a job; the mutex is held.
func (r *rings) of(prefix string, job Job) *ring {
	is := r.byPrefix[prefix]
	if is == nil {
		is = &ring{}
		r.byPrefix[prefix] = is
	}
	is.limit = job.History
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

// readOldest reads, for learn, the records to delete next.
func readOldest(prefix string, added int) clientv3.Op {
	return clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(int64(trimAtOnce+added)))
}

// recordWithdrawn returns the operations that remove waiting ticks and add a record for
// each, unless the tick has begun. It also returns the transaction of each tick.
func (s *Scheduler) recordWithdrawn(job Job, ticks []*waiter, records []past) (ops txn.Ops, each []txn.Op) {
	prefix := s.keys.past(job.Name)
	s.rings.mu.Lock()
	defer s.rings.mu.Unlock()
	var keys []string
	var takeBack []clientv3.Op
	for i, w := range ticks {
		p := records[i]
		p.Version, p.Job = valueVersion, job.Name
		keys = append(keys, s.keys.entry(job.Name, p))
		takeBack = append(takeBack, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(w.key), "=", w.rev)},
			[]clientv3.Op{clientv3.OpDelete(w.key), clientv3.OpPut(keys[i], encode(p))}, nil))
	}
	ops = s.rings.of(prefix, job).trim(keys)
	for _, op := range takeBack {
		each = append(each, ops.Add(op))
	}
	ops.Add(readOldest(prefix, len(ticks)))
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
	ops := ring.trim(nil)
	if len(ops) == 0 {
		return nil
	}
	return append(ops, readOldest(prefix, 0))
}

// mostTrims is how many operations of one transaction trim a history at most. One is enough
// unless clocks differ or records were written at the same time.
const mostTrims = 8

// trim returns the operations that delete the excess records when keys are added. Those that
// were written first go. Where they follow each other in the order of keys, one range deletes
// them, unless a clock was put back, or is behind another, and newer keys are within that range.
func (r *ring) trim(keys []string) (ops []clientv3.Op) {
	excess := r.oldest[:min(len(r.oldest), max(0, r.count+len(keys)-r.limit))]
	if len(excess) == 0 {
		return nil
	}
	var run []string
	end := func() {
		switch n := len(run); {
		case n == 0:
		// Other decisions of the same request can add records of the same time.
		case len(keys) == 0 || timeOf(slices.Min(keys)) > timeOf(run[n-1]):
			ops = append(ops, clientv3.OpDelete(run[0], clientv3.WithRange(run[n-1]+"\x00")))
		default:
			for _, old := range run {
				if !slices.Contains(keys, old) {
					ops = append(ops, clientv3.OpDelete(old))
				}
			}
		}
		run = nil
	}
	for _, key := range slices.Sorted(slices.Values(r.oldest)) {
		if slices.Contains(excess, key) {
			run = append(run, key)
		} else {
			end()
		}
	}
	end()
	return ops[:min(len(ops), mostTrims)]
}

// timeOf returns the part of a record's key that is its time.
func timeOf(key string) string {
	at, _, _ := strings.Cut(key[strings.LastIndexByte(key, '/')+1:], "-")
	return at
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
	if is == nil || !(rev > is.rev || rev == is.rev && int(got.Count) > is.count) {
		return
	}
	is.rev = rev
	is.count, is.oldest = int(got.Count), is.oldest[:0:0]
	// Of two clocks the one behind writes records whose keys are less than those of before.
	for _, kv := range slices.SortedStableFunc(slices.Values(got.Kvs), byCreation) {
		is.oldest = append(is.oldest, string(kv.Key))
	}
	if is.count > is.limit {
		r.over[prefix] = is
	} else {
		delete(r.over, prefix)
	}
}
