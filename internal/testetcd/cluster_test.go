package testetcd_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for elections")
	}
	t.Parallel()
	cl := testetcd.StartCluster(t, 3)
	if cl.Len() != 3 || len(cl.Endpoints()) != 3 {
		t.Fatalf("%d members with endpoints %v", cl.Len(), cl.Endpoints())
	}
	c := cl.Client(t)
	put(t, c, "/k", "v")
	for i := range 3 {
		if !slices.Contains(cl.Endpoints(), cl.Member(i).Endpoints()[0]) {
			t.Errorf("member %d is not among the endpoints", i)
		}
		if v := get(t, cl.Member(i).Client(t), "/k"); v != "v" {
			t.Errorf("member %d has %q", i, v)
		}
	}

	for _, to := range []int{0, 1, 2, 2} {
		for try := 1; ; try++ { // on a busy machine another may be elected at once
			cl.MoveLeader(t, to)
			got := cl.Leader(t)
			resp, err := cl.Member(to).Client(t).Status(deadline(t), cl.Member(to).Endpoints()[0])
			if err != nil {
				t.Fatal(err)
			}
			if got == to && resp.Leader == resp.Header.MemberId {
				break
			}
			if try == 5 {
				t.Fatalf("leader is %d, want %d, which takes %x for the leader and is %x", got, to, resp.Leader, resp.Header.MemberId)
			}
		}
	}

	cl.Stop(t, 2)
	if got := cl.Leader(t); got == 2 {
		t.Error("the stopped member leads")
	}
	put(t, cl.Member(0).Client(t), "/k", "w")
	cl.Restart(t, 2)
	if v := get(t, cl.Member(2).Client(t), "/k"); v != "w" {
		t.Errorf("restarted member has %q", v)
	}

	for i := range 3 {
		cl.Stop(t, i)
	}
	for i := range 3 {
		cl.Restart(t, i) // the first has no quorum yet, and must not wait for it
	}
	cl.Leader(t)
	if v := get(t, cl.Member(0).Client(t), "/k"); v != "w" {
		t.Errorf("after all have stopped the value is %q", v)
	}
}

func TestWatchNeedsLeader(t *testing.T) {
	testetcd.SkipUnlessLong(t, "waits for elections")
	t.Parallel()
	cl := testetcd.StartCluster(t, 3, testetcd.NoSync())
	ctx := deadline(t)
	type watches struct{ patient, demanding clientv3.WatchChan }
	open := make(map[string]watches)
	for _, k := range kinds {
		c, _ := k.client(t, cl.Member(0))
		open[k.name] = watches{c.Watch(ctx, "/k"), c.Watch(clientv3.WithRequireLeader(ctx), "/k")}
	}
	cl.Stop(t, 1)
	cl.Stop(t, 2)
	for name, w := range open {
		resp := <-w.demanding
		if err := resp.Err(); !errors.Is(err, rpctypes.ErrNoLeader) || !resp.Canceled {
			t.Errorf("%s: got %+v, want %v", name, resp, rpctypes.ErrNoLeader)
		}
		wantClosed(t, w.demanding)
		select {
		case resp, ok := <-w.patient:
			t.Errorf("%s: got %+v, %v without asking for a leader", name, resp, ok)
		default:
		}
	}
	cl.Restart(t, 1)
	put(t, cl.Member(1).Client(t), "/k", "v")
	for name, w := range open {
		if resp := <-w.patient; len(resp.Events) != 1 {
			t.Errorf("%s: got %+v after the leader has returned", name, resp)
		}
	}
}
