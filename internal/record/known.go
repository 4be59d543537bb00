package record

import (
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Known is what a call that begins work knows of its record. A zero one assumes that no record exists. If one
// does, etcd refuses the first request and returns it.
type Known struct {
	Key  string           // of the work
	KV   *mvccpb.KeyValue // the record before, as it was read last, or nil
	Rev  int64            // that the record must have: its ModRevision, or -1 to read it anew
	Prev *Record          // what it says, or nil
	Err  error            // why it could not be read

	anew bool // done or dead work is begun again: its attempts count from here
}

// Changed takes over a record that has changed. It reports whether that is news.
func (k *Known) Changed(kv *mvccpb.KeyValue) bool {
	k.KV = kv
	rev := int64(0)
	if kv != nil {
		rev = kv.ModRevision
	}
	if rev == k.Rev {
		return false
	}
	k.Prev, k.Rev, k.Err, k.anew = nil, rev, nil, false
	if kv != nil {
		r, err := Decode(k.Key, kv)
		k.Prev, k.Err = &r, err
	}
	return true
}

// IsOver reports whether the record is one with which the work is not begun now.
func (k *Known) IsOver(now time.Time, again []State) bool {
	return k.Prev != nil && k.Prev.IsOver(now, again)
}

// Admission is what follows from a record for a call that finds its key free.
type Admission int

// The admissions.
const (
	Begins  Admission = iota // the work may be begun
	Barred                   // the record cannot be read
	Ended                    // it is over, or its next attempt is not due
	Orphans                  // it was claimed, and its owner is gone without a word: see Buries
)

// Admits returns what follows from the record.
func (k *Known) Admits(now time.Time, again []State) Admission {
	switch {
	case k.Err != nil:
		return Barred
	case k.Prev == nil:
		return Begins
	case k.IsOver(now, again):
		return Ended
	}
	k.anew = k.Prev.State == Done || k.Prev.State == Dead
	if k.Prev.State == Claimed {
		return Orphans
	}
	return Begins
}

// Buries returns why an orphan is dead, "" if it may be begun.
func (k *Known) Buries(limit int, again []State) string {
	why := k.Prev.buries(limit)
	if why != "" && slices.Contains(again, Dead) {
		k.anew = true
		return ""
	}
	return why
}

// Next is the record of the next attempt.
func (k *Known) Next() Record {
	r := begun(k.Prev, k.anew)
	r.Key = k.Key
	return r
}

// Restored returns the record as it was before an attempt, which there was. To that of an orphan it adds the
// fence: it was the revision of the record, which is another when it is put back.
func (k *Known) Restored() string {
	if k.Prev != nil && k.Prev.State == Claimed {
		if v := Read(k.KV.Value); v.Fence == 0 {
			v.Fence = k.Prev.Fence
			return v.Encode()
		}
	}
	return string(k.KV.Value)
}

// Undo puts a record back as it was before an attempt, "" for none, if it is still what the attempt has put.
func Undo(key, put, before string, lease int64) *pb.RequestOp {
	op := txn.Delete([]byte(key))
	if before != "" {
		op = txn.Put([]byte(key), before, lease)
	}
	return txn.Nest(&pb.TxnRequest{Compare: []*pb.Compare{txn.ValueIs([]byte(key), put)}, Success: []*pb.RequestOp{op}})
}
