package txn_test

import (
	"fmt"
	"testing"

	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// A joint transaction does what the nested ones do, and its reply in parts is theirs, while all
// conditions hold. Otherwise it does nothing.
func TestJoin(t *testing.T) {
	t.Parallel()
	absent := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }
	one := func(key string) clientv3.Op {
		return clientv3.OpTxn([]clientv3.Cmp{absent(key)},
			[]clientv3.Op{clientv3.OpGet("read"), clientv3.OpPut(key, "new"), clientv3.OpDelete("of " + key)},
			[]clientv3.Op{clientv3.OpGet(key)})
	}
	in := txn.Of([]clientv3.Cmp{absent("none")}, []clientv3.Op{
		clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("before", "")}, nil), one("a"), clientv3.OpPut("between", ""), one("b"), one("c"),
	}, []clientv3.Op{clientv3.OpGet("none")})
	for there, want := range map[string]struct{ holds, same, again bool }{
		"read": {true, true, false}, "of b": {true, true, false}, "none": {false, true, false}, "b": {false, false, true},
	} {
		carryOut := func(in *pb.TxnRequest) (resp *pb.TxnResponse, kvs string) {
			etcd := memetcd.NewEtcd()
			client := etcd.Client()
			if _, err := client.Txn(t.Context()).Then(clientv3.OpPut(there, "old")).Commit(); err != nil {
				t.Fatal(err)
			}
			cmps, then, els := txn.Operations(in)
			got, err := client.Txn(t.Context()).If(cmps...).Then(then...).Else(els...).Commit()
			if err != nil {
				t.Fatal(err)
			}
			all, err := client.Get(t.Context(), "", clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			return (*pb.TxnResponse)(got), fmt.Sprint(all.Kvs)
		}
		nested, after := carryOut(in)
		joint, joined := carryOut(txn.Join(in, 1))
		if joint.Succeeded != want.holds || (after == joined) != want.same {
			t.Errorf("%q is there: the joint transaction succeeded: %v, left %s, the nested ones %s", there, joint.Succeeded, joined, after)
		}
		parts := txn.Part(in, 1, joint)
		if want.again != (parts == nil) || parts != nil && !proto.Equal(parts, nested) {
			t.Errorf("%q is there: reply %v, want %v", there, parts, nested)
		}
	}
}
