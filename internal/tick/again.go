package tick

import (
	"strconv"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Waiting is a waiting tick: admitted, and not begun.
type Waiting struct {
	Ready
	Key string
	Rev int64
}

// AdmittedAt is the revision at which the tick was admitted.
func (w Waiting) AdmittedAt() int64 {
	if w.Admitted > 0 {
		return w.Admitted
	}
	return w.Rev
}

// LeftOut returns the record of a waiting tick that will not begin. If an earlier
// attempt of the tick has begun, it is the record of that attempt, which may have done
// its work.
func (w Waiting) LeftOut(why Outcome, now time.Time) Past {
	if w.Last == nil {
		p := Past{ID: w.ID, Outcome: why, Nominal: w.Nominal, Actual: w.Actual, Missed: w.Missed, Admitted: w.AdmittedAt(), Ended: now}
		if w.Retries > 0 {
			p.Attempt, p.Error = w.Attempt-1, w.Note
		}
		return p
	}
	p := *w.Last
	p.Ended, p.Error = now, LimitText(p.Error+"; the tick was not begun again: "+string(why))
	return p
}

// Again returns the tick for its next attempt. The previous attempt ended as p.
func (r Run) Again(p Past, how string) Ready {
	next := r.Ready
	next.Attempt++
	next.Last = &p
	next.Note = "attempt " + strconv.Itoa(r.Attempt) + " by " + r.Owner + " " + how
	return next
}

// MayBeginAgain reports whether AtLeastOnce begins the tick again.
func (r Run) MayBeginAgain(j Job) bool { return j.Again && r.Attempt-r.Retries < j.MaxStarts }

// withdrawn returns the record of an attempt that ended as p, and whose next attempt was
// withdrawn.
func (r Ready) withdrawn(p Past, by Cancelling) Past {
	if p.Again {
		p.Again, p.Error = false, p.Error+"; not tried again"
	} else {
		p = Waiting{Ready: r}.LeftOut(Cancelled, p.Ended)
	}
	p.Error = by.Explain(p.Error)
	return p
}

// Instead returns the record of a tick that would wait again, after an attempt that ended as
// p, and that a newer tick replaces.
func (r Ready) Instead(p Past) Past {
	if !p.Again {
		return Waiting{Ready: r}.LeftOut(Skipped, p.Ended)
	}
	p.Again, p.Error = false, LimitText(p.Error+"; not tried again, because a newer tick waits")
	return p
}

// A Put is a tick that waits since a request was carried out.
type Put struct {
	Key, Value string
	Ready      *Ready
}

// waits returns the tick as a value that waits.
func (k Keys) waits(r Ready) Put {
	return Put{Key: k.Ready(r.Job, r.ID), Value: Encode(r), Ready: &r}
}

func (p Put) op() *pb.RequestOp { return txn.Put([]byte(p.Key), p.Value, noLease) }

// notWithdrawn is the condition that no Cancel of the job has come since a run began at the
// revision.
func (k Keys) notWithdrawn(job string, begun int64) *pb.Compare {
	return txn.ModifiedBefore([]byte(k.Withdraw(job)), begun)
}

// waitOps are the operations that make a tick wait again.
type waitOps struct {
	ops    txn.Branch
	newest txn.Op // the transaction that asks whether a newer tick waits; 0 if none does
	pauses txn.Op // of the tally, in the second branch of that
}

// replaced reports whether a newer tick has replaced the tick, and returns the reply to what
// was done instead.
func (w waitOps) replaced(r txn.Reply) (txn.Reply, bool) {
	otherwise := r.Inner(w.newest)
	return otherwise, w.newest != 0 && !otherwise.Succeeded
}

// waitAgain returns the operations that make a begun tick wait again, after an attempt
// that ended as p; an attempt that Retry repeats is recorded too. With CancelRunning, if a
// newer tick waits, the operation records instead, and has the tally of that.
func (k Keys) waitAgain(j Job, h History, next Put, p, instead Past, t Tally, followers Followers) (w waitOps) {
	ops := txn.Branch{next.op()}
	if p.Again {
		ops = append(ops, h.Record(k, j.Name, p)...)
	}
	if !j.NewestOnly(next.Ready.ID) {
		return waitOps{ops: ops}
	}
	otherwise := txn.Branch(append(h.Record(k, j.Name, instead), k.Follow(j.Name, followers, instead)...))
	w.pauses = t.add(&otherwise)
	none := []*pb.Compare{txn.NoneUnder(k.ReadyOf(j.Name))}
	w.newest = w.ops.Add(txn.Nest(&pb.TxnRequest{Compare: none, Success: ops, Failure: otherwise}))
	return w
}
