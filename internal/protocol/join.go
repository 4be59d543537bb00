package protocol

import (
	"strings"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Join claims a key that is free, with an empty line, and else takes a place at the end of the
// line. All of it only if the try is not void, so that a place cannot come up for a caller that
// is gone.
type Join struct{ *Try }

// Build returns the request.
func (s Join) Build() txn.Request {
	in, keys := s.newcomer(), s.Mode.Keys()
	place := txn.Put([]byte(s.PlaceKey()), s.PlaceValue, s.Lease)
	switch { // carried out before, it may have put a place
	case keys.Mark != "" || s.Over != nil: // that is not in its way now
		in.Success = append(in.Success, txn.Delete([]byte(s.PlaceKey())))
	case keys.First != "": // that was handed another claim meanwhile
		in.Compare = append(in.Compare, txn.CreatedAt([]byte(s.Notice(s.Instance, s.ID)), 0))
	}
	if keys.Record {
		in.Failure = append([]*pb.RequestOp{place}, s.reads()...)
	} else {
		line := s.Waiting(keys.Line)
		in.Failure = []*pb.RequestOp{
			place,
			txn.Get([]byte(s.Own(keys.Claim))),
			s.count(line, keyspace.RangeEnd(line)), // which place is before it is read when that matters
			s.count(line+sharedMark, keyspace.RangeEnd(line)),
		}
	}
	r := s.request(in)
	r.Nested = true
	return r
}

// Position is what a waiter knows about its place in line: the place before it, or the claim
// if it is the first.
type Position struct {
	Own, Pred *mvccpb.KeyValue
	Behind    bool  // there is a place before it that was not read
	Next      bool  // the key, or a slot, may be free, and was not tried
	Readers   bool  // the try is the first in line, and shared holders are in its way
	Unnoticed bool  // shared holders or waiters are before it, so that no hand-over may be
	Rev       int64 // of that knowledge
}

// Joined is the reply to a Join.
type Joined struct {
	Rev   int64              // at which the try has the key, 0 if it does not
	Twice bool               // it has the key, and a place in line, too
	Epoch []*mvccpb.KeyValue // the epoch is another, so that nothing was done
	Old   bool               // as Epoch shows
	At    int64              // revision of the reply
	Position
}

// Judge takes the reply apart. The try has its place with an error, too.
func (s Join) Judge(resp *pb.TxnResponse) (Joined, error) {
	r := Joined{At: resp.Header.Revision}
	if !resp.Succeeded {
		r.Old, r.Epoch = true, resp.Responses[0].GetResponseRange().Kvs
		return r, nil
	}
	inner := resp.Responses[0].GetResponseTxn()
	if inner.Succeeded {
		r.Rev = r.At
		s.Granted(r.Rev)
		return r, nil
	}
	s.Queued, r.Position.Rev = r.At, r.At
	if s.Mode.Keys().Record {
		err := s.joined(&r, inner)
		return r, err
	}
	r.Own = first(inner.Responses[1])
	r.Rev = s.Found(r.Own)
	r.Twice = r.Rev > 0
	r.Behind = inner.Responses[2].GetResponseRange().Count > 1
	r.Readers = !r.Behind && IsShared(r.Own)
	r.Unnoticed = IsShared(r.Own) || inner.Responses[3].GetResponseRange().Count > 0
	return r, nil
}

// joined reads the position of a try whose key has a record.
func (s Join) joined(r *Joined, inner *pb.TxnResponse) error {
	v := s.seen(inner.Responses[1:], r.At)
	if r.Rev = s.Has(v); r.Rev > 0 {
		r.Twice = true
		return nil
	}
	v.Joined = true
	judged, err := s.learn(v, s.Epoch)
	if err != nil {
		return err
	}
	before := int64(1) // its own place counts
	if s.Mode.Keys().Mark != "" {
		before, s.First = 0, v.Waiting == 0
	}
	r.Own, r.Behind = judged.Own, v.Waiting > before
	r.Readers = !r.Behind && IsShared(r.Own)
	return nil
}

// Advance claims a key that is free, or whose holder is suspected, for the first in line. The try
// leaves the line with that, so that no release hands it the key again.
type Advance struct{ *Try }

// Build returns the request.
func (s Advance) Build() txn.Request {
	in, keys, mine := s.claim(), s.Mode.Keys(), []byte(s.PlaceKey())
	line, end := []byte(s.Waiting(keys.Line)), []byte(keys.before(s.Layout))
	in.Compare = append(in.Compare,
		txn.ModifiedAt([]byte(s.Layout.Epoch()), s.Epoch.Rev),
		txn.CreatedAt(mine, s.Queued)) // whoever gives the attempt up deletes its place
	switch {
	case keys.Mark == "":
		turn := txn.CreatedAfter(line, s.Queued-1)
		turn.RangeEnd = end
		in.Compare = append(in.Compare, turn)
	case !s.First: // none without a mark is before it: the condition above fails for an empty range
		in.Compare = append(in.Compare, txn.NoneIn(string(line), string(end)))
	}
	in.Success = append(in.Success, txn.Delete(mine))
	if s.Over != nil && s.Over.Notify != nil {
		in.Success = append(in.Success, s.Over.Notify)
	}
	last := between(string(line), string(end))
	r := last.GetRequestRange()
	r.Limit, r.SortOrder, r.SortTarget = 1, pb.RangeRequest_DESCEND, pb.RangeRequest_CREATE
	r.MaxCreateRevision, r.KeysOnly = s.Queued-1, true
	in.Failure = append(s.reads(), txn.Get(mine), last)
	return s.line(in)
}

// Stands is the reply to an Advance that was refused.
type Stands struct {
	Seen
	mine, before *mvccpb.KeyValue
}

// Judge takes apart the reply of a request that was refused.
func (s Advance) Judge(resp *pb.TxnResponse) Stands {
	n := len(resp.Responses)
	return Stands{
		Seen: s.seen(resp.Responses, resp.Header.Revision),
		mine: first(resp.Responses[n-2]), before: first(resp.Responses[n-1]),
	}
}

// Standing is where a waiter is.
type Standing int

// The standings of a waiter.
const (
	InLine Standing = iota
	Given           // it was handed the key
	Out             // its place was removed
	Moved           // its place, or the epoch, is another: its value must be made anew
	Denied          // a condition of the caller does not hold
)

// Stand judges the reply. epoch is the present one, which the caller has learnt from r. The
// second result is the revision at which the try has the key, if it was handed that.
func (t *Try) Stand(r Stands, epoch *txn.Epoch) (p Position, rev int64, at Standing, err error) {
	if rev = t.Has(r.Seen); rev > 0 {
		return Position{Rev: r.Rev}, rev, Given, nil
	}
	judged, err := t.learn(r.Seen, epoch)
	if err != nil {
		return p, 0, Out, err
	}
	if r.mine == nil || Placed(r.mine) != t.ID {
		// Perhaps it was handed the key, which was taken away again, or a restore has brought back an earlier
		// place of the same name.
		return p, 0, Out, nil
	}
	queued, before := t.Queued, t.Epoch
	t.Queued, t.Epoch = r.mine.CreateRevision, epoch
	if queued != t.Queued || !epoch.Is(before) {
		// The request that took the place was carried out twice, or the epoch was raised:
		// this one could not succeed, and may have read the try's own place as the
		// one before it.
		return Position{Next: true, Rev: r.Rev}, 0, Moved, nil
	}
	keys := t.Mode.Keys()
	p = Position{Own: judged.Own, Pred: r.before, Rev: r.Rev}
	if keys.Mark != "" && p.Pred == nil && !t.First {
		t.First, p.Next = true, p.Own == nil
	}
	p.Next = p.Next || p.Own == nil && !judged.Refused
	p.Readers = p.Pred == nil && IsShared(p.Own)
	p.Unnoticed = IsShared(p.Own) || p.Pred != nil && strings.HasPrefix(string(p.Pred.Key), t.Waiting(keys.Line)+sharedMark)
	if p.Own == nil && p.Pred == nil && len(t.Ask.If) > 0 && judged.Refused {
		return p, 0, Denied, nil
	}
	return p, 0, InLine, nil
}
