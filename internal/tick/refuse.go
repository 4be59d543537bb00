package tick

import (
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Refuse removes requests of ticks after other jobs that are not served.
type Refuse struct {
	Keys
	Job      string
	Requests []string // their keys, oldest first
	Rev      int64    // of the last one
	Pause    *Asked   // the pause of the job that there must be; nil for none
	History  History
	Past     *Past // their record, nil for none
}

// Build returns the request. It changes nothing if the last one was served or removed.
func (s Refuse) Build() *pb.TxnRequest {
	last := s.Requests[len(s.Requests)-1]
	in := &pb.TxnRequest{Compare: []*pb.Compare{txn.ModifiedAt([]byte(last), s.Rev)}}
	if s.Pause != nil {
		in.Compare = append(in.Compare, txn.ModifiedAt([]byte(s.Pause.Key), s.Pause.Rev))
	}
	for _, key := range s.Requests {
		in.Success = append(in.Success, txn.Delete([]byte(key)))
	}
	if s.Past != nil {
		in.Success = append(in.Success, s.History.Record(s.Keys, s.Job, *s.Past)...)
	}
	return in
}

// Withdraw removes waiting ticks that were cancelled, and records each.
type Withdraw struct {
	Keys
	Job     string
	Ticks   []Waiting
	Past    []Past // their records
	History History
	// Followers are the jobs that run after this one.
	Followers Followers

	each []txn.Op
}

// Build returns the request. A tick that has begun is left as it is, without a record.
func (s *Withdraw) Build() *pb.TxnRequest {
	var keys []string
	var takeBack txn.Branch
	for i, w := range s.Ticks {
		p := s.Past[i]
		p.Version, p.Job = Version, s.Job
		keys = append(keys, s.Entry(s.Job, p))
		put := txn.Put([]byte(keys[i]), Encode(p), noLease)
		takeBack.Add(txn.Nest(TakeBack(w, append(s.Follow(s.Job, s.Followers, p), put)...)))
	}
	ops := txn.Branch(s.History.Trim(keys))
	s.each = nil
	for _, op := range takeBack {
		s.each = append(s.each, ops.Add(op))
	}
	ops.Add(s.ReadOldest(s.Job, len(s.Ticks)))
	return &pb.TxnRequest{Success: ops}
}

// TakeBack returns the request that removes a waiting tick, with further operations, unless the
// tick has begun.
func TakeBack(w Waiting, more ...*pb.RequestOp) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{txn.ModifiedAt([]byte(w.Key), w.Rev)},
		Success: append([]*pb.RequestOp{txn.Delete([]byte(w.Key))}, more...),
	}
}

// Judge returns the replies for the ticks, in their order.
func (s *Withdraw) Judge(r txn.Reply) (each []txn.Reply) {
	for _, op := range s.each {
		each = append(each, r.Inner(op))
	}
	return each
}
