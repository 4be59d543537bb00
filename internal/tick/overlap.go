package tick

import (
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Line are the waiting ticks of a job in their order, without those of backfills.
type Line interface {
	Len() int
	At(i int) Waiting
}

// Standing is what an owner knows of a job when it decides about ticks.
type Standing struct {
	Keys
	Job      Job
	Waiting  Line // only for BufferAll and CancelRunning
	Failures Counted
	History  History
	// Followers are the jobs that run after this one.
	Followers Followers
	Epoch     int64
	Now       time.Time
}

// record returns the operations that record ticks which have ended.
func (s Standing) record(all ...Past) []*pb.RequestOp {
	return append(s.History.Record(s.Keys, s.Job.Name, all...), s.Follow(s.Job.Name, s.Followers, all...)...)
}

// Decided is what became of the ticks of a decision.
type Decided struct {
	Waits  []Put     // those that wait
	Left   []Past    // the records of those that do not, also of ticks that had waited
	Gone   []Waiting // those that no longer wait
	Tally  Tally     // that was counted
	Paused bool      // the tally has paused the job
}

// verdict is the outcome of ticks under their job's Overlap, as part of a decision: compare are
// conditions of the decision, and in admits or leaves out the ticks. etcd evaluates the conditions of
// in in the same instant.
type verdict struct {
	n       int // the number of ticks that the verdict covers, from the first on
	compare []*pb.Compare
	in      *pb.TxnRequest
	then    Decided // if the conditions of in hold
	pauses  txn.Op
	skipped []Past // if they do not: all of the ticks
}

func (v verdict) judge(r txn.Reply) Decided {
	if !r.Succeeded {
		return Decided{Left: v.skipped}
	}
	d := v.then
	d.Paused = r.Inner(v.pauses).Succeeded
	return d
}

// Fits reports whether a tick may wait under the job's Overlap, and whether it replaces the ticks
// that wait and ends the runs, where so many ticks wait and runs are in progress.
func (j Job) Fits(waiting, running int) (fits, replaces bool) {
	switch j.Overlap {
	case Allow:
		return true, false
	case BufferOne:
		return waiting == 0, false
	case BufferAll:
		return waiting < j.Buffer, false
	case CancelRunning:
		return true, true
	}
	return waiting == 0 && running == 0, false
}

// decide returns the verdict on ticks of a job, oldest first.
func (s Standing) decide(ticks []Ready) verdict {
	for i := range ticks {
		ticks[i].Epoch = s.Epoch
	}
	waiting := txn.NoneUnder(s.ReadyOf(s.Job.Name))
	switch s.Job.Overlap {
	case Allow:
		return s.admitAll(ticks)
	case BufferAll:
		if room := s.Job.Buffer - s.Waiting.Len(); room > 0 {
			return s.admitAll(ticks[:min(room, len(ticks))])
		}
		// Waiting ticks begin in order, so the buffer is full when the tick Buffer places
		// back is still waiting.
		last := []byte(s.Waiting.At(s.Waiting.Len() - s.Job.Buffer).Key)
		if len(ticks) > 1 {
			v := s.admitFirst(nil, nil, ticks)
			v.compare = []*pb.Compare{txn.CreatedAfter(last, 0)}
			return v
		}
		return s.admitFirst([]*pb.Compare{absent(last)}, ticks, nil)
	case BufferOne:
		return s.admitFirst([]*pb.Compare{waiting}, ticks[:1], ticks[1:])
	case CancelRunning:
		return s.replace(ticks)
	}
	running := txn.NoneUnder(s.RunOf(s.Job.Name))
	claimed := absent([]byte(s.own(JobClaim(s.Group, s.Job.Name))))
	return s.admitFirst([]*pb.Compare{waiting, running, claimed}, ticks[:1], ticks[1:])
}

func (s Standing) skip(ticks ...Ready) (out []Past) {
	for _, r := range ticks {
		out = append(out, Past{ID: r.ID, Outcome: Skipped, Nominal: r.Nominal, Actual: r.Actual, Missed: r.Missed, Ended: s.Now})
	}
	return out
}

func (s Standing) let(ticks []Ready) (puts []Put, ops txn.Branch) {
	puts = make([]Put, len(ticks))
	for i, r := range ticks {
		puts[i] = s.waits(r)
		ops.Add(puts[i].op())
	}
	return puts, ops
}

// admitAll lets all ticks wait.
func (s Standing) admitAll(ticks []Ready) verdict {
	puts, ops := s.let(ticks)
	return verdict{n: len(ticks), in: &pb.TxnRequest{Success: ops}, then: Decided{Waits: puts}}
}

// admitFirst lets the first tick wait if the conditions room hold, and skips the rest.
// Otherwise it skips all.
func (s Standing) admitFirst(room []*pb.Compare, first, rest []Ready) verdict {
	v := verdict{n: len(first) + len(rest)}
	puts, ops := s.let(first)
	v.then.Waits, v.then.Left = puts, s.skip(rest...)
	v.skipped = append(s.skip(first...), v.then.Left...)
	if len(rest) > 0 {
		ops = append(ops, s.History.Record(s.Keys, s.Job.Name, v.then.Left...)...)
	}
	v.in = &pb.TxnRequest{Compare: room, Success: ops}
	if len(first) > 0 {
		v.in.Failure = s.History.Record(s.Keys, s.Job.Name, v.skipped...)
	}
	return v
}

// replace lets the newest tick wait instead of all others, and requests the end of the
// run in progress.
func (s Standing) replace(ticks []Ready) verdict {
	j := s.Job
	v := verdict{n: len(ticks)}
	newest := ticks[len(ticks)-1]
	v.then.Left = s.skip(ticks[:len(ticks)-1]...)
	var ops txn.Branch
	for i, n := max(0, s.Waiting.Len()-2), s.Waiting.Len(); i < n; i++ { // the next decision replaces those before
		w := s.Waiting.At(i)
		v.compare = append(v.compare, txn.ModifiedAt([]byte(w.Key), w.Rev))
		ops.Add(txn.Delete([]byte(w.Key)))
		v.then.Left, v.then.Gone = append(v.then.Left, w.LeftOut(Skipped, s.Now)), append(v.then.Gone, w)
	}
	put := s.waits(newest)
	v.then.Waits = []Put{put}
	ops.Add(put.op())
	if len(v.then.Left) > 0 {
		ops = append(ops, s.record(v.then.Left...)...)
	}
	ops.Add(s.endRuns(newest.ID))
	v.then.Tally = s.CountAll(j, s.Failures, v.then.Left...)
	v.compare = append(v.compare, v.then.Tally.Compare...)
	v.pauses = v.then.Tally.add(&ops)
	v.in = &pb.TxnRequest{Success: ops}
	return v
}

// endRuns requests the end of the runs in progress, if any is recorded.
func (s Standing) endRuns(newest string) *pb.RequestOp {
	request := Encode(Cancelling{Version: Version, By: "sched", Note: "the next tick is due: " + newest, At: s.Now})
	cancel := []*pb.RequestOp{txn.Put([]byte(s.Newer(s.Job.Name)), request, noLease)}
	none := func(dir string, then []*pb.RequestOp) *pb.RequestOp {
		return txn.Nest(&pb.TxnRequest{Compare: []*pb.Compare{txn.NoneUnder(dir)}, Success: then, Failure: cancel})
	}
	return none(s.RunOf(s.Job.Name), []*pb.RequestOp{none(s.Backfilling(s.Job.Name), nil)})
}
