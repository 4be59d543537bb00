package testetcd

import (
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestLayout fails when a new version of etcd has moved the unexported fields
// that this package makes use of. It would get by without, but worse.
func TestLayout(t *testing.T) {
	if _, err := raftNode(Shared(t).Etcd().Server); err != nil {
		t.Error(err)
	}
	var wr clientv3.WatchResponse
	want := errors.New("why")
	if !setCloseErr(&wr, want) || !errors.Is(wr.Err(), want) {
		t.Errorf("the error of a watch response cannot be set: it is %v", wr.Err())
	}
}
