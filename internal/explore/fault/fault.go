// Package fault breaks requests on purpose, to show that a world notices it.
package fault

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
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
	less := proto.CloneOf(in)
	Transactions(less, func(one *pb.TxnRequest) { one.Compare = slices.DeleteFunc(one.Compare, drop) })
	return less
}
