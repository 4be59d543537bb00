package suspicion

import (
	"testing"

	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type lasting struct{ Lease }

func (lasting) ID() clientv3.LeaseID { return 0 }

// A look leaves a question that stands. If nobody waited meanwhile it is put anew: the client may not have
// heard it.
func TestAQuestionIsPutAnew(t *testing.T) {
	t.Parallel()
	client := memetcd.NewEtcd().Client()
	all := &inquiries{}
	all.Layout = protocol.Layout{Prefix: "/p/", Instance: "me"}
	q := all.newInquiry("other")
	put := func() int64 {
		cmps, then, els := txn.Operations(q.request(lasting{}))
		if _, err := client.Txn(t.Context()).If(cmps...).Then(then...).Else(els...).Commit(); err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get(t.Context(), q.key())
		if err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != q.value {
			t.Fatalf("the question is %v, %v", resp, err)
		}
		return resp.Kvs[0].ModRevision
	}
	first, again := put(), put()
	q.stale = true
	if anew := put(); again != first || anew <= again {
		t.Errorf("put at %d, still there at %d, put anew at %d", first, again, anew)
	}
}
