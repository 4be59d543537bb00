package item

import (
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// absent is the condition that a key does not exist, exists that it does.
func absent(key string) *pb.Compare { return txn.CreatedAt([]byte(key), 0) }
func exists(key string) *pb.Compare { return txn.CreatedAfter([]byte(key), 0) }

// unmoved is the condition that a key is as it was put at a revision.
func unmoved(key string, rev int64) *pb.Compare { return txn.ModifiedAt([]byte(key), rev) }

// as is the condition that a key is as it was read.
func as(kv *mvccpb.KeyValue) *pb.Compare { return txn.ModifiedAt(kv.Key, kv.ModRevision) }

func put(key, value string) *pb.RequestOp { return txn.Put([]byte(key), value, int64(0)) }
func get(key string) *pb.RequestOp        { return txn.Get([]byte(key)) }
func remove(key string) *pb.RequestOp     { return txn.Delete([]byte(key)) }

// inner is a transaction within another one.
func inner(cmp []*pb.Compare, then ...*pb.RequestOp) *pb.RequestOp {
	return txn.Nest(&pb.TxnRequest{Compare: cmp, Success: then})
}

// keysOnly makes a read return no values, count not even keys, and at what there was at a revision.
func keysOnly(op *pb.RequestOp) *pb.RequestOp {
	op.GetRequestRange().KeysOnly = true
	return op
}

func count(op *pb.RequestOp) *pb.RequestOp {
	op.GetRequestRange().CountOnly = true
	return op
}

func at(rev int64, op *pb.RequestOp) *pb.RequestOp {
	op.GetRequestRange().Revision = rev
	return op
}

// first reads the first n keys from one on, up to the end of the prefix, or to end if that is not "".
func first(n int, prefix, end string) *pb.RequestOp {
	op := get(prefix)
	r := op.GetRequestRange()
	if end == "" {
		end = keyspace.RangeEnd(prefix)
	}
	r.RangeEnd, r.Limit = []byte(end), int64(n)
	return op
}

// kvs returns what the i-th operation of a reply has read.
func kvs(resp *pb.TxnResponse, i int) []*mvccpb.KeyValue {
	return resp.Responses[i].GetResponseRange().GetKvs()
}

// revision returns the ModRevision of what was read of one key; 0 if it does not exist.
func revision(kvs []*mvccpb.KeyValue) int64 {
	if len(kvs) == 0 {
		return 0
	}
	return kvs[0].ModRevision
}

func counted(resp *pb.TxnResponse, i int) int64 {
	return resp.Responses[i].GetResponseRange().GetCount()
}

// succeeded reports which of the transactions that a reply begins with were carried out.
func succeeded(ops []*pb.ResponseOp) (done []bool) {
	for _, op := range ops {
		done = append(done, op.GetResponseTxn().GetSucceeded())
	}
	return done
}
