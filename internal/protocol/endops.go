package protocol

import (
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// EndOps are operations of a holder that are carried out with the release of its claim, or not at all.
type EndOps struct {
	Ops     []*pb.RequestOp
	Concern []string // what they concern beside the key; nil: that may be anything
	// Deletes is a key that is there until they are carried out, "" if none is known.
	Deletes string
}

// proof returns the key that shows whether the operations were carried out, "" if none does: the one
// that Deletes names, or what they put first.
func (o *EndOps) proof() string {
	if put := o.put(); o.Deletes == "" && put != nil {
		return string(put.Key)
	}
	return o.Deletes
}

// put is what the operations put first, or nil.
func (o *EndOps) put() *pb.PutRequest {
	for _, op := range o.Ops {
		if put := op.GetRequestPut(); put != nil {
			return put
		}
	}
	return nil
}

// Past reads a claim as it was just before a revision, and at it.
type Past struct {
	*Held
	Rev int64
}

// Build returns the request.
func (s Past) Build() txn.Request {
	before, then := txn.Get([]byte(s.Own(s.Key))), txn.Get([]byte(s.Own(s.Key)))
	before.GetRequestRange().Revision, then.GetRequestRange().Revision = s.Rev-1, s.Rev
	return txn.Request{In: &pb.TxnRequest{Success: []*pb.RequestOp{before, then}}}
}

// Judge reports whether the claim ended at the revision. Then one transaction did that and whatever
// else came at the revision.
func (s Past) Judge(resp *pb.TxnResponse) bool {
	after := first(resp.Responses[1])
	return s.OfKey(resp.Responses[0].GetResponseRange().Kvs) == Kept && (after == nil || after.ModRevision == s.Rev)
}

// prove finds out whether a request has carried the operations out whose reply was lost, or that was sent twice on
// the way, from what etcd has under the key of proof. The claim is gone.
func (e *Ending) prove(kv *mvccpb.KeyValue) EndAction {
	put := e.Ops.put()
	switch {
	case e.Ops.Deletes != "" && kv == nil && e.sent:
		return e.releasedBefore()
	case e.Ops.Deletes != "" && kv == nil: // by a copy, or by somebody else
		e.sent = true
		return e.lost(e.found)
	case e.Ops.Deletes != "", kv == nil, string(kv.Value) != string(put.Value), kv.ModRevision <= keyspace.Revision(e.Fence):
		return e.lost(e.found)
	}
	e.sent = true // for all that is known
	// It may have been put by another. But if the claim was there just before, and is not since, one
	// transaction did both.
	e.past = Past{Held: e.Held, Rev: kv.ModRevision}
	return e.read(endProving, e.past.Build())
}

func (e *Ending) whenProving(ev EndEvent) EndAction {
	switch {
	case ev.Kind == EndReplied && e.past.Judge(ev.Reply):
		return e.releasedBefore()
	case ev.Kind == EndReplied, ev.Kind == EndCompacted:
		return e.lost(e.found)
	}
	return e.unread(ev)
}
