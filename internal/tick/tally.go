package tick

import (
	"fmt"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Failures is the value of fail/.
type Failures struct {
	Version int `json:"v"`
	InARow  int `json:"inARow"`
}

// Counted are the failures of a job as they were read.
type Counted struct {
	Failures
	Rev        int64 // 0 if there are none
	Unreadable bool  // those of a later version are not counted on
}

// Tally is what a transaction needs to count failures: the condition that no other one has
// counted since they were read, and the operations. The zero Tally counts nothing.
type Tally struct {
	Compare []*pb.Compare
	ops     []*pb.RequestOp
	Pauses  bool // whether the last of ops pauses the job, unless it is paused
	Sum     Failures
	Last    Past // the record of the last tick that failed
}

// Counts reports whether the transaction counts anything.
func (t Tally) Counts() bool { return t.Compare != nil }

// Count counts n more ticks that failed in a row. The last of them is recorded as p. The
// failures count if the conditions hold.
func (k Keys) Count(j Job, f Counted, n int, p Past, counts ...*pb.Compare) Tally {
	if j.PauseOnFailure == 0 || n == 0 || f.Unreadable {
		return Tally{}
	}
	key := []byte(k.Fail(j.Name))
	t := Tally{Compare: []*pb.Compare{txn.ModifiedAt(key, f.Rev)}}
	t.Sum, t.Last = Failures{Version: Version, InARow: f.InARow + n}, p
	if t.Sum.InARow < j.PauseOnFailure {
		put := []*pb.RequestOp{txn.Put(key, Encode(t.Sum), noLease)}
		t.ops = []*pb.RequestOp{txn.Nest(&pb.TxnRequest{Compare: counts, Success: put})}
		return t
	}
	note := fmt.Sprintf("%d runs failed in a row; the last: %s", t.Sum.InARow, p.Error)
	stop := Encode(Pause{Version: Version, By: "sched", Note: LimitText(note), At: p.Ended})
	paused := []byte(k.Paused(j.Name))
	t.ops = []*pb.RequestOp{
		txn.Delete(key),
		txn.Nest(&pb.TxnRequest{Compare: append(counts, absent(paused)), Success: []*pb.RequestOp{txn.Put(paused, stop, noLease)}}),
	}
	t.Pauses = true
	return t
}

// CountAll counts the ticks that failed by their records. If a run has counted one since the
// failures were read, the transaction is refused.
func (k Keys) CountAll(j Job, f Counted, records ...Past) Tally {
	n, last := 0, Past{}
	for _, p := range records {
		if p.Failed() {
			n, last = n+1, p
		}
	}
	return k.Count(j, f, n, last)
}

// CountEnd counts how a run ends, without another attempt, that began at the revision. A success ends the
// row. If the definition of the job was removed since the run began, the run does not count, also
// if the job has been defined again.
func (k Keys) CountEnd(j Job, f Counted, p Past, began int64) Tally {
	if p.Outcome == OK && !f.Unreadable {
		key := []byte(k.Fail(j.Name))
		return Tally{Compare: []*pb.Compare{txn.ModifiedAt(key, f.Rev)}, ops: []*pb.RequestOp{txn.Delete(key)}}
	}
	var counts []*pb.Compare
	if j.Defined != 0 {
		name := []byte(k.Definition(j.Name))
		counts = []*pb.Compare{txn.CreatedAfter(name, 0), txn.CreatedBefore(name, began)}
	}
	return k.Count(j, f, 1, p, counts...)
}

// add adds the operations of the tally. It returns the one that pauses the job, if one does.
func (t Tally) add(to *txn.Branch) (pauses txn.Op) {
	for _, op := range t.ops {
		pauses = to.Add(op)
	}
	if !t.Pauses {
		return 0
	}
	return pauses
}

// absent is the condition that a key does not exist.
func absent(key []byte) *pb.Compare { return txn.CreatedAt(key, 0) }
