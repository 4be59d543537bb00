package doctor

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Partitions that nobody owns although there are members, such as one whose lease is gone.
func TestPartitionGroups(t *testing.T) {
	t.Parallel()
	e, etcd := examine(t)
	ctx := t.Context()
	check := func() {
		t.Helper()
		e.Findings = nil
		e.partitionGroups(ctx)
	}
	check()
	e.has(t, OK, "groups", "0 groups")
	claims := claimtest.NewClient(t, testclaims.EtcdFunc(func(testing.TB) *clientv3.Client { return etcd }), etcdclaims.Config{Prefix: e.Claims.Prefix(), Owner: "pod-a"})
	cfg := group.Config{Group: "orders", Partitions: 4, Name: "pod-a", Away: time.Hour}
	m, err := group.Join(ctx, claims, cfg, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
		<-ctx.Done()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range m.View().Watch(ctx) {
		if a := m.View().Assignment(); a.Owners[0].Member != "" && a.Owners[1].Member != "" && a.Owners[2].Member != "" && a.Owners[3].Member != "" {
			break
		}
	}
	check()
	e.has(t, OK, "groups", "1 group")

	// Another member is on the list whose lease is gone, and that claims nothing.
	root := ""
	resp, err := etcd.Get(ctx, e.Claims.Prefix()+"group/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		if before, found := strings.CutSuffix(string(kv.Key), "spec"); found {
			root = before
		}
	}
	if _, err := etcd.Put(ctx, root+"member/pod-b", `{"v":1,"instance":"x","weight":1,"since":"2026-01-01T00:00:00Z"}`); err != nil {
		t.Fatal(err)
	}
	check()
	e.has(t, OK, "groups", "1 group")    // pod-a has all
	if err := m.Leave(ctx); err != nil { // its partitions are reserved: nobody is to own them
		t.Fatal(err)
	}
	check()
	for _, f := range e.Findings {
		if f.Level != OK {
			t.Errorf("reserved partitions are missed: %+v", f)
		}
	}
	if _, err := etcd.Delete(ctx, root+"away/pod-a"); err != nil {
		t.Fatal(err)
	}
	check()
	e.has(t, Warning, "groups", `group "orders" has 1 member, and nobody owns 4 partitions: 00000, 00001, 00002 and 1 more, which pod-b is to have`)
	if commands := e.Findings[0].Commands; len(commands) != 2 || !strings.Contains(commands[0], "group show orders") || !strings.Contains(commands[1], "group evict") {
		t.Errorf("commands: %q", commands)
	}
	if _, err := etcd.Delete(ctx, root+"member/pod-b"); err != nil {
		t.Fatal(err)
	}
	check()
	e.has(t, OK, "groups", "1 group")
}
