package protocol

import (
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Lookup reads what there is of a key, for people.
type Lookup struct {
	Layout
	Key string
	// Parts also reads what only a key with slots, or one that is shared, has.
	Parts bool
}

// Reads are the operations.
func (s Lookup) Reads() []*pb.RequestOp {
	ops := []*pb.RequestOp{
		txn.Get([]byte(s.Own(s.Key))), txn.Get([]byte(s.Note(s.Key))), txn.Get([]byte(s.Epoch())), s.waiting(s.Key),
	}
	if !s.Parts {
		return ops
	}
	sharers := txn.Range(s.Sharers(s.Key))
	sharers.GetRequestRange().CountOnly = true
	keys := s.slots().Keys()
	return append(ops, s.waiting(keyspace.SlotFamily(s.Key)), sharers, between(keys.First, keys.End))
}

// waiting counts who is in line.
func (s Lookup) waiting(line string) *pb.RequestOp {
	op := txn.Range(s.Waiting(line))
	op.GetRequestRange().CountOnly = true
	return op
}

func (s Lookup) slots() Slots { return Slots{layout: s.Layout, key: s.Key, n: MaxSlots} }

// Looked is what a Lookup reads.
type Looked struct {
	Own, Note *mvccpb.KeyValue
	EpochKey  []*mvccpb.KeyValue
	Waiting   int64 // in line for the key as a whole

	ForSlots int64 // in line for one of its slots
	Sharers  int64 // how many claims share the key
	Taken    int   // how many of its slots are held
}

// Judge takes the reply apart.
func (s Lookup) Judge(resp *pb.TxnResponse) Looked {
	ops := resp.Responses
	v := Looked{Own: first(ops[0]), Note: first(ops[1]), EpochKey: ops[2].GetResponseRange().Kvs, Waiting: ops[3].GetResponseRange().Count}
	if !s.Parts {
		return v
	}
	v.ForSlots, v.Sharers = ops[4].GetResponseRange().Count, ops[5].GetResponseRange().Count
	v.Taken = len(s.slots().claims(ops[6].GetResponseRange().Kvs))
	return v
}
