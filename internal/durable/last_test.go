package durable

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLastKey(t *testing.T) {
	t.Parallel()
	if got := LastKey("/etcdclaims/"); got != "/etcdclaims.counts" {
		t.Error(got)
	}
}
