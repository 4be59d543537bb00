package sched

import (
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// rings are the histories of jobs, as far as they are longer than they should be:
// every transaction that adds a record says, for the next, what to delete.
type rings struct {
	prefix   int // length of the keys of byPrefix
	mu       sync.Mutex
	byPrefix map[string]*ring
}

type ring struct {
	limit  int
	excess []string // keys of records that are too many
}

// trimAtOnce is how many records one transaction deletes.
const trimAtOnce = 8

// add is what records that something became of a tick.
func (s *Scheduler) add(job Job, p past) []clientv3.Op {
	p.Version, p.Job = valueVersion, job.Name
	prefix := s.keys.past(job.Name)
	s.rings.mu.Lock()
	defer s.rings.mu.Unlock()
	r := s.rings.byPrefix[prefix]
	if r == nil {
		r = &ring{}
		s.rings.byPrefix[prefix] = r
	}
	r.limit = job.History
	key := s.keys.entry(job.Name, p)
	ops := []clientv3.Op{clientv3.OpPut(key, encode(p))}
	for _, old := range r.excess {
		if old != key {
			ops = append(ops, clientv3.OpDelete(old))
		}
	}
	// They stay in excess until a reply says what is left: this record may stand in
	// the branch that is not taken.
	return append(ops, clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(trimAtOnce)))
}

// learn takes in what transactions with such records say about the histories.
func (r *rings) learn(ops []*pb.ResponseOp) {
	for _, op := range ops {
		if inner := op.GetResponseTxn(); inner != nil {
			r.learn(inner.Responses)
			continue
		}
		got := op.GetResponseRange()
		if got == nil || len(got.Kvs) == 0 || len(got.Kvs[0].Key) < r.prefix {
			continue
		}
		r.mu.Lock()
		if ring := r.byPrefix[string(got.Kvs[0].Key[:r.prefix])]; ring != nil {
			ring.excess = nil
			for i := 0; i < len(got.Kvs) && i < int(got.Count)-ring.limit; i++ {
				ring.excess = append(ring.excess, string(got.Kvs[i].Key))
			}
		}
		r.mu.Unlock()
	}
}
