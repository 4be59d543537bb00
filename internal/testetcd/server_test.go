package testetcd_test

import (
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

func TestServerRestart(t *testing.T) {
	t.Parallel()
	s := testetcd.Start(t)
	c := s.Client(t)
	rev := put(t, c, "/k", "v")
	// An open watch must not delay the end of the server.
	w := c.Watch(t.Context(), "/k", clientv3.WithRev(rev+1))
	before, endpoints := s.Etcd(), s.Endpoints()

	s.Stop(t)
	if s.Etcd() != nil {
		t.Error("stopped, but there is an etcd")
	}
	s.Stop(t) // nothing to do
	s.Restart(t)
	if s.Etcd() == before {
		t.Error("restarted, but etcd is the same")
	}
	if got := s.Endpoints(); got[0] != endpoints[0] {
		t.Errorf("endpoint went from %v to %v", endpoints, got)
	}
	if v := get(t, s.Client(t), "/k"); v != "v" {
		t.Errorf("value after restart is %q", v)
	}
	put(t, s.Client(t), "/k", "w")
	if resp := <-w; len(resp.Events) != 1 || string(resp.Events[0].Kv.Value) != "w" {
		t.Errorf("watch got %+v", resp)
	}
	s.Restart(t) // stops it first
	if v := get(t, s.Client(t), "/k"); v != "w" {
		t.Errorf("value after second restart is %q", v)
	}
}

func TestServerLeasesKeepTheirMinimum(t *testing.T) {
	t.Parallel()
	resp, err := testetcd.Shared(t).Client(t).Grant(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if resp.TTL != 2 {
		t.Errorf("the shortest lease is %d s, want etcd's default of 2", resp.TTL)
	}
}

func TestServerOptions(t *testing.T) {
	t.Parallel()
	s := testetcd.Start(t, testetcd.MaxTxnOps(3), testetcd.Quota(5<<19), testetcd.NoSync(),
		testetcd.Tweak(func(cfg *embed.Config) { cfg.MaxRequestBytes = 3 << 20 }))
	checkOptions(t, s.Client(t))
	if cfg := s.Etcd().Config(); !cfg.UnsafeNoFsync {
		t.Error("fsync is on")
	}
	if cfg := testetcd.Shared(t).Etcd().Config(); cfg.UnsafeNoFsync {
		t.Error("fsync is off by default")
	}
}

// checkOptions looks for the effect of MaxTxnOps(3), Quota(2.5 MiB) and a
// maximum request of 3 MiB.
func checkOptions(t *testing.T, c *clientv3.Client) {
	t.Helper()
	ops := []clientv3.Op{clientv3.OpGet("/a"), clientv3.OpGet("/b"), clientv3.OpGet("/c"), clientv3.OpGet("/d")}
	if _, err := c.Txn(deadline(t)).Then(ops[:3]...).Commit(); err != nil {
		t.Errorf("three operations: %v", err)
	}
	if _, err := c.Txn(deadline(t)).Then(ops...).Commit(); !errors.Is(err, rpctypes.ErrTooManyOps) {
		t.Errorf("four operations: got %v, want %v", err, rpctypes.ErrTooManyOps)
	}
	// What counts is the size of the file, which grows when the backend commits.
	big := string(make([]byte, 1900<<10)) // clients send no more than 2 MiB by default
	put(t, c, "/big", big)
	ctx := deadline(t)
	for {
		_, err := c.Put(ctx, "/big", big)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatalf("beyond the quota: got %v, want %v", err, rpctypes.ErrNoSpace)
		}
		time.Sleep(100 * time.Millisecond) // it commits by the clock, which requests do not move in a bubble
	}
}
