package protocol

import (
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Verify checks that a client has all of some claims, and that what its callers wait for is as it
// was. Nearly always all is well: so the request has conditions, and etcd answers with a word
// instead of all values.
type Verify struct {
	Layout
	Held  []*Held
	Waits []Wait
}

// Wait is a key that a caller waits for to change, and the ModRevision with which it knows it.
type Wait struct {
	Key string
	Rev int64
}

// Width returns how many conditions the verification of a claim takes.
func (h *Held) Width() int { return 2 + len(h.Mode.Guard(h.Fence).Stands()) }

// Build returns the request. Either way it reads the epoch, which makes etcd answer from
// the present: a transaction without a read would be answered from whatever the member knows.
// The caller may add more reads behind that.
func (s Verify) Build() *pb.TxnRequest {
	epoch := []*pb.RequestOp{txn.Get([]byte(s.Layout.Epoch()))}
	in := &pb.TxnRequest{Compare: make([]*pb.Compare, 0, 2*len(s.Held)+len(s.Waits)), Success: epoch, Failure: epoch}
	for _, h := range s.Held {
		own := []byte(h.Own(h.Key))
		in.Compare = append(in.Compare, txn.ModifiedAt(own, keyspace.Revision(h.Fence)), txn.OnLease(own, h.Lease))
		in.Compare = append(in.Compare, h.Mode.Guard(h.Fence).Stands()...)
	}
	for _, w := range s.Waits {
		in.Compare = append(in.Compare, txn.ModifiedAt([]byte(w.Key), w.Rev))
	}
	return in
}

// Epoch returns what the request has read of the epoch's key.
func (s Verify) Epoch(resp *pb.TxnResponse) []*mvccpb.KeyValue {
	return resp.Responses[0].GetResponseRange().Kvs
}

// Reads is the request that finds out which conditions of Build did not hold.
func (s Verify) Reads() txn.Request {
	in := &pb.TxnRequest{Success: make([]*pb.RequestOp, 0, len(s.Held)+len(s.Waits))}
	for _, h := range s.Held {
		// Not keys only: etcd 3.7 answers that from its index, which does not know the lease.
		in.Success = append(in.Success, txn.Get([]byte(h.Own(h.Key))))
		if record := h.Mode.Guard(h.Fence).Name; record != nil {
			in.Success = append(in.Success, txn.Get(record))
		}
	}
	for _, w := range s.Waits {
		in.Success = append(in.Success, txn.Get([]byte(w.Key)))
	}
	return txn.Request{In: in}
}

// Judge takes apart the reply to Reads: the state of each claim, except for the epoch, and which
// keys that are waited for have changed.
func (s Verify) Judge(resp *pb.TxnResponse) (states []State, changed []bool) {
	ops := resp.Responses
	next := func() (kvs []*mvccpb.KeyValue) {
		kvs, ops = ops[0].GetResponseRange().Kvs, ops[1:]
		return kvs
	}
	for _, h := range s.Held {
		state := h.OfKey(next())
		if h.Mode.Guard(h.Fence).Name != nil {
			if record := h.OfRecord(next()); state == Kept {
				state = record
			}
		}
		states = append(states, state)
	}
	for _, w := range s.Waits {
		kvs := next()
		changed = append(changed, len(kvs) == 0 || kvs[0].ModRevision != w.Rev)
	}
	return states, changed
}
