package tick

import (
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Excluding returns the prefixes of the recorded runs that exclude a run of the tick. Runs of
// a backfill exclude those of its own ticks alone: it comes after all others, and runs of a
// backfill with Allow exclude none.
func (k Keys) Excluding(r Ready) []string {
	switch {
	case r.Parallel:
		return nil
	case IsBackfill(r.ID):
		return []string{k.RunOf(r.Job), k.Backfilling(r.Job) + BackfillID + FillOf(r.ID) + "/"}
	}
	return []string{k.RunOf(r.Job)}
}

// Begin begins a waiting tick. It is sent with the acquisition of the run's claim, whose
// conditions and operations it adds.
type Begin struct {
	Keys
	Tick  Waiting
	Run   Run
	Value string   // of that
	Ahead []string // the keys of ticks that begin first if they wait
	Slots []Slot   // that the run takes
}

// Build returns what is to be added.
func (s Begin) Build() *pb.TxnRequest {
	w := s.Tick
	in := &pb.TxnRequest{Compare: []*pb.Compare{txn.ModifiedAt([]byte(w.Key), w.Rev), s.notWithdrawn(w.Job, w.Rev)}}
	if !w.Parallel {
		// A run of a dead process must be settled first: it may have to begin again.
		for _, dir := range s.Excluding(w.Ready) {
			in.Compare = append(in.Compare, txn.NoneUnder(dir))
		}
		for _, key := range s.Ahead {
			in.Compare = append(in.Compare, absent([]byte(key)))
		}
	}
	in.Compare = append(in.Compare, s.free(s.Slots)...)
	in.Success = append([]*pb.RequestOp{txn.Delete([]byte(w.Key)), s.begun(s.Run, s.Value)}, s.takes(s.Run)...)
	return in
}

func (k Keys) begun(r Run, value string) *pb.RequestOp {
	return txn.Put([]byte(k.Run(r.Job, r.ID)), value, noLease)
}

// Waits reports whether the tick may have to wait for runs, of its job or with its limits.
func (s Begin) Waits() bool { return !s.Tick.Parallel || len(s.Slots) > 0 }

// MayFollow reports whether the tick, as it was read after a refusal, can begin later. Otherwise
// another process has begun it, or it was withdrawn.
func (s Begin) MayFollow(kvs []*mvccpb.KeyValue) bool {
	return s.Waits() && len(kvs) > 0 && kvs[0].ModRevision == s.Tick.Rev
}

// Prompt admits a tick and begins it at once, which saves a round trip. It is sent with the
// acquisition of the run's claim, as Begin is, and not under the guard of the owner's claim: so it has
// that among its conditions.
type Prompt struct {
	Keys
	Job   Job
	Mark  Mark
	Plan  Plan // has one tick
	Run   Run
	Value string // of that
	Guard []*pb.Compare
}

// Before returns the directories of the ticks and runs that a tick of the job may have to wait
// for, or replace.
func (k Keys) Before(j Job) []string {
	if j.Parallel() {
		return []string{k.ReadyOf(j.Name)}
	}
	return []string{k.ReadyOf(j.Name), k.RunOf(j.Name), k.Backfilling(j.Name)}
}

// Build returns what is to be added.
func (s Prompt) Build() *pb.TxnRequest {
	in := &pb.TxnRequest{Compare: append(s.Mark.unmoved(s.Keys, s.Job.Name, s.Plan), s.Guard...)}
	if !s.Run.Parallel {
		for _, dir := range s.Before(s.Job) {
			in.Compare = append(in.Compare, txn.NoneUnder(dir))
		}
	}
	in.Success = []*pb.RequestOp{txn.Put([]byte(s.High(s.Job.Name)), keyspace.Instant(s.Plan.High), noLease), s.begun(s.Run, s.Value)}
	return in
}

// Judge returns the mark and the run as it began, if it did at the revision.
func (s Prompt) Judge(rev int64) (Mark, *Run) { return Mark{At: s.Plan.High, Rev: rev}, s.Run.At(rev) }
