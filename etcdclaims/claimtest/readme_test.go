package claimtest_test

import (
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
)

// TestReadme is the test that stands in the README.
func TestReadme(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		host := server.Host(t) // the machine your code runs on
		claims := claimtest.NewClient(t, host, etcdclaims.Config{})

		host.Inject(claimtest.Fault{On: claimtest.Acquire, LoseReply: true})
		claim, err := claims.TryAcquire(t.Context(), "invoice/42") // etcd carried it out, but the reply was lost
		if err != nil || claim.Check() != nil {
			t.Fatal("not acquired: ", err)
		}
		server.Revoke(t, claimtest.Key("", "invoice/42")) // "" is the default prefix
		<-claim.Done()
		host.Cut() // and Heal, Kill, Suspend, StepClock; Restart, Restore, FillQuota ...
		if _, err := claims.TryAcquire(t.Context(), "invoice/42"); err == nil {
			t.Fatal("acquired without a network")
		}
	})
}
