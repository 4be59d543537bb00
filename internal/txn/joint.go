package txn

import (
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Join returns a transaction in which those that are nested in the first branch, from the n-th
// operation on, are one with it: all conditions must hold. [Part] gives the reply its form. If it is
// refused, the reply begins with whether the conditions of in itself hold. If they do, it has to be
// sent as it was.
func Join(in *pb.TxnRequest, n int) *pb.TxnRequest {
	joint := &pb.TxnRequest{
		Compare: append(make([]*pb.Compare, 0, len(in.Compare)+2*len(in.Success)), in.Compare...),
		Success: append(make([]*pb.RequestOp, 0, 4*len(in.Success)), in.Success[:n]...),
		Failure: append([]*pb.RequestOp{Nest(&pb.TxnRequest{Compare: in.Compare})}, in.Failure...),
	}
	for _, op := range in.Success[n:] {
		if one := op.GetRequestTxn(); one != nil {
			joint.Compare, joint.Success = append(joint.Compare, one.Compare...), append(joint.Success, one.Success...)
		} else {
			joint.Success = append(joint.Success, op)
		}
	}
	return joint
}

// Part returns the reply to a joint transaction as that to the one of which Join made it. It returns
// nil if that has to be sent.
func Part(in *pb.TxnRequest, n int, resp *pb.TxnResponse) *pb.TxnResponse {
	if !resp.Succeeded {
		if resp.Responses[0].GetResponseTxn().Succeeded {
			return nil
		}
		return &pb.TxnResponse{Header: resp.Header, Responses: resp.Responses[1:]}
	}
	parts := &pb.TxnResponse{Header: resp.Header, Succeeded: true, Responses: slices.Clone(resp.Responses[:n])}
	left := resp.Responses[n:]
	for _, op := range in.Success[n:] {
		one := op.GetRequestTxn()
		if one == nil {
			parts.Responses, left = append(parts.Responses, left[0]), left[1:]
			continue
		}
		ops := len(one.Success)
		part := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true, Responses: left[:ops:ops]}
		parts.Responses, left = append(parts.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: part}}), left[ops:]
	}
	return parts
}

// Fits reports whether a transaction that is nested below so many operations is within the limit.
func (l *Limits) Fits(in *pb.TxnRequest, below int) bool { return width(in)+below <= l.MaxOps() }

// Exceeded lowers the limit after such a transaction was refused for its operations.
func (l *Limits) Exceeded(in *pb.TxnRequest, below int) { l.FewerOps(width(in) + below) }

// Doubt says how long conditions are not to be joined after such a transaction was refused. A
// refusal costs more than several that are not refused save. Its methods may be called at once.
type Doubt struct {
	mu     sync.Mutex
	left   int // times that are left out
	length int // of the last such pause
	calm   int // how many were not refused since
}

const (
	longestDoubt = 64 // times
	calmAfter    = 8
)

// Over reports whether conditions may be joined this time.
func (d *Doubt) Over() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left > 0 {
		d.left--
		return false
	}
	return true
}

// Learn notes whether joined conditions were refused.
func (d *Doubt) Learn(refused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if refused {
		d.length, d.calm = min(2*d.length+1, longestDoubt), 0
		d.left = d.length
	} else if d.calm++; d.calm >= calmAfter {
		d.length, d.calm = d.length/2, 0
	}
}
