package protocol

import (
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Force frees a key that any client may hold.
type Force struct {
	Layout
	Key        string
	Own        *mvccpb.KeyValue // its claim, as it was read
	By, Reason string
}

// Build returns the request, which also notifies the holder, if it can be.
func (s Force) Build() txn.Request {
	r := s.Silently()
	if h, err := DecodeHolder(s.Own.Value); err == nil && h.Instance != "" && h.Claim != "" && s.Own.Lease != 0 {
		notice := keyspace.Encode(Eviction{Version: Version, Key: s.Key, Claim: h.Claim, By: s.By, Reason: s.Reason})
		r.In.Success = append(r.In.Success, txn.Put([]byte(s.Eviction(h.Instance, h.Claim)), notice, s.Own.Lease))
	}
	return r
}

// Silently is the request that notifies nobody: the lease has just ended, and the key with it, or
// etcd has no space for a notice.
func (s Force) Silently() txn.Request {
	own := []byte(s.Layout.Own(s.Key))
	in := &pb.TxnRequest{
		Compare: []*pb.Compare{txn.ModifiedAt(own, s.Own.ModRevision), txn.OnLease(own, s.Own.Lease)},
		Success: []*pb.RequestOp{txn.Delete(own), txn.Delete([]byte(s.Note(s.Key)))},
	}
	if h, err := DecodeHolder(s.Own.Value); err == nil && h.Claim != "" {
		in.Success = append(in.Success, txn.Delete([]byte(s.Notice(h.Instance, h.Claim))))
	}
	return txn.Request{In: in}
}

// WriteNote replaces the note of a claim. No late request overwrites a younger note: each expects
// the note that it follows.
type WriteNote struct {
	*Held
	Value string
	After int64 // ModRevision of the note before, 0 if there is none
}

// Build returns the request.
func (s WriteNote) Build() txn.Request {
	note := []byte(s.Note(s.Key))
	return txn.Request{Key: s.Key, In: &pb.TxnRequest{
		Compare: append(s.Guard(), txn.ModifiedAt(note, s.After)),
		Success: []*pb.RequestOp{txn.Put(note, s.Value, s.Lease)},
		Failure: append(Owner{s.Held}.Reads(), txn.Get(note)),
	}}
}

// Noted is the reply to a WriteNote.
type Noted struct {
	State       // of the claim
	Rev   int64 // of the note that is there now
	Done  bool  // it is this one, and the claim is kept: that of another owner can be the same
}

// Judge takes the reply apart.
func (s WriteNote) Judge(resp *pb.TxnResponse) Noted {
	if resp.Succeeded {
		return Noted{Rev: resp.Header.Revision, Done: true}
	}
	n := Noted{State: Owner{s.Held}.Judge(resp)}
	if now := first(resp.Responses[len(resp.Responses)-1]); now != nil {
		n.Rev, n.Done = now.ModRevision, n.State == Kept && string(now.Value) == s.Value
	}
	return n
}
