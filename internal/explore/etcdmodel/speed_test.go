package etcdmodel_test

import (
	"fmt"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/explore/values"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// tenKeys returns an etcd with ten keys of claims, and no history.
func tenKeys(b *testing.B) etcdmodel.State {
	b.Helper()
	m, _ := etcdmodel.New(1).Grant(1)
	for i := range 10 {
		value := fmt.Sprintf(`{"v":1,"claim":"%032d","owner":"worker-%d","instance":"%032d","ttl":15}`, i, i, i)
		put := txn.Put(fmt.Appendf(nil, "/etcdclaims/own/orders/%d", i), value, int64(1))
		next, _, err := m.Txn(&pb.TxnRequest{Success: []*pb.RequestOp{put}})
		if err != nil {
			b.Fatal(err)
		}
		m = next
	}
	return m.Compact(m.Revision())
}

// BenchmarkTxn carries out a transaction with four conditions and two puts.
func BenchmarkTxn(b *testing.B) {
	m := tenKeys(b)
	key := func(i int) []byte { return fmt.Appendf(nil, "/etcdclaims/own/orders/%d", i) }
	in := &pb.TxnRequest{
		Compare: []*pb.Compare{
			txn.CreatedAt(key(3), 5), txn.ModifiedAt(key(7), 9), txn.OnLease(key(7), int64(1)), txn.NoneUnder("/etcdclaims/wait/"),
		},
		Success: []*pb.RequestOp{txn.Put(key(3), "value", int64(1)), txn.Put(key(10), "value", int64(1))},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, resp, err := m.Txn(in); err != nil || !resp.Succeeded {
			b.Fatal(resp, err)
		}
	}
}

// BenchmarkWalk takes a state with ten keys apart.
func BenchmarkWalk(b *testing.B) {
	m, to := tenKeys(b), values.Code(nil)
	b.ReportAllocs()
	for b.Loop() {
		to = to[:0]
		m.Walk(&to, func() {})
	}
}
