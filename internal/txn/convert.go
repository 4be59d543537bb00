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

// Through sends a transaction by a KV of the caller's own, such as one of a
// namespace, which accepts only the operations of clientv3.
func Through(ctx context.Context, kv clientv3.KV, in *pb.TxnRequest) (*clientv3.TxnResponse, error) {
	cmps, then, els := Operations(in)
	return kv.Txn(ctx).If(cmps...).Then(then...).Else(els...).Commit()
}

// Operations returns the conditions and operations of a transaction as those of
// clientv3. It is the inverse of Of.
func Operations(in *pb.TxnRequest) (cmps []clientv3.Cmp, then, els []clientv3.Op) {
	for _, c := range in.Compare {
		cmps = append(cmps, clientv3.FromCompare(c))
	}
	for _, op := range in.Success {
		then = append(then, operation(op))
	}
	for _, op := range in.Failure {
		els = append(els, operation(op))
	}
	return cmps, then, els
}

func operation(op *pb.RequestOp) clientv3.Op {
	switch op := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		return putOp(op.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		d := op.RequestDeleteRange
		opts := []clientv3.OpOption{clientv3.WithRange(string(d.RangeEnd))}
		if d.PrevKv {
			opts = append(opts, clientv3.WithPrevKV())
		}
		return clientv3.OpDelete(string(d.Key), opts...)
	case *pb.RequestOp_RequestTxn:
		return clientv3.OpTxn(Operations(op.RequestTxn))
	}
	return rangeOp(op.GetRequestRange())
}

func putOp(p *pb.PutRequest) clientv3.Op {
	opts := []clientv3.OpOption{clientv3.WithLease(clientv3.LeaseID(p.Lease))}
	if p.PrevKv {
		opts = append(opts, clientv3.WithPrevKV())
	}
	if p.IgnoreValue {
		opts = append(opts, clientv3.WithIgnoreValue())
	}
	if p.IgnoreLease {
		opts = append(opts, clientv3.WithIgnoreLease())
	}
	return clientv3.OpPut(string(p.Key), string(p.Value), opts...)
}

func rangeOp(r *pb.RangeRequest) clientv3.Op {
	opts := []clientv3.OpOption{
		clientv3.WithRange(string(r.RangeEnd)), clientv3.WithLimit(r.Limit), clientv3.WithRev(r.Revision),
		clientv3.WithSort(clientv3.SortTarget(r.SortTarget), clientv3.SortOrder(r.SortOrder)),
		clientv3.WithMinModRev(r.MinModRevision), clientv3.WithMaxModRev(r.MaxModRevision),
		clientv3.WithMinCreateRev(r.MinCreateRevision), clientv3.WithMaxCreateRev(r.MaxCreateRevision),
	}
	if r.KeysOnly {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	if r.CountOnly {
		opts = append(opts, clientv3.WithCountOnly())
	}
	if r.Serializable {
		opts = append(opts, clientv3.WithSerializable())
	}
	return clientv3.OpGet(string(r.Key), opts...)
}
