package tick

import (
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// IsOrphan reports whether a run is without an owner, by the revisions of the key of its claim, 0 if that
// is gone, and of its record. The claim and the
// record of a run are put in one transaction, so a claim of another revision is not the run's. A run
// deletes its record before it gives up its claim.
func IsOrphan(own, rev int64) bool { return own != rev }

// Withdrawal is a Cancel: ticks that were admitted before its revision must not begin.
type Withdrawal struct {
	Cancelling
	Rev int64 // 0 if there is none
}

// Settle ends the record of a run whose claim is gone: the run is recorded as lost, or its tick
// waits again.
type Settle struct {
	Standing
	Run      Run
	Rev      int64 // of its record
	Past     Past
	Begun    bool // its handler may have been called
	By       Withdrawal
	Outdated bool // a newer tick is about to replace it

	over   bool // the tick has no other attempt
	next   Put
	wait   waitOps
	tally  Tally
	pauses txn.Op
	left   Past // if it is over, or replaced
}

// Counts reports whether it may count a failure. One transaction counts one of a job.
func (s *Settle) Counts() bool { return s.tally.Counts() }

// Build returns the request.
func (s *Settle) Build() *pb.TxnRequest {
	j, run := s.Job, []byte(s.Keys.Run(s.Job.Name, s.Run.ID))
	in := &pb.TxnRequest{Compare: []*pb.Compare{txn.ModifiedAt(run, s.Rev), txn.NotModifiedAt([]byte(s.own(s.Run.Claim)), s.Rev)}}
	again := s.Run.Ready
	s.left, s.over = s.Past, false
	switch {
	case !s.Begun:
	case s.Run.MayBeginAgain(j):
		again = s.Run.Again(s.Past, "was lost")
	default:
		s.over = true
	}
	switch {
	case s.over:
	case s.By.Rev > s.Rev:
		s.left, s.over = again.withdrawn(s.Past, s.By.Cancelling), true
	case s.Outdated:
		s.left, s.over = Waiting{Ready: again}.LeftOut(Skipped, s.Past.Ended), true
	default:
		in.Compare = append(in.Compare, s.notWithdrawn(j.Name, s.Rev)) // otherwise the next search for orphans settles it
	}
	var ops txn.Branch
	switch {
	case s.over:
		s.tally = s.CountAll(j, s.Failures, s.left)
		ops = append(s.removes(s.Run, s.Rev), s.record(s.left)...)
	default:
		if j.NewestOnly(s.Run.ID) {
			s.left = again.Instead(s.Past)
			s.tally = s.CountAll(j, s.Failures, s.left)
		}
		// The tick waits again before its run is gone, also for those that watch both. So a
		// starter that sees no run sees the tick, and does not begin a later one first.
		s.next = s.waits(again)
		s.wait = s.waitAgain(j, s.History, s.next, s.Past, s.left, s.tally, s.Followers)
		ops = append(s.wait.ops, s.removes(s.Run, s.Rev)...)
	}
	ops.Add(txn.Delete([]byte(s.Keys.Stuck(j.Name, s.Run.ID))))
	if s.over {
		s.pauses = s.tally.add(&ops)
	}
	in.Compare, in.Success = append(in.Compare, s.tally.Compare...), ops
	return in
}

// Settled is the reply to a Settle.
type Settled struct {
	Done   bool
	Left   *Past // the record of the tick, if it is over
	Waits  *Put  // the tick, if it waits again
	Tally  Tally // that was counted
	Paused bool  // the tally has paused the job
}

// Judge takes the reply apart. If it was refused, the run has ended, was settled, or what was read is
// out of date.
func (s *Settle) Judge(r txn.Reply) Settled {
	d := Settled{Done: r.Succeeded, Tally: s.tally}
	if !r.Succeeded {
		return d
	}
	if s.over {
		d.Left, d.Paused = &s.left, r.Inner(s.pauses).Succeeded
		return d
	}
	if otherwise, replaced := s.wait.replaced(r); replaced {
		d.Left, d.Paused = &s.left, otherwise.Inner(s.wait.pauses).Succeeded
		return d
	}
	d.Waits, d.Tally = &s.next, Tally{} // nothing was counted
	return d
}
