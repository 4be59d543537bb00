package protocol

import (
	"strings"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Over is a claim that a try takes the key from, in the transaction that claims it.
type Over struct {
	Rev    int64         // at which it was put
	Guard  []*pb.Compare // conditions under which the key may be taken from it
	Notify *pb.RequestOp // puts the notice for its holder, or nil
	Yields bool          // those in line for the key come first
}

// Supersede returns what takes the key from a claim of the same client.
func Supersede(h *Held) *Over {
	return &Over{Rev: keyspace.Revision(h.Fence), Guard: h.Guard()}
}

// Succeed returns what takes the key from a claim of the same client that is released, and whose key is
// still there. No caller in line is passed.
func Succeed(h *Held) *Over {
	over := Supersede(h)
	over.Yields = true
	return over
}

// Suspicion is a holder whose client did not answer a question.
type Suspicion struct {
	Own      *mvccpb.KeyValue // its claim
	Holder   Holder
	Question string // the key of the question
	Rev      int64  // at which that was put
}

// Over returns what takes the key from the holder: it has that very claim, and has not answered
// by then. The notice is on the holder's lease, since its client may be alive.
func (s Suspicion) Over(l Layout, by, reason string) *Over {
	notice := keyspace.Encode(Eviction{
		Version: Version, Key: strings.TrimPrefix(string(s.Own.Key), l.Own("")), Claim: s.Holder.Claim, By: by, Reason: reason, Suspected: true,
	})
	return &Over{
		Rev: s.Own.ModRevision,
		Guard: []*pb.Compare{
			txn.ModifiedAt(s.Own.Key, s.Own.ModRevision), txn.OnLease(s.Own.Key, s.Own.Lease), txn.ModifiedAt([]byte(s.Question), s.Rev),
		},
		Notify: txn.Put([]byte(l.Eviction(s.Holder.Instance, s.Holder.Claim)), notice, s.Own.Lease),
	}
}

// Accuses reports whether a waiter under the epoch may suspect the holder of a claim: both sides
// have agreed to it. A claim of another epoch is void already.
func Accuses(l Layout, own *mvccpb.KeyValue, epoch int64) (Holder, bool) {
	if own == nil || own.Lease == 0 {
		return Holder{}, false
	}
	h, err := DecodeHolder(own.Value)
	return h, err == nil && h.Suspectable && h.Kind == "" && h.Instance != "" && h.Instance != l.Instance && h.Epoch == epoch
}
