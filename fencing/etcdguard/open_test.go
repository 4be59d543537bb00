package etcdguard_test

import (
	"errors"
	"testing"

	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What schedules and queues keep below the prefix may be written under a guard:
// no guard stands on it.
func TestOpenSubtrees(t *testing.T) {
	etcd, prefix := testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	kv := etcdguard.NewKV(etcd, claim(t, newClient(t, etcd, prefix), "k"))
	for _, key := range []string{"sched/a", "queue/a"} {
		if _, err := kv.Put(t.Context(), prefix+key, "1"); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := kv.Delete(t.Context(), prefix+"sched/", clientv3.WithFromKey()); !errors.Is(err, etcdguard.ErrNotGuarded) {
		t.Errorf("a range beyond: %v", err)
	}
}
