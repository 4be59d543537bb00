package protocol

import (
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Move puts a claim on another lease, which is not renewed. The fence rises, so writes under the
// old one are refused. The key stays held until that lease lapses.
type Move struct {
	*Held
	To     string // the value of the claim from then on
	Lease  int64
	Unsure bool // an earlier request may have been carried out
}

// Build returns the request. It succeeds under any epoch: the move ends the term, not the holding.
func (s Move) Build() txn.Request {
	own := []byte(s.Own(s.Key))
	return txn.Request{Key: s.Mode.Keys().Line, Urgent: true, In: &pb.TxnRequest{
		Compare: s.Has(),
		Success: []*pb.RequestOp{txn.Put(own, s.To, s.Lease), txn.Delete([]byte(s.Note(s.Key))), txn.Delete(s.NoticeKey())},
		Failure: []*pb.RequestOp{txn.Get(own), StrayNote(s.Layout, s.Key, s.Held.Lease)}, // ClearAway may have come first
	}}
}

// Judge reports whether the claim was moved, by this request or by one before. It was not if the
// key has another claim, or none and nothing was unsure.
func (s Move) Judge(resp *pb.TxnResponse) bool {
	if resp.Succeeded {
		return true
	}
	if now := first(resp.Responses[0]); now != nil {
		return string(now.Value) == s.To
	}
	return s.Unsure // done, and over already
}
