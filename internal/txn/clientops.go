package txn

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Operations returns the conditions and operations of a transaction as those of
// clientv3. It is the
// inverse of txn.Of.
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
		clientv3.WithMinModRev(r.MinModRevision), clientv3.WithMaxModRev(r.MaxModRevision),
		clientv3.WithMinCreateRev(r.MinCreateRevision), clientv3.WithMaxCreateRev(r.MaxCreateRevision),
	}
	if r.SortOrder != pb.RangeRequest_NONE {
		opts = append(opts, clientv3.WithSort(clientv3.SortTarget(r.SortTarget), clientv3.SortOrder(r.SortOrder)))
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
