package protocol

import (
	"slices"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Release gives a claim up.
type Release struct {
	*Held
	Noted   bool   // a note was sent
	Noticed bool   // the claim was handed over, by a notice that stays until it ends
	Alone   bool   // no other claim of the client belongs to the record; see Mode.Leave
	Prefers bool   // it goes to the most preferred waiter
	Heir    string // with Prefers: the client that is preferred to all others, if it waits; empty for none
	Trace   string // for the next holder
}

// leaving deletes what the owner has in etcd, first the claim itself.
func (s Release) leaving() (in *pb.TxnRequest, beside txn.Beside) {
	own := []byte(s.Own(s.Key))
	in = txn.Roomy()
	in.Compare, in.Success = s.has(in.Compare, own), append(in.Success, txn.Delete(own))
	if s.Noted {
		in.Success = append(in.Success, txn.Delete([]byte(s.Note(s.Key))))
	}
	if s.Noticed {
		in.Success = append(in.Success, txn.Delete(s.NoticeKey()))
	}
	ops, beside := s.Mode.Leave(s.Value, s.Alone)
	in.Success = append(in.Success, ops...)
	return in, beside
}

func (s Release) request(in *pb.TxnRequest) txn.Request {
	return txn.Request{Key: s.Mode.Keys().Line, Urgent: true, In: in}
}

// Free is the request that frees the key. Waiters notice that by their watches. A client may
// give up its own claim under any epoch.
func (s Release) Free() txn.Request {
	in, beside := s.leaving()
	r := s.request(in)
	if r.Beside = beside; beside != txn.BesideNone {
		r.Also = []string{s.Key} // no request for its note is in the same batch
	}
	return r
}

// Delete is Free, and deletes the notice also if the claim has gone.
func (s Release) Delete() txn.Request {
	r := s.Free()
	if s.Noticed {
		r.In.Failure = []*pb.RequestOp{txn.Delete(s.NoticeKey())}
	}
	return r
}

// Pass is the request that hands the key to the first in line, or frees it if the line is empty.
// If the line has changed, the request is refused, and reads the line if there probably is one.
// to names the try that gets the key, if any.
func (s Release) Pass(l Line) (r txn.Request, to string) {
	conditions, hands := s.Mode.Hand()
	if !hands {
		return s.Free(), ""
	}
	in, _ := s.leaving()
	if l.Known {
		in.Failure = s.ReadLine()
	}
	keys := s.Mode.Keys()
	if len(l.Next) == 0 {
		in.Compare = append(in.Compare, txn.NoneUnder(s.Waiting(keys.Line)))
		return s.request(in), ""
	}
	first := l.Next[0]
	name := []byte(s.Place(keys.Line, first.Name))
	in.Compare = append(in.Compare, txn.ModifiedAt(name, first.Rev))
	h, grantable := first.takes(s.epoch())
	if !grantable {
		return s.request(in), "" // it sees that the key is free
	}
	in.Compare = append(in.Compare, conditions...)
	s.give(in, first.Value, first.Lease)
	notice := Notice{Version: Version, Epoch: s.epoch(), Rev: s.EpochRev, Next: l.Next[1:], More: l.More, Trace: s.Trace, Slot: keys.Slot}
	in.Success = append(in.Success, txn.Delete(name), txn.Put([]byte(s.Notice(h.Instance, h.Claim)), keyspace.Encode(notice), first.Lease))
	return s.request(in), h.Claim
}

// Within is the request that puts the claim of a waiter of the same client in the place of this
// one. The line in etcd must be empty, unless the waiter came before the first in l.
func (s Release) Within(l Line, value string, lease int64) txn.Request {
	in, _ := s.leaving()
	s.give(in, value, lease)
	in.Failure = s.ReadLine()
	if len(l.Next) == 0 {
		in.Compare = append(in.Compare, txn.NoneUnder(s.Waiting(s.Mode.Keys().Line)))
	}
	return s.request(in)
}

// give turns the request that deletes the claim into one that puts another claim in its
// place, under the same epoch.
func (s Release) give(leaving *pb.TxnRequest, value string, lease int64) {
	leaving.Compare = append(leaving.Compare, txn.ModifiedAt([]byte(s.Layout.Epoch()), s.EpochRev))
	leaving.Success[0] = txn.Put([]byte(s.Own(s.Key)), value, lease)
}

// ReadLine are the operations that read the claim and its line.
func (s Release) ReadLine() []*pb.RequestOp {
	keys := s.Mode.Keys()
	places := txn.Range(s.Waiting(keys.Line))
	if r := places.GetRequestRange(); !s.Prefers { // else any of them may be the next
		r.Limit = ReadAhead
		r.SortTarget, r.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_ASCEND
	}
	ops := []*pb.RequestOp{txn.Get([]byte(s.Own(s.Key))), txn.Get([]byte(s.Layout.Epoch())), places}
	if keys.Record {
		ops = append(ops, txn.Get([]byte(s.Own(keys.User))))
	}
	return ops
}

// Behind is ReadLine as a request of its own.
func (s Release) Behind() txn.Request {
	return txn.Request{In: &pb.TxnRequest{Success: s.ReadLine()}}
}

// Record is the state of the record that the claim needs, as a reply to ReadLine shows.
func (s Release) Record(resp *pb.TxnResponse) State {
	if !s.Mode.Keys().Record {
		return Kept
	}
	return s.OfRecord(resp.Responses[3].GetResponseRange().Kvs)
}

// LineRead is what ReadLine reads.
type LineRead struct {
	State      // of the claim, except for the record
	Line  Line // behind it
}

// JudgeLine takes the reply apart. The mode learns of the record.
func (s Release) JudgeLine(resp *pb.TxnResponse) LineRead {
	keys, ops := s.Mode.Keys(), resp.Responses
	r := LineRead{State: s.OfKey(ops[0].GetResponseRange().Kvs)}
	if r.State == Kept {
		r.State = s.OfEpoch(ops[1].GetResponseRange().Kvs)
	}
	if keys.Record {
		s.Held.Mode, _, _ = s.Mode.Learn(Sight{Record: first(ops[3]), Held: true}) //nolint:errcheck // of a holder it returns none
	}
	places, waiting := ops[2].GetResponseRange(), s.Waiting(keys.Line)
	if s.Prefers {
		r.Line = preferred(places.Kvs, waiting, s.Heir)
	} else {
		r.Line = firstCome(places.Kvs, places.Count, waiting)
	}
	return r
}

// With adds operations of the holder to a request that gives the claim up. They are carried out
// only if the client is still the owner. concern names what they concern; nil: that may be anything.
// If the request is refused, it does not read why.
func (s Release) With(r txn.Request, ops []*pb.RequestOp, concern []string) txn.Request {
	r.In.Compare = append(s.Guard(), r.In.Compare[len(s.Has()):]...)
	r.In.Failure = nil
	r.In.Success = append(r.In.Success, ops...)
	if r.Beside, r.Also = txn.BesideNone, append(r.Also, concern...); concern == nil && len(ops) > 0 {
		r.Key = ""
	}
	return r
}

// Emptied reports whether a release, with so many operations of the holder, has left none of the
// claims of a record, as its reply shows, and whether the record remains without them.
func (s Release) Emptied(resp *pb.TxnResponse, ops int) (none, remains bool) {
	n := len(resp.Responses) - ops
	if !s.Mode.Guard(s.Fence).Unchanged || n <= 0 || resp.Responses[n-1].GetResponseRange() == nil || resp.Responses[n-1].GetResponseRange().Count > 0 {
		return false, false
	}
	return true, !slices.ContainsFunc(resp.Responses[:n], func(op *pb.ResponseOp) bool { return op.GetResponseTxn().GetSucceeded() })
}

// ClearAway is the request that deletes the notice and the note of a claim that another request
// than its own has ended. noteRev is the ModRevision of its last note, as far as known. False
// means that there is neither.
func (s Release) ClearAway(noteRev int64) (txn.Request, bool) {
	in := &pb.TxnRequest{}
	if s.Noted {
		// Its last note, or any, unless the session has the key again.
		note := []byte(s.Note(s.Key))
		in.Compare = []*pb.Compare{txn.ModifiedAt(note, noteRev)}
		in.Success = []*pb.RequestOp{txn.Delete(note)}
		in.Failure = []*pb.RequestOp{StrayNote(s.Layout, s.Key, s.Lease)}
	}
	if s.Noticed {
		in.Success, in.Failure = append(in.Success, txn.Delete(s.NoticeKey())), append(in.Failure, txn.Delete(s.NoticeKey()))
	}
	return s.request(in), s.Noted || s.Noticed
}
