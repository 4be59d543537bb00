package txn

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// Of returns the protobuf message of a transaction that is written with the
// operations of clientv3.
func Of(cmps []clientv3.Cmp, then, els []clientv3.Op) *pb.TxnRequest {
	var c capture
	_, _ = clientv3.NewKVFromKVClient(&c, nil).Txn(context.Background()).If(cmps...).Then(then...).Else(els...).Commit()
	return c.in
}

// Then returns the protobuf message of a transaction without conditions.
func Then(ops ...clientv3.Op) *pb.TxnRequest { return Of(nil, ops, nil) }

// capture keeps the message that clientv3 would send. clientv3 exports no other way
// to get the lease of an operation.
type capture struct {
	pb.KVClient
	in *pb.TxnRequest
}

func (c *capture) Txn(_ context.Context, in *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	c.in = in
	return &pb.TxnResponse{}, nil
}

// Conditions returns the conditions of clientv3 that the given ones are.
func Conditions(all []*pb.Compare) []clientv3.Cmp {
	cmps, _, _ := Operations(&pb.TxnRequest{Compare: all})
	return cmps
}

// OpsOf returns operations as those of clientv3.
func OpsOf(all []*pb.RequestOp) []clientv3.Op {
	_, ops, _ := Operations(&pb.TxnRequest{Success: all})
	return ops
}
