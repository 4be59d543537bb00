package protocol

import (
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Held is a claim that its client has.
type Held struct {
	Layout
	Mode     Mode
	Key      string // whose etcd key is the claim
	ID       string
	Value    string
	Fence    int64
	EpochRev int64 // ModRevision of the epoch's key, 0 if it does not exist
	Lease    int64
}

// NewHeld returns the claim of a try that has its key with the fence.
func NewHeld(t *Try, fence int64) Held {
	return Held{
		Layout: t.Layout, Mode: t.Mode, Key: t.Mode.Keys().Claim, ID: t.ID, Value: t.Value,
		Fence: fence, EpochRev: t.Epoch.Rev, Lease: t.Lease,
	}
}

// Token names the claim as gates see it.
func (h *Held) Token() fencing.Token { return Token(h.Mode, h.Fence) }

// epoch returns the epoch of the claim's fence.
func (h *Held) epoch() int64 { return keyspace.Epoch(h.Fence) }

// Has are the conditions that the claim is still there, under whatever epoch.
func (h *Held) Has() []*pb.Compare {
	return h.has(make([]*pb.Compare, 0, 5), []byte(h.Own(h.Key)))
}

// has adds these conditions to others. own is the etcd key of the claim.
func (h *Held) has(to []*pb.Compare, own []byte) []*pb.Compare {
	return append(to, txn.ModifiedAt(own, keyspace.Revision(h.Fence)), txn.OnLease(own, h.Lease))
}

// Guard is the condition that the client is still the owner: the revision; the lease, since a
// restore can repeat a revision, but not with this lease; the epoch, so that raising it ends all
// earlier claims; and the record of a key that it has in part.
func (h *Held) Guard() []*pb.Compare {
	guard := append(h.Has(), txn.ModifiedAt([]byte(h.Layout.Epoch()), h.EpochRev))
	return append(guard, h.Mode.Guard(h.Fence).Stands()...)
}

// State is whether a claim is still its client's.
type State int

// The states of a claim.
const (
	Kept           State = iota
	Deleted              // its key is gone
	Replaced             // its key has another claim
	EpochRaised          // the key is there, under an epoch that is over
	RecordDeleted        // the record that it needs is gone
	RecordReplaced       // the record is another
)

// Owner reads why a guard failed.
type Owner struct{ *Held }

// Reads are the operations; see State.
func (s Owner) Reads() []*pb.RequestOp {
	ops := append(make([]*pb.RequestOp, 0, 3),
		txn.Get([]byte(s.Own(s.Key))), // with its lease, which keys only would leave out
		txn.Get([]byte(s.Layout.Epoch())))
	if record := s.Mode.Guard(s.Fence).Name; record != nil {
		ops = append(ops, txn.Get(record))
	}
	return ops
}

// Build returns the request.
func (s Owner) Build() txn.Request { return txn.Request{In: &pb.TxnRequest{Success: s.Reads()}} }

// Judge judges the reply, which begins with what Reads read.
func (s Owner) Judge(resp *pb.TxnResponse) State {
	own, epoch := resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs
	if state := s.OfKey(own); state != Kept {
		return state
	}
	if state := s.OfEpoch(epoch); state != Kept {
		return state
	}
	if s.Mode.Guard(s.Fence).Name == nil {
		return Kept
	}
	return s.OfRecord(resp.Responses[2].GetResponseRange().Kvs)
}

// OfKey compares the claim with what etcd has under its key.
func (h *Held) OfKey(kvs []*mvccpb.KeyValue) State {
	switch {
	case len(kvs) == 0:
		return Deleted
	case kvs[0].ModRevision != keyspace.Revision(h.Fence) || kvs[0].Lease != h.Lease:
		return Replaced
	}
	return Kept
}

// OfEpoch compares the claim with the epoch's key.
func (h *Held) OfEpoch(kvs []*mvccpb.KeyValue) State {
	rev := int64(0)
	if len(kvs) > 0 {
		rev = kvs[0].ModRevision
	}
	if rev != h.EpochRev {
		return EpochRaised
	}
	return Kept
}

// OfRecord compares the claim with the record that it needs.
func (h *Held) OfRecord(kvs []*mvccpb.KeyValue) State {
	switch {
	case h.Mode.Guard(h.Fence).Is(kvs):
		return Kept
	case len(kvs) == 0:
		return RecordDeleted
	}
	return RecordReplaced
}

// NoticeKey is the key of the notice by which the claim was handed over.
func (h *Held) NoticeKey() []byte { return []byte(h.Notice(h.Instance, h.ID)) }

// Commit carries out operations of the holder under the guard of its claim.
type Commit struct {
	*Held
	Then    []*pb.RequestOp
	Concern []string // what they concern; nil: that may be anything
}

// Build returns the request. If it is refused, it reads the owner.
func (s Commit) Build() txn.Request {
	r := txn.Request{Open: true, In: &pb.TxnRequest{Compare: s.Guard(), Success: s.Then, Failure: Owner{s.Held}.Reads()}}
	if s.Concern != nil {
		r.Key, r.Also = s.Mode.Keys().Line, s.Concern
	}
	return r
}
