package tick

import (
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Mark is the high-water mark of a job, as it was read.
type Mark struct {
	At  time.Time
	Rev int64
}

// unmoved is the condition that the mark has not moved since it was read, that the plan moves
// it forward, and that the job is not paused. So only one such decision, of any owner, moves the
// mark on from its current value.
func (m Mark) unmoved(k Keys, job string, p Plan) []*pb.Compare {
	high := []byte(k.High(job))
	return []*pb.Compare{txn.ModifiedAt(high, m.Rev), txn.ValueBefore(high, keyspace.Instant(p.High)), absent([]byte(k.Paused(job)))}
}

// Admission is the decision of an owner about the next due ticks of a job.
type Admission struct {
	Standing
	Mark Mark
	Plan Plan // High follows from what it can cover

	recorded []Past
	verdict  verdict
	decided  txn.Op
}

// Build returns the request.
func (s *Admission) Build() *pb.TxnRequest {
	j := s.Job
	switch p := s.Plan; {
	case len(p.Ticks) == 0:
		s.recorded = append(s.recorded, Past{ID: NominalID(p.High), Outcome: Missed, Nominal: p.High, Missed: p.Missed, Ended: s.Now})
	case p.Late:
		for i, nominal := range p.Ticks {
			late := Past{ID: NominalID(nominal), Outcome: Late, Nominal: nominal, Actual: j.Actual(nominal), Ended: s.Now}
			if i == 0 {
				late.Missed = p.Missed
			}
			s.recorded = append(s.recorded, late)
		}
	default:
		ticks := make([]Ready, len(p.Ticks))
		for i, nominal := range p.Ticks {
			ticks[i] = j.First(nominal)
		}
		ticks[0].Missed = p.Missed
		s.verdict = s.decide(ticks)
		s.Plan.High = p.Ticks[s.verdict.n-1]
	}
	ops := txn.Branch{txn.Put([]byte(s.High(j.Name)), keyspace.Instant(s.Plan.High), noLease)}
	if s.verdict.in != nil {
		s.decided = ops.Add(txn.Nest(s.verdict.in))
	} else {
		ops = append(ops, s.History.Record(s.Keys, j.Name, s.recorded...)...)
	}
	return &pb.TxnRequest{Compare: append(s.Mark.unmoved(s.Keys, j.Name, s.Plan), s.verdict.compare...), Success: ops}
}

// Admitted is the reply to an Admission.
type Admitted struct {
	Decided
	Done bool
	Mark Mark // from then on
	// Fewer means that it was refused, perhaps because the conditions of its later ticks have changed
	// meanwhile: it may succeed for the first of them. Otherwise, what was read is out of date.
	Fewer bool
	// Gave is whether older ticks were given up in favour of those that were admitted. They have no
	// record of their own: Ready.Missed of the first counts them.
	Gave bool
}

// Judge takes the reply apart.
func (s *Admission) Judge(r txn.Reply) Admitted {
	if !r.Succeeded {
		return Admitted{Fewer: s.verdict.n > 1}
	}
	a := Admitted{Done: true, Mark: Mark{At: s.Plan.High, Rev: r.Rev}}
	if a.Left = s.recorded; s.decided != 0 {
		a.Decided, a.Gave = s.verdict.judge(r.Inner(s.decided)), s.Plan.Missed > 0
	}
	return a
}

// Drop records a tick that does not wait any longer, and was not begun.
type Drop struct {
	Standing
	Tick    Waiting
	Outcome Outcome

	left   Past
	tally  Tally
	pauses txn.Op
}

// Counts reports whether the tick counts as a failure. One transaction counts one of a job.
func (s *Drop) Counts() bool { return s.tally.Counts() }

// Build returns the request.
func (s *Drop) Build() *pb.TxnRequest {
	key := []byte(s.Tick.Key)
	s.left = s.Tick.LeftOut(s.Outcome, s.Now)
	s.tally = s.CountAll(s.Job, s.Failures, s.left)
	ops := append(txn.Branch{txn.Delete(key)}, s.record(s.left)...)
	s.pauses = s.tally.add(&ops)
	return &pb.TxnRequest{Compare: append([]*pb.Compare{txn.ModifiedAt(key, s.Tick.Rev)}, s.tally.Compare...), Success: ops}
}

// Judge takes the reply apart. If it was refused, the tick has begun or was withdrawn, or, if the tick
// counts as a failure, a run may have counted one meanwhile.
func (s *Drop) Judge(r txn.Reply) Decided {
	d := Decided{Tally: s.tally}
	if r.Succeeded {
		d.Left, d.Gone, d.Paused = []Past{s.left}, []Waiting{s.Tick}, r.Inner(s.pauses).Succeeded
	}
	return d
}
