package protocol

import (
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Look reads why a key could not be taken.
type Look struct{ *Try }

// Build returns the request.
func (s Look) Build() txn.Request { return txn.Request{In: &pb.TxnRequest{Success: s.reads()}} }

// reads are the operations that read a Seen.
func (t *Try) reads() []*pb.RequestOp {
	keys := t.Mode.Keys()
	ops := append(make([]*pb.RequestOp, 0, 5),
		txn.Get([]byte(t.Own(keys.Claim))), t.count(t.Waiting(keys.Line), keys.before(t.Layout)), txn.Get([]byte(t.Layout.Epoch())))
	if keys.Record {
		ops = append(ops, txn.Get([]byte(t.Own(keys.User))))
	}
	if keys.First != "" {
		ops = append(ops, between(keys.First, keys.End))
	}
	return append(ops, t.besides()...)
}

// count counts the keys from first on and before the end.
func (t *Try) count(first, end string) *pb.RequestOp {
	op := between(first, end)
	op.GetRequestRange().CountOnly = true
	return op
}

// between reads the keys from first on and before the end.
func between(first, end string) *pb.RequestOp {
	op := txn.Get([]byte(first))
	op.GetRequestRange().RangeEnd = []byte(end)
	return op
}

// Seen is what a Look reads.
type Seen struct {
	Sight
	Waiting  int64              // how many places are before a newcomer's
	EpochKey []*mvccpb.KeyValue // what there is of the epoch's key
	Rev      int64
	Beside   *mvccpb.KeyValue // the key beside the claim
}

// Judge takes the reply apart.
func (s Look) Judge(resp *pb.TxnResponse) Seen { return s.seen(resp.Responses, resp.Header.Revision) }

func (t *Try) seen(ops []*pb.ResponseOp, rev int64) Seen {
	keys := t.Mode.Keys()
	v := Seen{Rev: rev, Waiting: ops[1].GetResponseRange().Count, EpochKey: ops[2].GetResponseRange().Kvs}
	v.Own = first(ops[0])
	next := 3
	if keys.Record {
		v.Record = first(ops[next])
		next++
	}
	if keys.First != "" {
		v.Claims = ops[next].GetResponseRange().Kvs
		next++
	}
	if t.Beside != nil {
		v.Beside = first(ops[next])
	}
	return v
}

// first returns what an operation read first, or nil.
func first(op *pb.ResponseOp) *mvccpb.KeyValue {
	if kvs := op.GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// Has returns the revision at which the try has the key after all, or 0.
func (t *Try) Has(v Seen) int64 {
	if rev := t.Found(v.Own); rev > 0 {
		return rev
	}
	return t.Found(v.Claims...)
}

// Outcome is what became of a try.
type Outcome int

// The outcomes of a try that does not have the key.
const (
	Again       Outcome = iota // what stood in its way is gone, or it has learnt something: try again
	OtherEpoch                 // the epoch is another: try again under that one
	HeldByOther                // Verdict.Own has the key
	BehindLine                 // the key is free, and Verdict.Waiting callers are in line for it
	Unmet                      // a condition of the caller does not hold
	OtherClaim                 // the claim that it was to take the key from is another by now
)

// Verdict is an outcome with what explains it.
type Verdict struct {
	Outcome
	Own     *mvccpb.KeyValue
	Waiting int64
}

// Judge returns why the try could not take the key. epoch is the present one, which the caller has
// learnt from v. The mode has learnt from v, too.
func (t *Try) Judge(v Seen, epoch *txn.Epoch) (Verdict, error) {
	if !epoch.Is(t.Epoch) {
		return Verdict{Outcome: OtherEpoch}, nil
	}
	judged, err := t.learn(v, epoch)
	if err != nil {
		return Verdict{}, err
	}
	switch {
	case judged.Own != nil && t.Over != nil && judged.Own.ModRevision == t.Over.Rev && len(t.Ask.If) > 0:
		return Verdict{Outcome: Unmet}, nil
	case judged.Own != nil && t.Over != nil:
		return Verdict{Outcome: OtherClaim, Own: judged.Own}, nil
	case judged.Own != nil:
		return Verdict{Outcome: HeldByOther, Own: judged.Own, Waiting: v.Waiting}, nil
	case v.Waiting > 0:
		return Verdict{Outcome: BehindLine, Waiting: v.Waiting}, nil
	case len(t.Ask.If) > 0 && judged.Refused:
		return Verdict{Outcome: Unmet}, nil
	}
	return Verdict{Outcome: Again}, nil
}

// learn makes the mode learn from what was seen.
func (t *Try) learn(v Seen, epoch *txn.Epoch) (Judged, error) {
	v.Sight.Epoch = epoch.Value
	m, judged, err := t.Mode.Learn(v.Sight)
	t.Mode = m
	return judged, err
}
