package txn

import (
	"iter"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Ops are the operations of one branch of a transaction. Add returns a handle of each, by which
// a Reply is asked for the reply to it. So no caller counts operations.
type Ops []clientv3.Op

// Op is the handle of an operation of Ops. The zero Op is of none: it has read nothing, and
// no transaction nested in it has succeeded.
type Op int

// Add adds an operation.
func (o *Ops) Add(op clientv3.Op) Op {
	*o = append(*o, op)
	return Op(len(*o))
}

// Branch is Ops for a request that is built as a message.
type Branch []*pb.RequestOp

// Add adds an operation.
func (b *Branch) Add(op *pb.RequestOp) Op {
	*b = append(*b, op)
	return Op(len(*b))
}

// Reply is the reply to the operations of the branch that was carried out. A handle of the
// other branch means nothing to it.
type Reply struct {
	Succeeded bool
	Rev       int64
	ops       []*pb.ResponseOp
}

// ReplyIn returns the reply to a transaction.
func ReplyIn(resp *clientv3.TxnResponse) Reply {
	return Reply{Succeeded: resp.Succeeded, Rev: resp.Header.GetRevision(), ops: resp.Responses}
}

func (r Reply) to(op Op) *pb.ResponseOp {
	if op == 0 {
		return nil
	}
	return r.ops[op-1]
}

// Range returns the reply to a read, or nil.
func (r Reply) Range(op Op) *pb.RangeResponse { return r.to(op).GetResponseRange() }

// Kvs returns what a read has read.
func (r Reply) Kvs(op Op) []*mvccpb.KeyValue { return r.Range(op).GetKvs() }

// First returns what a read has read first, or nil.
func (r Reply) First(op Op) *mvccpb.KeyValue {
	if kvs := r.Kvs(op); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// Count returns how many keys a read has counted.
func (r Reply) Count(op Op) int64 { return r.Range(op).GetCount() }

// Inner returns the reply to a nested transaction.
func (r Reply) Inner(op Op) Reply {
	inner := r.to(op).GetResponseTxn()
	return Reply{Succeeded: inner.GetSucceeded(), Rev: r.Rev, ops: inner.GetResponses()}
}

// Reads returns the replies to all reads, also to those of nested transactions.
func (r Reply) Reads() iter.Seq[*pb.RangeResponse] {
	return func(yield func(*pb.RangeResponse) bool) { r.reads(yield) }
}

func (r Reply) reads(yield func(*pb.RangeResponse) bool) bool {
	for i, op := range r.ops {
		got := op.GetResponseRange()
		if got != nil && !yield(got) || !r.Inner(Op(i+1)).reads(yield) {
			return false
		}
	}
	return true
}
