package etcdclaims_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A process that is cut off for a minute is not the owner any more, and its late write is refused.
func TestLateWriteIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		slow, other := server.Host(t), server.Host(t) // two machines
		first := claimtest.NewClient(t, slow, etcdclaims.Config{})
		second := claimtest.NewClient(t, other, etcdclaims.Config{})

		slow.Inject(claimtest.Fault{On: claimtest.Acquire, LoseReply: true})
		claim, err := first.TryAcquire(t.Context(), "invoice/42") // etcd carries it out, and the reply is lost
		if err != nil {
			t.Fatal(err)
		}
		slow.Cut()
		time.Sleep(time.Minute) // virtual: takes no real time
		next, err := second.TryAcquire(t.Context(), "invoice/42")
		if err != nil || next.Fence() <= claim.Fence() {
			t.Fatal("not acquired with a greater fence: ", err)
		}
		slow.Heal()
		_, err = claim.Txn(t.Context()).Then(clientv3.OpPut("/paid/42", "100 EUR")).Commit()
		if !errors.Is(err, etcdclaims.ErrLost) {
			t.Error("the late write: ", err)
		}
	})
}
