package txn_test

import (
	"slices"
	"testing"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A reply is asked by the handles of the operations, wherever they stand, also in a nested
// transaction. The handle of none finds nothing.
func TestReplyByHandle(t *testing.T) {
	t.Parallel()
	var inner, ops txn.Ops
	ops.Add(clientv3.OpDelete("old"))
	a := ops.Add(clientv3.OpGet("a"))
	c := inner.Add(clientv3.OpGet("c"))
	nested := ops.Add(clientv3.OpTxn(nil, inner, nil))
	empty := ops.Add(clientv3.OpGet("empty"))
	if len(ops) != 4 || string(ops[1].KeyBytes()) != "a" || !ops[2].IsTxn() {
		t.Fatal("operations are not in the order in which they were added")
	}

	read := func(keys ...string) *pb.ResponseOp {
		got := &pb.RangeResponse{Count: int64(len(keys))}
		for _, key := range keys {
			got.Kvs = append(got.Kvs, &mvccpb.KeyValue{Key: []byte(key)})
		}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: got}}
	}
	r := txn.ReplyIn(&clientv3.TxnResponse{Header: &pb.ResponseHeader{Revision: 7}, Succeeded: true, Responses: []*pb.ResponseOp{
		{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{}}},
		read("a", "b"),
		{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{Succeeded: true, Responses: []*pb.ResponseOp{read("c")}}}},
		read(),
	}})
	in := r.Inner(nested)
	if !r.Succeeded || r.Rev != 7 || r.Count(a) != 2 || len(r.Kvs(a)) != 2 || string(r.First(a).Key) != "a" {
		t.Errorf("reply %v", r)
	}
	if !in.Succeeded || in.Rev != 7 || string(in.First(c).Key) != "c" {
		t.Errorf("nested reply %v", in)
	}
	if r.First(empty) != nil || r.Inner(a).Succeeded {
		t.Error("a reply to what was not found, or is no transaction")
	}
	if none := txn.Op(0); r.Range(none) != nil || r.First(none) != nil || r.Count(none) != 0 || r.Inner(none).Succeeded {
		t.Error("the handle of no operation has a reply")
	}
	var keys []string
	for got := range r.Reads() {
		for _, kv := range got.Kvs {
			keys = append(keys, string(kv.Key))
		}
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(keys, want) {
		t.Errorf("reads of %v, want %v", keys, want)
	}
	for range r.Reads() {
		break // an early end is one
	}
}
