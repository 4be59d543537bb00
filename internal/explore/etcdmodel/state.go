// Package etcdmodel is etcd's key-value store as a value: a pure function from a state and a request
// to the next state and the reply. It is for programs that keep many states and try each order of
// events. It has no I/O, no goroutine and no clock: the caller decides when a lease expires, and
// which events of a watch arrive.
//
// Replies and errors are those of etcd 3.7, which a test compares, without what no request of this
// project asks for: versions of keys, conditions on them, puts that keep a value or lease, and orders
// other than by name and CreateRevision. A transaction that changes a key twice is always refused.
// Requests must be well-formed, and leases long enough for etcd. Replies share parts: nobody may change them.
package etcdmodel

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/etcdclaims/claims/internal/keyspace"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A State is all that an etcd stores. It never changes: each method that changes something returns
// the next state. Any number of goroutines may use it at once.
type State struct {
	rev, compacted int64
	keys           []*Key  // in the order of their names
	leases         []lease // in the order of their ids
	log            *change // the newest; those since the last compaction
	done           *done   // or nil
}

// Key is a key as it is stored, with its revisions. It never changes.
type Key struct {
	Name, Value              string
	Created, Modified, Lease int64
}

type lease struct{ id, ttl int64 }

// A change is one key that was put or deleted. Those of one transaction have the same revision.
type change struct {
	rev           int64
	name          string
	before, after *Key // nil while the key does not exist
	older         *change
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
	s.keys, _ = set(slices.Clone(s.keys), k.Name, &k)
	return s
}

// Holds reports whether all conditions hold.
func (s State) Holds(all []*pb.Compare) bool {
	return !slices.ContainsFunc(all, func(c *pb.Compare) bool { return !s.holds(c) })
}

// Compact forgets what only earlier revisions had, and the events of the revision.
func (s State) Compact(rev int64) State {
	s.compacted = max(s.compacted, min(rev, s.rev))
	s.log = s.log.since(s.compacted)
	return s
}

func (c *change) since(rev int64) *change {
	if c == nil || c.rev <= rev {
		return nil
	}
	kept := *c
	kept.older = c.older.since(rev)
	return &kept
}

// Grant grants a lease with an id that the caller chooses.
func (s State) Grant(id, ttl int64) (State, error) {
	i, found := s.lease(id)
	if found {
		return s, rpctypes.ErrLeaseExist
	}
	s.leases = slices.Insert(slices.Clone(s.leases), i, lease{id, ttl})
	return s.record(Operation{Granted: id}), nil
}

// KeepAlive returns the TTL that a renewal reports: 0 if the lease does not exist.
func (s State) KeepAlive(id int64) int64 {
	if i, found := s.lease(id); found {
		return s.leases[i].ttl
	}
	return 0
}

// Leases returns the ids of all leases, in their order.
func (s State) Leases() (ids []int64) {
	for _, l := range s.leases {
		ids = append(ids, l.id)
	}
	return ids
}

// Revoke ends a lease and deletes its keys, all at one revision. A lease that expires ends the same way.
func (s State) Revoke(id int64) (State, error) {
	i, found := s.lease(id)
	if !found {
		return s, rpctypes.ErrLeaseNotFound
	}
	w := writer{State: s, begin: s}
	for _, k := range s.keys {
		if k.Lease == id {
			_ = w.change(k.Name, nil) // each name is there once
		}
	}
	w.leases = slices.Delete(slices.Clone(s.leases), i, i+1)
	return w.record(Operation{Revoked: id}), nil
}

func (s State) lease(id int64) (int, bool) {
	return slices.BinarySearchFunc(s.leases, id, func(l lease, id int64) int { return cmp.Compare(l.id, id) })
}

// Names change the names of clients: Text appends a name or value of a key to b, Lease returns the id of
// a lease. Number appends a revision, or the id of a lease. The zero value changes nothing.
type Names struct {
	Text   func(b []byte, text string) []byte
	Lease  func(id int64) int64
	Number func(b []byte, n int64) []byte
}

// Append appends the state to b, as it would be if all requests had come with other names. The bytes
// of two states are the same if and only if no request can tell the states apart. What was compacted
// is not part of them: compact what nobody will ask for. The end of a lease has events in the order of
// the old names.
func (s State) Append(b []byte, names Names) []byte {
	b = names.numbers(appendInts(b, int64(len(s.keys)), int64(len(s.leases))), s.rev, s.compacted)
	type part struct{ from, to int }
	var some [32]part
	leases, parts, begin := s.leases, some[:0], len(b)
	for _, k := range s.keys {
		from := len(b)
		b = names.append(b, k.Name, k)
		parts = append(parts, part{from, len(b)})
	}
	if names.Text != nil {
		name := func(p part) []byte { return b[p.from+4:][:binary.BigEndian.Uint32(b[p.from:])] }
		slices.SortFunc(parts, func(p, q part) int { return bytes.Compare(name(p), name(q)) })
		end := len(b)
		for _, p := range parts {
			b = append(b, b[p.from:p.to]...)
		}
		b, leases = append(b[:begin], b[end:]...), slices.Clone(leases)
		for i := range leases {
			leases[i].id = names.Lease(leases[i].id)
		}
		slices.SortFunc(leases, func(l, m lease) int { return cmp.Compare(l.id, m.id) })
	}
	for _, l := range leases {
		b = names.numbers(b, l.id, l.ttl)
	}
	for c := s.log; c != nil; c = c.older {
		b = names.append(names.append(names.numbers(b, c.rev), c.name, c.after), c.name, c.before)
	}
	return b
}

// append appends a key, which may be none: a text with its length in four bytes before it, and numbers.
func (n Names) append(b []byte, name string, k *Key) []byte {
	if k == nil {
		k = &Key{}
	}
	lease := k.Lease
	if n.Text != nil && lease != 0 {
		lease = n.Lease(lease)
	}
	for _, text := range [...]string{name, k.Value} {
		at := len(b)
		if b = append(b, 0, 0, 0, 0); n.Text != nil {
			b = n.Text(b, text)
		} else {
			b = append(b, text...)
		}
		binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	}
	return n.numbers(b, k.Created, k.Modified, lease)
}

func (n Names) numbers(b []byte, all ...int64) []byte {
	if n.Number == nil {
		return appendInts(b, all...)
	}
	for _, number := range all {
		b = n.Number(b, number)
	}
	return b
}

func appendInts(b []byte, ints ...int64) []byte {
	for _, n := range ints {
		b = binary.AppendVarint(b, n)
	}
	return b
}
