package etcdmodel

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Operation is one thing that was done to an etcd: a transaction with its reply, or a lease that was granted or ended.
type Operation struct {
	Txn              *pb.TxnRequest
	Reply            *pb.TxnResponse
	Granted, Revoked int64
}

// done is what was done last, and before.
type done struct {
	Operation
	before *done
}

// Recorded returns an etcd as a real one begins. Its states remember what has led to them.
func Recorded() State { return State{rev: 1, done: &done{}} }

func (s State) record(o Operation) State {
	if s.done != nil {
		s.done = &done{o, s.done}
	}
	return s
}

// History returns what has led to the state. What was refused is not part of it.
func (s State) History() (all []Operation) {
	for d := s.done; d != nil && d.before != nil; d = d.before {
		all = append(all, d.Operation)
	}
	slices.Reverse(all)
	return all
}
