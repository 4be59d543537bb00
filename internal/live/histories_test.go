package live

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A reply that comes late does not replace what a newer one has shown, until etcd was restored.
func TestHistoryIgnoresLateReplies(t *testing.T) {
	const prefix = "/past/a/"
	h := NewHistories(len(prefix))
	use := func() { h.Of(prefix, 5) }
	learn := func(rev int64, count int) {
		got := &pb.RangeResponse{Count: int64(count)}
		for i := range count {
			got.Kvs = append(got.Kvs, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "%s%020d-x", prefix, i)})
		}
		h.LearnOf(rev, got)
	}
	use()
	learn(10, 6)
	learn(9, 5) // late
	if len(h.Excess(1)) != 1 {
		t.Error("the excess record was forgotten")
	}
	learn(11, 5)
	learn(9, 8)
	if len(h.Excess(1)) != 0 {
		t.Error("records of the past were found in excess")
	}
	h.ForgetAll()
	use()
	learn(3, 7)
	if len(h.Excess(1)) != 1 {
		t.Error("nothing was learned after a restore")
	}
}
