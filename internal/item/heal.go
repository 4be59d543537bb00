package item

import (
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Heal makes an item wait that has no key, where it was enqueued, and a dead letter dead again. What its
// state said is lost. The place is put with it, under the condition that it is as it was: so a request
// that comes late does not make an item of it twice.
type Heal struct {
	Keys
	ID      string
	Content Content
	Rev     int64 // of the content
	Placed  Place
	PlaceAt int64 // ModRevision of its place; 0: it has none
	Max     int   // attempts
	Lane    int   // that the item has; 0: none
	Now     time.Time
}

// Build returns the request.
func (s Heal) Build() *pb.TxnRequest {
	c := s.Content
	st := State{
		Version: Version, ID: s.ID, Given: c.Given, Seq: c.Seq, Priority: s.PriorityOf(c.Rank, c.Vesting),
		Vesting: c.Vesting, Max: s.Max, Key: c.Key, Lane: s.Lane,
	}
	ops := s.requeue(st, Place{Verb: "heal"}, s.Now)
	if strings.HasPrefix(s.Keys.Placed(s.Placed), s.Dead()) {
		ops = s.bury(st, Place{Verb: "heal"}, "the item's dead letter was missing, and with it what it said", s.Now)
	}
	return &pb.TxnRequest{
		Compare: []*pb.Compare{unmoved(s.Keys.Content(s.ID), s.Rev), unmoved(s.Place(s.ID), s.PlaceAt)},
		Success: append(ops, s.Activate()),
	}
}

// FreeSlot frees a slot that no item has.
type FreeSlot struct {
	Keys
	Slot *mvccpb.KeyValue
}

// Taker is the key of the item that has the slot.
func (s FreeSlot) Taker() string { return s.Taken() + string(s.Slot.Value) }

// Build returns the request.
func (s FreeSlot) Build() *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{as(s.Slot), absent(s.Taker())},
		Success: []*pb.RequestOp{txn.Delete(s.Slot.Key)},
	}
}

// Sweep removes a key that is not of an item.
func Sweep(kv *mvccpb.KeyValue) *pb.TxnRequest {
	return &pb.TxnRequest{Compare: []*pb.Compare{as(kv)}, Success: []*pb.RequestOp{txn.Delete(kv.Key)}}
}
