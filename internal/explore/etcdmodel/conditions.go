package etcdmodel

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Transactions calls f with a request, and then with each transaction that is nested in it.
func Transactions(in *pb.TxnRequest, f func(*pb.TxnRequest)) {
	f(in)
	for _, ops := range [...][]*pb.RequestOp{in.Success, in.Failure} {
		for _, op := range ops {
			if inner := op.GetRequestTxn(); inner != nil {
				Transactions(inner, f)
			}
		}
	}
}

// Without returns a request without the conditions that drop chooses: a deliberate fault.
func Without(in *pb.TxnRequest, drop func(*pb.Compare) bool) *pb.TxnRequest {
	within := func(ops []*pb.RequestOp) []*pb.RequestOp {
		ops = slices.Clone(ops)
		for i, op := range ops {
			if inner := op.GetRequestTxn(); inner != nil {
				ops[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: Without(inner, drop)}}
			}
		}
		return ops
	}
	compare := slices.DeleteFunc(slices.Clone(in.Compare), drop)
	return &pb.TxnRequest{Compare: compare, Success: within(in.Success), Failure: within(in.Failure)}
}
