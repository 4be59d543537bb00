package etcdguard

import (
	"errors"
	"testing"

	"github.com/etcdclaims/claims/internal/refusals"
	"github.com/etcdclaims/claims/internal/txn"
)

// A batch is taken apart after a refusal that the same request would meet again, and only then.
func TestBatchIsTakenApartAfterFinalRefusals(t *testing.T) {
	t.Parallel()
	all, err := refusals.OfEtcd()
	if err != nil {
		t.Fatal(err)
	}
	for _, some := range []map[string]error{all, refusals.Others()} {
		for name, err := range some {
			if got, want := oneMaySpoilAll(refusedError{err}), txn.Judge(err) == txn.Final; got != want {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	}
	for _, name := range []string{"InvalidAuthToken", "AuthOldRevision", "NotSupportedForLearner"} {
		if oneMaySpoilAll(refusedError{all[name]}) {
			t.Errorf("%s concerns all calls", name)
		}
	}
	if !oneMaySpoilAll(refusedError{all["PermissionDenied"]}) || oneMaySpoilAll(errors.New("another")) {
		t.Error("a permission that is missing concerns one call")
	}
}
