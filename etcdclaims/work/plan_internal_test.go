package work

import (
	"testing"

	"github.com/etcdclaims/claims/internal/record"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// An orphan was claimed by somebody else.
func TestPlanOfAnOrphan(t *testing.T) {
	t.Parallel()
	claimed := record.Record{State: StateClaimed, Attempt: 2, Claim: "c"}
	w := plan{known: record.Known{Key: "k"}}
	w.Changed(&mvccpb.KeyValue{Value: []byte(claimed.Value().Encode()), ModRevision: 5})
	if w.Granted(true) || !w.Granted(false) {
		t.Error("an orphan is what was not superseded")
	}
}
