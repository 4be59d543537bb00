package tick

import (
	"errors"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// End replaces the record of a run in progress: by the waiting tick if there is a next
// attempt, and by Past otherwise. It is carried out under the guard of the run's claim, and changes
// nothing if the record is gone. So a request that arrives late, or twice, does no harm.
type End struct {
	Keys
	Job       Job
	Run       Run
	Value     string // of the record of the run
	Began     int64  // the revision of that, and of the claim
	Past      Past
	Next      *Ready
	Followers Followers // the jobs that run after this one
	Stuck     bool      // a note of a handler that does not return may be stored
	Tally     Tally     // of Left
	History   History

	next   Put
	wait   waitOps
	pauses txn.Op // of the tally, if the tick does not wait again

	readWaits, readEntry, readRun, readWithdraw, readPast txn.Op
}

// Left returns the record of the tick if it has no other attempt.
func (s *End) Left() Past {
	if s.Next != nil && s.Job.NewestOnly(s.Next.ID) {
		return s.Next.Instead(s.Past)
	}
	return s.Past
}

// Tallies reports whether the tally of Left is needed.
func (s *End) Tallies() bool {
	left := s.Left()
	return s.Job.PauseOnFailure > 0 && (s.Next == nil || s.Job.NewestOnly(s.Next.ID)) && (left.Outcome == OK || left.Failed())
}

// Build returns the request.
func (s *End) Build() *pb.TxnRequest {
	j, run, left := s.Job.Name, []byte(s.Keys.Run(s.Job.Name, s.Run.ID)), s.Left()
	in := &pb.TxnRequest{Compare: append([]*pb.Compare{txn.ValueIs(run, s.Value)}, s.Tally.Compare...)}
	var ops txn.Branch
	if s.Next != nil {
		in.Compare = append(in.Compare, s.notWithdrawn(j, s.Began))
		s.next = s.waits(*s.Next)
		s.wait = s.waitAgain(s.Job, s.History, s.next, s.Past, left, s.Tally, s.Followers)
		ops = append(s.wait.ops, s.removes(s.Run, s.Began)...) // in this order: see Settle
	} else {
		ops = append(s.removes(s.Run, s.Began), s.History.Record(s.Keys, j, s.Past)...)
		ops = append(ops, s.Follow(j, s.Followers, s.Past)...)
	}
	if s.Stuck {
		ops.Add(txn.Delete([]byte(s.Keys.Stuck(j, s.Run.ID))))
	}
	if s.Next == nil {
		s.pauses = s.Tally.add(&ops)
	}
	var reads txn.Branch
	s.readWaits, s.readEntry = reads.Add(txn.Get([]byte(s.Ready(j, s.Run.ID)))), reads.Add(txn.Get([]byte(s.Entry(j, left))))
	s.readRun, s.readWithdraw = reads.Add(txn.Get(run)), reads.Add(txn.Get([]byte(s.Withdraw(j))))
	s.readPast = reads.Add(s.ReadOldest(j, 0))
	in.Success, in.Failure = ops, reads
	return in
}

// ErrNoRun is returned for a run whose record is gone: an owner has settled it.
var ErrNoRun = errors.New("the record of the run is gone")

// Ended is the reply to an End.
type Ended struct {
	Done    bool   // the run has ended, by this request or one before
	Past    Past   // the record that it has; that of this attempt if the tick waits again
	Waits   *Put   // the tick waits again, since this request
	Now     bool   // by this request
	Paused  bool   // the tally has paused the job
	History txn.Op // that was read, if it was refused
}

// Judge takes the reply apart. If the run has not ended, the step is to be built again, with a
// new tally: a Cancel has withdrawn the tick, or another run has counted a failure in the meantime.
func (s *End) Judge(r txn.Reply) (Ended, error) {
	if r.Succeeded {
		e := Ended{Done: true, Now: true, Past: s.Past}
		if otherwise, replaced := s.wait.replaced(r); replaced {
			e.Past, e.Paused = s.Left(), otherwise.Inner(s.wait.pauses).Succeeded
		} else if s.Next != nil {
			e.Waits = &s.next
		}
		e.Paused = e.Paused || r.Inner(s.pauses).Succeeded
		return e, nil
	}
	e := Ended{Past: s.Past, History: s.readPast}
	switch stored, wd := r.First(s.readEntry), r.First(s.readWithdraw); {
	case stored != nil: // an earlier request succeeded, and its reply was lost
		var err error
		e.Past, err = Decode[Past](string(stored.Key), stored.Value)
		e.Done = err == nil
		return e, err
	case s.Next != nil && string(r.First(s.readWaits).GetValue()) == s.next.Value:
		e.Done = true
	case string(r.First(s.readRun).GetValue()) != s.Value:
		return e, ErrNoRun
	case s.Next != nil && wd.GetModRevision() > s.Began:
		by, _ := Decode[Cancelling](s.Withdraw(s.Job.Name), wd.Value) // the owner logs one that cannot be read
		s.Past, s.Next = s.Next.withdrawn(s.Past, by), nil
		s.wait = waitOps{}
	}
	return e, nil
}
