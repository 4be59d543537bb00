// Package etcdmodel is etcd's key-value store as a value: a pure function from a state and a request
// to the next state and the reply. It is for programs that keep many states and try each order of
// events. It has no I/O, no goroutine and no clock: the caller decides when a lease expires, and
// which events of a watch arrive.
//
// Replies and errors are those that a client of etcd 3.7 gets, without the ids of cluster, member
// and term. A test compares them with the real server. Requests must be well-formed: they have keys,
// and no more operations than a server allows. There are no permissions, quotas, and puts that keep
// the value or lease of a key.
package etcdmodel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

const (
	minTTL = 2             // seconds; the server grants no less
	maxTTL = 9_000_000_000 // seconds
)

// A State is all that an etcd stores. It never changes: each method that changes something returns
// the next state. So copying a State is cheap, and states share what they have in common.
// Any number of goroutines may use it at once.
type State struct {
	rev, compacted int64
	keys           []*entry // in the order of their names
	leases         []lease  // in the order of their ids
	log            *change  // the newest; those since the last compaction
}

// An entry is a key at a revision. It never changes.
type entry struct {
	name, value                       string
	created, modified, version, lease int64
}

type lease struct{ id, ttl int64 }

// A change is one key that was put or deleted. Those of one transaction have the same revision.
type change struct {
	rev    int64
	name   string
	after  *entry // nil after a deletion
	before *entry // at the revision before, nil if there was none
	older  *change
}

// New returns an etcd without keys and leases that has reached the revision: a new one has reached 1.
func New(rev int64) State { return State{rev: rev, compacted: -1} }

// Revision returns the revision of the last change.
func (s State) Revision() int64 { return s.rev }

// Compact forgets what only earlier revisions had.
func (s State) Compact(rev int64) (State, error) {
	switch {
	case rev <= s.compacted:
		return s, rpctypes.ErrCompacted
	case rev > s.rev:
		return s, rpctypes.ErrFutureRev
	}
	var kept []change
	for c := s.log; c != nil && c.rev >= rev; c = c.older {
		if last := *c; c.rev > rev {
			kept = append(kept, last)
		} else if !slices.ContainsFunc(kept, func(k change) bool { return k.rev == rev && k.name == c.name }) {
			last.before = nil // and of several changes of a key at the revision itself, the last one stays
			kept = append(kept, last)
		}
	}
	s.compacted, s.log = rev, nil
	for _, c := range slices.Backward(kept) {
		c.older = s.log
		s.log = &c
	}
	return s, nil
}

// Grant grants a lease with an id that the caller chooses.
func (s State) Grant(id, ttl int64) (State, *pb.LeaseGrantResponse, error) {
	i, found := s.lease(id)
	switch {
	case id == 0:
		return s, nil, errors.New("grant a lease: the model does not choose ids: name one")
	case ttl > maxTTL:
		return s, nil, rpctypes.ErrLeaseTTLTooLarge
	case found:
		return s, nil, rpctypes.ErrLeaseExist
	}
	l := lease{id, max(ttl, minTTL)}
	s.leases = slices.Insert(slices.Clone(s.leases), i, l)
	return s, &pb.LeaseGrantResponse{Header: s.header(), ID: id, TTL: l.ttl}, nil
}

// KeepAlive returns the TTL that a renewal reports: 0 if the lease does not exist.
func (s State) KeepAlive(id int64) int64 {
	if i, found := s.lease(id); found {
		return s.leases[i].ttl
	}
	return 0
}

// Revoke ends a lease and deletes its keys, all at one revision. A lease that expires ends the same way.
func (s State) Revoke(id int64) (State, *pb.LeaseRevokeResponse, error) {
	i, found := s.lease(id)
	if !found {
		return s, nil, rpctypes.ErrLeaseNotFound
	}
	w := writer{State: s, begin: s}
	for _, name := range s.Attached(id) {
		w.change(name, nil)
	}
	w.leases = slices.Delete(slices.Clone(s.leases), i, i+1)
	return w.State, &pb.LeaseRevokeResponse{Header: w.header()}, nil
}

// Leases returns the ids of all leases, in their order.
func (s State) Leases() (ids []int64) {
	for _, l := range s.leases {
		ids = append(ids, l.id)
	}
	return ids
}

// Attached returns the names of the keys on a lease, in their order.
func (s State) Attached(id int64) (names []string) {
	for _, e := range s.keys {
		if e.lease == id {
			names = append(names, e.name)
		}
	}
	return names
}

// Append appends the state to b. The bytes of two states are the same if and only if no request can
// tell the states apart. What was compacted is not part of them: compact what nobody will ask for.
func (s State) Append(b []byte) []byte {
	b = appendInts(b, s.rev, s.compacted, int64(len(s.keys)), int64(len(s.leases)))
	for _, e := range s.keys {
		b = e.append(b)
	}
	for _, l := range s.leases {
		b = appendInts(b, l.id, l.ttl)
	}
	for c := s.log; c != nil; c = c.older {
		b = append(appendInts(b, c.rev, int64(len(c.name))), c.name...)
		b = c.before.append(c.after.append(b))
	}
	return b
}

func (e *entry) append(b []byte) []byte {
	if e == nil {
		return appendInts(b, 0)
	}
	b = appendInts(b, e.created, e.modified, e.version, e.lease, int64(len(e.name)), int64(len(e.value)))
	return append(append(b, e.name...), e.value...)
}

func appendInts(b []byte, ints ...int64) []byte {
	for _, n := range ints {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func (s State) header() *pb.ResponseHeader { return &pb.ResponseHeader{Revision: s.rev} }

func (s State) lease(id int64) (int, bool) {
	return slices.BinarySearchFunc(s.leases, id, func(l lease, id int64) int { return cmp.Compare(l.id, id) })
}

// at returns the keys at a revision; 0 is the present one.
func (s State) at(rev int64) []*entry {
	if rev == 0 || rev == s.rev {
		return s.keys
	}
	keys := slices.Clone(s.keys)
	for c := s.log; c != nil && c.rev > rev; c = c.older {
		keys = set(keys, c.name, c.before)
	}
	return keys
}

// set puts the entry in place of the one of that name, or removes that if the entry is nil. It
// changes keys.
func set(keys []*entry, name string, e *entry) []*entry {
	i, found := find(keys, name)
	if found {
		keys = slices.Delete(keys, i, i+1)
	}
	if e != nil {
		keys = slices.Insert(keys, i, e)
	}
	return keys
}

// get returns the key of a name, or nil.
func get(keys []*entry, name string) *entry {
	if i, found := find(keys, name); found {
		return keys[i]
	}
	return nil
}

func find(keys []*entry, name string) (int, bool) {
	return slices.BinarySearchFunc(keys, name, func(e *entry, name string) int { return strings.Compare(e.name, name) })
}

func (e *entry) kv() *mvccpb.KeyValue {
	if e == nil {
		return nil
	}
	return &mvccpb.KeyValue{
		Key: []byte(e.name), Value: []byte(e.value), Lease: e.lease,
		CreateRevision: e.created, ModRevision: e.modified, Version: e.version,
	}
}
