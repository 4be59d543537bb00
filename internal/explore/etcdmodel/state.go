// Package etcdmodel is etcd's key-value store as a value: a pure function from a state and a request to the next state
// and the reply. It is for programs that keep many states and try each order of events. It has no I/O, no goroutine and
// no clock: the caller decides when a lease expires, and which events of a watch arrive.
//
// Replies and errors are those of etcd 3.7, which a test compares, without what no request asks for that is sent here:
// versions of keys, conditions on them, puts that keep a value or lease, the key before a put or a deletion, and orders
// other than by name and CreateRevision. A transaction that changes a key twice is always refused. Requests must be
// well-formed. Replies share parts: nobody may change them.
package etcdmodel

import (
	"slices"

	"github.com/etcdclaims/claims/internal/explore/values"
	"github.com/etcdclaims/claims/internal/keyspace"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A State is all that an etcd stores. It never changes: each method that changes something returns the next state.
type State struct {
	rev, compacted int64
	keys           []*Key      // in the order of their names
	leases         []int64     // ids, in their order
	log            *change     // the newest; those since the last compaction
	done           []Operation // that led here, if it is recorded; else nil
}

// Key is a key as it is stored, or its name and the revision Modified at which it was deleted. It never changes.
type Key struct {
	Name, Value              string
	Created, Modified, Lease int64
}

// A change is one key that was put or deleted. Those of one transaction have the same revision.
type change struct {
	*Key
	before *Key
	older  *change
}

// New returns an etcd without keys and leases that has reached the revision: a new one has reached 1.
func New(rev int64) State { return State{rev: rev} }

// Revision returns the revision of the last change.
func (s State) Revision() int64 { return s.rev }

// Under returns the keys with a prefix, in the order of their names.
func (s State) Under(prefix string) []*Key {
	return within(s.keys, []byte(prefix), []byte(keyspace.RangeEnd(prefix)))
}

// Get returns the key of a name. Modified is 0 if the key does not exist.
func (s State) Get(name string) Key {
	if i, found := find(s.keys, name); found {
		return *s.keys[i]
	}
	return Key{}
}

// With returns the state with a key as it is given, which no transaction has put: as a restore may leave it.
func (s State) With(k Key) State {
	s.keys, _ = set(slices.Clone(s.keys), &k, true)
	return s
}

// Compact forgets what only earlier revisions had, and the events of the revision.
func (s State) Compact(rev int64) State {
	s.compacted = max(s.compacted, min(rev, s.rev))
	s.log = s.log.since(s.compacted)
	return s
}

func (c *change) since(rev int64) *change {
	if c == nil || c.Modified <= rev {
		return nil
	}
	return &change{c.Key, c.before, c.older.since(rev)}
}

// Grant grants a lease with an id that the caller chooses. How long it lives concerns the caller alone.
func (s State) Grant(id int64) (State, error) {
	i, found := slices.BinarySearch(s.leases, id)
	if found {
		return s, rpctypes.ErrLeaseExist
	}
	s.leases = slices.Insert(slices.Clone(s.leases), i, id)
	return s.record(Operation{Granted: id}), nil
}

// Lives reports whether there is a lease.
func (s State) Lives(id int64) bool { return slices.Contains(s.leases, id) }

// Leases returns the ids of all leases, in their order. Nobody may change them.
func (s State) Leases() []int64 { return s.leases }

// Revoke ends a lease and deletes its keys, all at one revision. A lease that expires ends the same way.
func (s State) Revoke(id int64) (State, error) {
	i, found := slices.BinarySearch(s.leases, id)
	if !found {
		return s, rpctypes.ErrLeaseNotFound
	}
	w := writer{State: s, begin: s}
	for _, k := range s.keys {
		if k.Lease == id {
			_ = w.change(&Key{Name: k.Name}, false) // each name is there once
		}
	}
	w.leases = slices.Delete(slices.Clone(s.leases), i, i+1)
	return w.record(Operation{Revoked: id}), nil
}

// Walk gives a sink parts, and calls end after each: one for each key and lease, and one for the rest. Those of two
// states are the same if and only if no request can tell the states apart: compact what nobody will ask for.
func (s State) Walk(to values.Sink, end func()) {
	key := func(k *Key) {
		to.Text(k.Name)
		to.Text(k.Value)
		for _, n := range [...]int64{k.Created, k.Modified, k.Lease} {
			to.Int(n)
		}
	}
	for _, n := range [...]int64{int64(len(s.keys)), int64(len(s.leases)), s.rev, s.compacted} {
		to.Int(n)
	}
	for c := s.log; c != nil; c = c.older {
		key(c.Key)
		key(c.before)
	}
	end()
	for _, k := range s.keys {
		key(k)
		end()
	}
	for _, id := range s.leases {
		to.Int(id)
		end()
	}
}

// Operation is one thing that was done to an etcd: a transaction with its reply, or a lease that was granted or ended.
type Operation struct {
	Txn              *pb.TxnRequest
	Reply            *pb.TxnResponse
	Granted, Revoked int64
}

// Recorded returns an etcd as a real one begins. Its states remember what has led to them.
func Recorded() State { return State{rev: 1, done: []Operation{}} }

func (s State) record(o Operation) State {
	if s.done != nil {
		s.done = append(slices.Clip(s.done), o)
	}
	return s
}

// History returns what has led to the state. What was refused is not part of it.
func (s State) History() []Operation { return s.done }
