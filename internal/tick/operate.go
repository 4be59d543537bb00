package tick

import (
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Register stores an owner's version of a job. A new job, and one whose schedule has changed, begins
// then: its mark is moved forward, never back.
type Register struct {
	Keys
	Job     Job
	SpecRev int64 // 0 if the job has no specification
	MarkRev int64 // 0 if it has no mark
	Spec    string
	To      time.Time // the mark from then on, zero if it stays
	First   *Ready    // the tick of RunOnStart, nil if none is due
	Halted  int64     // if First is set, up to which revision the owner knows the pauses of many jobs

	put Put
}

// Build returns the request. etcd refuses it if the definition was removed or changed. With First, etcd also refuses
// it if the job is paused, or if there is a pause of many jobs that the owner does not know.
func (s *Register) Build() *pb.TxnRequest {
	spec, high := []byte(s.Keys.Spec(s.Job.Name)), []byte(s.High(s.Job.Name))
	in := &pb.TxnRequest{Compare: append(s.stillDefined(s.Job), txn.ModifiedAt(spec, s.SpecRev), txn.ModifiedAt(high, s.MarkRev))}
	in.Success = []*pb.RequestOp{txn.Put(spec, s.Spec, noLease)}
	if !s.To.IsZero() {
		in.Success = append(in.Success, txn.Put(high, keyspace.Instant(s.To), noLease))
	}
	if s.First != nil {
		in.Compare = append(in.Compare, absent([]byte(s.Paused(s.Job.Name))), s.Unhalted(s.Halted))
		s.put = s.waits(*s.First)
		in.Success = append(in.Success, s.put.op())
	}
	return in
}

// Judge returns what waits since. False means that another request came before.
func (s *Register) Judge(r txn.Reply) (d Decided, ok bool) {
	if r.Succeeded && s.First != nil {
		d.Waits = []Put{s.put}
	}
	return d, r.Succeeded
}

// Complain stores why an owner cannot run a definition. The registration remains, so that an
// owner that can run the job continues.
type Complain struct {
	Keys
	Job     Job
	SpecRev int64 // 0 if the job has no specification
	Spec    string
}

// Build returns the request.
func (s Complain) Build() *pb.TxnRequest {
	spec := []byte(s.Keys.Spec(s.Job.Name))
	return &pb.TxnRequest{
		Compare: append(s.stillDefined(s.Job), txn.ModifiedAt(spec, s.SpecRev)),
		Success: []*pb.RequestOp{txn.Put(spec, s.Spec, noLease)},
	}
}

// stillDefined is the condition that the definition of the job is the one that the owner
// knows: a job that was removed must not be registered again.
func (k Keys) stillDefined(j Job) []*pb.Compare {
	if j.Defined == 0 {
		return nil
	}
	return []*pb.Compare{txn.ModifiedAt([]byte(k.Definition(j.Name)), j.Defined)}
}

// Resume ends a pause: the mark is moved over the ticks of the pause.
type Resume struct {
	Keys
	Job      string
	PauseRev int64
	Mark     Mark
	To       time.Time
	Past     *Past // the record of those ticks, nil if there are none
}

// Build returns the request.
func (s Resume) Build() *pb.TxnRequest {
	paused, high := []byte(s.Paused(s.Job)), []byte(s.High(s.Job))
	in := &pb.TxnRequest{
		Compare: []*pb.Compare{txn.ModifiedAt(paused, s.PauseRev), txn.ModifiedAt(high, s.Mark.Rev)},
		Success: []*pb.RequestOp{txn.Delete(paused), txn.Delete([]byte(s.Fail(s.Job))), txn.Put(high, keyspace.Instant(s.To), noLease)},
	}
	if s.Past != nil {
		in.Success = append(in.Success, txn.Put([]byte(s.Entry(s.Job, *s.Past)), Encode(*s.Past), noLease))
	}
	return in
}
