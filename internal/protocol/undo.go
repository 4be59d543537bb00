package protocol

import (
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Confirm finds out what became of a try whose reply was lost, and keeps it from arriving late.
type Confirm struct {
	*Try
	With     []*Try // tries of other keys in the same transaction
	Enqueues bool   // a place in line may have been put
	Answered bool   // etcd has answered, so that no request arrives any more
}

// Build returns the request. If the claim is not there, it deletes all that the try may have put.
func (s Confirm) Build() txn.Request {
	keys := s.Mode.Keys()
	read := txn.Get([]byte(s.Own(keys.Claim)))
	read.GetRequestRange().KeysOnly = true
	in := &pb.TxnRequest{Compare: s.has(), Success: []*pb.RequestOp{read}, Failure: s.elsewhere()}
	in.Failure = append(in.Failure, s.strayNote()...)
	if s.Enqueues { // it may have been handed a claim that was taken away since
		in.Failure = append(in.Failure, txn.Delete([]byte(s.PlaceKey())), txn.Delete([]byte(s.Notice(s.Instance, s.ID))))
	}
	_, record := s.Mode.Take()
	r := txn.Request{Key: keys.Line, Also: keys.concerned(record != ""), Urgent: true, In: in}
	for _, t := range s.With {
		// It may still be there, if an operator took the first away.
		in.Failure = append(in.Failure, txn.Nest(&pb.TxnRequest{Compare: t.has(), Success: t.drop(), Failure: t.strayNote()}))
		r.Also = append(r.Also, t.Mode.Keys().Claim)
	}
	if !s.Answered { // otherwise a void would need space
		r.Void = s.void()
	}
	return r
}

// Judge returns the revision at which the try has the key, 0 if it has not and never will.
func (s Confirm) Judge(resp *pb.TxnResponse) int64 {
	if resp.Succeeded {
		rev := first(resp.Responses[0]).ModRevision
		s.Granted(rev)
		return rev
	}
	if s.Mode.Keys().First == "" {
		return 0
	}
	return s.Found(resp.Responses[0].GetResponseRange().Kvs...)
}

// elsewhere reads the claims among which the try may have another than it tried: a releaser may
// have handed it that.
func (t *Try) elsewhere() []*pb.RequestOp {
	keys := t.Mode.Keys()
	if keys.First == "" {
		return nil
	}
	return []*pb.RequestOp{between(keys.First, keys.End)}
}

// void keeps requests of the try from being carried out late.
func (t *Try) void() *txn.Void { return &txn.Void{Ticket: t.Ticket, Lease: txn.LeaseID(t.Lease)} }

// Undo removes all that a try has put or may yet put.
type Undo struct {
	*Try
	Enqueues bool            // a place in line may have been put
	Unsure   bool            // a request may still arrive
	Besides  []*pb.RequestOp // put back what was beside the claim
}

// Build returns the request.
func (s Undo) Build() txn.Request {
	keys := s.Mode.Keys()
	drop, gone := append(s.elsewhere(), s.drop()...), append(s.elsewhere(), s.strayNote()...)
	if s.Enqueues {
		left := []*pb.RequestOp{txn.Delete([]byte(s.PlaceKey())), txn.Delete([]byte(s.Notice(s.Instance, s.ID)))}
		drop, gone = append(drop, left...), append(gone, left...)
	}
	drop, gone = append(drop, s.Besides...), append(gone, s.Besides...)
	_, record := s.Mode.Take()
	r := txn.Request{
		Key: keys.Line, Also: keys.concerned(record != ""), Urgent: true,
		In: &pb.TxnRequest{Compare: s.has(), Success: drop, Failure: gone},
	}
	if !keys.Record && s.Beside == nil {
		r.Beside = txn.TakesBack
	}
	if s.Unsure {
		r.Void = s.void()
	}
	return r
}

// WithoutSpace is the request for a server that refuses every put, even in a branch that is not
// taken: it deletes what is there.
func (s Undo) WithoutSpace() txn.Request {
	in := s.Build().In
	return txn.Request{Key: s.Mode.Keys().Line, Urgent: true, In: &pb.TxnRequest{Compare: in.Compare, Success: in.Success}}
}

// Elsewhere returns the claims that the reply to an Undo, or to a Leave, has read.
func (t *Try) Elsewhere(resp *pb.TxnResponse) []*mvccpb.KeyValue {
	if t.Mode.Keys().First == "" {
		return nil
	}
	return resp.Responses[0].GetResponseRange().Kvs
}

// Leave deletes the place of a try that has the key already: its request was carried out twice,
// so that it has joined the line behind itself. If the claim was taken away since, that place may have been
// handed the key.
type Leave struct {
	*Try
	Rev int64 // at which it has the key
}

// Build returns the request.
func (s Leave) Build() txn.Request {
	keys := s.Mode.Keys()
	ops := append(s.elsewhere(), txn.Delete([]byte(s.PlaceKey())), txn.Delete([]byte(s.Notice(s.Instance, s.ID))))
	r := txn.Request{Key: keys.Line, Urgent: true}
	if keys.First == "" { // else the reply shows what it was handed
		own := []byte(s.Own(keys.Claim))
		ops = append(ops, txn.Nest(&pb.TxnRequest{
			Compare: append(s.has(), txn.ModifiedAfter(own, s.Rev)), Success: []*pb.RequestOp{txn.Delete(own)},
		}))
	}
	if !keys.Record {
		r.Beside = txn.TakesBack
	}
	r.In = &pb.TxnRequest{Success: ops}
	return r
}

// Drop gives up the claims among some that the try was handed, except the one of its mode.
type Drop struct {
	*Try
	Claims []*mvccpb.KeyValue
}

// Build returns the request. False means that there is nothing to give up.
func (s Drop) Build() (txn.Request, bool) {
	keys := s.Mode.Keys()
	in := &pb.TxnRequest{}
	for _, kv := range s.Claims {
		m, ok := s.Mode.At(kv.Key, kv.ModRevision)
		if !ok || !s.isOwn(kv) || string(kv.Key) == s.Own(keys.Claim) {
			continue
		}
		in.Success = append(in.Success, txn.Nest(&pb.TxnRequest{
			Compare: []*pb.Compare{txn.ModifiedAt(kv.Key, kv.ModRevision), txn.OnLease(kv.Key, kv.Lease)},
			Success: []*pb.RequestOp{txn.Delete(kv.Key), txn.Delete([]byte(s.Layout.Note(m.Keys().Claim)))},
		}))
	}
	return txn.Request{Key: keys.Line, Urgent: true, In: in}, len(in.Success) > 0
}

// drop deletes what claims the key. Without a note it needs no permission on notes.
func (t *Try) drop() []*pb.RequestOp {
	keys := t.Mode.Keys()
	ops := []*pb.RequestOp{txn.Delete([]byte(t.Own(keys.Claim)))}
	if t.Ask.Note != "" {
		ops = append(ops, txn.Delete([]byte(t.Layout.Note(keys.Claim))))
	}
	left, _ := t.Mode.Leave(t.Value, true)
	return append(ops, left...)
}

// strayNote deletes the note that the try put with a claim that was taken away since.
func (t *Try) strayNote() []*pb.RequestOp {
	if t.Ask.Note == "" {
		return nil
	}
	return []*pb.RequestOp{StrayNote(t.Layout, t.Mode.Keys().Claim, t.Lease)}
}

// StrayNote deletes a note on a lease, unless the claim of the key is on the lease, too: then it
// may be that claim's.
func StrayNote(l Layout, key string, lease int64) *pb.RequestOp {
	own, note := []byte(l.Own(key)), []byte(l.Note(key))
	elsewhere := txn.OnLease(own, lease)
	elsewhere.Result = pb.Compare_NOT_EQUAL
	return txn.Nest(&pb.TxnRequest{
		Compare: []*pb.Compare{elsewhere, txn.OnLease(note, lease)},
		Success: []*pb.RequestOp{txn.Delete(note)},
	})
}
