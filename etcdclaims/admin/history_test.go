package admin_test

import (
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/memetcd"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What History keeps in memory is bounded by what it returns, not by what etcd has.
func TestHistoryKeepsFewTerms(t *testing.T) {
	c, err := etcdclaims.New(memetcd.NewEtcd().Client(), etcdclaims.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if most, older := admin.MostTermsKept(c, 10, 10_005); most > 20 || older != 10_005-10 {
		t.Errorf("it kept %d terms, and dropped %d", most, older)
	}
}
