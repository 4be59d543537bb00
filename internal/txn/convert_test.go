package txn_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// A transaction that is converted to the operations of clientv3 and back is the same.
func TestOperationsInvertOf(t *testing.T) {
	t.Parallel()
	in := txn.Of(
		[]clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision("m"), "=", 7),
			clientv3.Compare(clientv3.CreateRevision("c/").WithPrefix(), ">", 1),
			clientv3.Compare(clientv3.Value("v"), "!=", "x"),
			clientv3.Compare(clientv3.LeaseValue("l"), "=", 5),
			clientv3.Compare(clientv3.Version("n"), "<", 3),
		},
		[]clientv3.Op{
			clientv3.OpPut("a", "1", clientv3.WithLease(9), clientv3.WithPrevKV()),
			clientv3.OpPut("b", "", clientv3.WithIgnoreValue()),
			clientv3.OpPut("c", "2", clientv3.WithIgnoreLease()),
			clientv3.OpDelete("d", clientv3.WithPrefix(), clientv3.WithPrevKV()),
			clientv3.OpDelete("e", clientv3.WithFromKey()),
			clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Version("z"), "=", 0)}, []clientv3.Op{clientv3.OpPut("z", "")}, []clientv3.Op{clientv3.OpGet("z")}),
		},
		[]clientv3.Op{
			clientv3.OpGet("f", clientv3.WithPrefix(), clientv3.WithLimit(3), clientv3.WithRev(8), clientv3.WithSerializable()),
			clientv3.OpGet("g", clientv3.WithRange("h"), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend)),
			clientv3.OpGet("i", clientv3.WithCountOnly(), clientv3.WithMinModRev(1), clientv3.WithMaxModRev(2), clientv3.WithMinCreateRev(3), clientv3.WithMaxCreateRev(4)),
		},
	)
	if got := txn.Of(txn.Operations(in)); !proto.Equal(got, in) {
		t.Errorf("converted\n%v\nto\n%v", in, got)
	}
}

// The parts built here are those of clientv3.
func TestPartsAreThoseOfClientv3(t *testing.T) {
	t.Parallel()
	got := txn.Of(nil, nil, nil)
	got.Compare = append(got.Compare, txn.CreatedAt([]byte("a"), 1), txn.NoneUnder("b/"), txn.ModifiedAt([]byte("c"), 2), txn.OnLease([]byte("d"), int64(3)))
	got.Success = append(got.Success, txn.Put([]byte("e"), "v", int64(4)), txn.Delete([]byte("f")), txn.Nest(txn.Then(clientv3.OpGet("g"))))
	got.Failure = append(got.Failure, txn.Get([]byte("h")), txn.Range("i/"))
	want := txn.Of(
		[]clientv3.Cmp{
			clientv3.Compare(clientv3.CreateRevision("a"), "=", 1), clientv3.Compare(clientv3.CreateRevision("b/").WithPrefix(), "=", 0),
			clientv3.Compare(clientv3.ModRevision("c"), "=", 2), clientv3.Compare(clientv3.LeaseValue("d"), "=", 3),
		},
		[]clientv3.Op{clientv3.OpPut("e", "v", clientv3.WithLease(4)), clientv3.OpDelete("f"), clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet("g")}, nil)},
		[]clientv3.Op{clientv3.OpGet("h"), clientv3.OpGet("i/", clientv3.WithPrefix())},
	)
	if !proto.Equal(got, want) {
		t.Errorf("built\n%v\nwant\n%v", got, want)
	}
}
