package tick

import (
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Asked is a request of a tick, by its key.
type Asked struct {
	Key string
	Rev int64
}

// Serve admits the tick that was requested by RunNow, or after other jobs.
type Serve struct {
	Standing
	Requests []Asked // one, or one for each end of the other jobs
	Tick     Ready
	After    bool  // the job is not paused: otherwise, the tick is skipped
	Halted   int64 // with After: the revision up to which the pauses of many jobs are known

	verdict verdict
	decided txn.Op
}

// Build returns the request, which removes those for the tick, so that each is served once.
func (s *Serve) Build() *pb.TxnRequest {
	in := &pb.TxnRequest{}
	var ops txn.Branch
	for _, r := range s.Requests {
		in.Compare = append(in.Compare, txn.ModifiedAt([]byte(r.Key), r.Rev))
		ops.Add(txn.Delete([]byte(r.Key)))
	}
	if s.After {
		in.Compare = append(in.Compare, absent([]byte(s.Paused(s.Job.Name))), s.Unhalted(s.Halted))
	}
	s.verdict = s.decide([]Ready{s.Tick})
	s.decided = ops.Add(txn.Nest(s.verdict.in))
	in.Compare, in.Success = append(in.Compare, s.verdict.compare...), ops
	return in
}

// Judge takes the reply apart. False means that what was read is out of date.
func (s *Serve) Judge(r txn.Reply) (Decided, bool) {
	if !r.Succeeded {
		return Decided{}, false
	}
	return s.verdict.judge(r.Inner(s.decided)), true
}

// Fill admits the next ticks of a backfill.
type Fill struct {
	Keys
	Request string // its key
	Rev     int64
	Ticks   []Ready
	Next    string // the value of the request from then on, "" if no more ticks follow

	puts []Put
}

// Build returns the request, which also moves that for the ticks on.
func (s *Fill) Build() *pb.TxnRequest {
	key := []byte(s.Request)
	ops := txn.Branch{txn.Delete(key)}
	if s.Next != "" {
		ops[0] = txn.Put(key, s.Next, noLease)
	}
	s.puts = nil
	for _, r := range s.Ticks {
		put := s.waits(r)
		s.puts = append(s.puts, put)
		ops.Add(put.op())
	}
	return &pb.TxnRequest{Compare: []*pb.Compare{txn.ModifiedAt(key, s.Rev)}, Success: ops}
}

// Judge takes the reply apart. False means that what was read is out of date.
func (s *Fill) Judge(r txn.Reply) (Decided, bool) {
	if !r.Succeeded {
		return Decided{}, false
	}
	return Decided{Waits: s.puts}, true
}
