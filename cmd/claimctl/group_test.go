package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/explain"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// joins makes a process with a client of its own a member of group "orders".
func (w *world) joins(name string, partitions int, away time.Duration) *group.Member {
	w.Helper()
	cfg := group.Config{Group: "orders", Partitions: partitions, Name: name, Zone: "eu-1", Away: away, Cooldown: -1}
	m, err := group.Join(w.Context(), w.client(name), cfg, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
		<-ctx.Done()
		return nil
	})
	w.noErr(err)
	w.Cleanup(func() { w.noErr(m.Leave(context.Background())) })
	return m
}

func TestGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const partitions = 6
	if out := w.ok("group", "ls", "-o", "json"); out != "[]\n" {
		t.Errorf("of nothing: %q", out)
	}
	w.fails(exitFailure, "no such group", "group", "show", "orders")
	w.fails(exitUsage, "without slashes", "group", "show", "a/b")
	w.fails(exitFailure, "no such group", "group", "remove", "orders", "--yes")
	a, b := w.joins("pod-a", partitions, 0), w.joins("pod-b", partitions, time.Hour)
	eventually(t, "balanced", func() bool {
		v := as[groupView](w, "group", "show", "orders")
		return len(v.MemberList) == 2 && v.MemberList[0].Owns == 3 && v.MemberList[1].Owns == 3 && v.Moving == 0
	})
	if got := as[[]groupView](w, "group", "ls"); len(got) != 1 || got[0].Group != "orders" || got[0].Partitions != partitions || got[0].Members != 2 || got[0].Free != 0 {
		t.Errorf("%+v", got)
	}
	if out := w.ok("group", "ls", "-o", "name"); out != "orders\n" {
		t.Errorf("names: %q", out)
	}
	w.finds(w.ok("group", "show", "orders"), "pod-a", "pod-b", "eu-1", "WANTS", "Partitions: 6")
	owners := a.View().Assignment().Owners
	if got := as[partitionView](w, "group", "show", "orders", "0"); got.Fence != owners[0].Token.Fence || got.Member != owners[0].Member || got.Key != owners[0].Token.Key {
		t.Errorf("partition 0 is %+v, want %+v", got, owners[0])
	}
	w.fails(exitUsage, "from 0 to 5", "group", "show", "orders", "6")
	if got := as[[]partitionView](w, "group", "partitions", "orders", "--member", "pod-a"); len(got) != 3 {
		t.Errorf("%+v", got)
	}
	if lines := strings.Count(w.ok("group", "partitions", "orders", "-o", "jsonl"), "\n"); lines != partitions {
		t.Errorf("%d lines", lines)
	}

	if got := as[[]moveView](w, "group", "plan", "orders"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := as[[]moveView](w, "group", "plan", "orders", "--leave", "pod-b"); len(got) != 3 || got[0].To != "pod-a" {
		t.Errorf("%+v", got)
	}
	if got := as[[]moveView](w, "group", "plan", "orders", "--join", "pod-c=4"); len(got) != 4 || got[0].To != "pod-c" {
		t.Errorf("%+v", got)
	}
	w.fails(exitUsage, "the weight", "group", "plan", "orders", "--join", "pod-c=heavy")
	w.fails(exitFailure, "not a member", "group", "plan", "orders", "--leave", "pod-x")

	w.noErr(b.Leave(t.Context()))
	if got := as[groupView](w, "group", "show", "orders"); got.Away != 1 || got.Free != 3 || got.Reserved != 3 || got.MemberList[1].State != "away" || got.MemberList[1].Until.IsZero() || got.MemberList[1].Reserved != 3 {
		t.Errorf("%+v", got)
	}
	if got := as[[]partitionView](w, "group", "partitions", "orders", "--free"); len(got) != 3 || got[0].Reserved != "pod-b" {
		t.Errorf("%+v", got)
	}
	w.fails(exitUsage, "--reason is required", "group", "evict", "orders", "pod-b")
	w.fails(exitUsage, "shorter", "group", "evict", "orders", "pod-b", "--reason", "x", "--for", "1ms")
	w.fails(exitFailure, "no such group", "group", "evict", "none", "pod-b", "--reason", "x")
	w.finds(w.ok("group", "evict", "orders", "pod-a", "--reason", "hangs, INC-311", "--for", "30m"), `evicted "pod-a" from group "orders" until`, "INC-311")
	<-a.Done()
	if err := a.Err(); err == nil || !strings.Contains(err.Error(), "evicted by operator") || !strings.Contains(err.Error(), "INC-311") {
		t.Errorf("pod-a left with %v", err)
	}
	if got := as[groupView](w, "group", "show", "orders").MemberList[0]; got.State != "evicted" || got.Why != "hangs, INC-311" || got.By != "operator" || got.Until.IsZero() {
		t.Errorf("%+v", got)
	}
	w.ok("group", "readmit", "orders", "pod-a")
	c := w.joins("pod-a", partitions, 0)
	w.fails(exitFailure, "in use", "group", "remove", "orders", "--yes")
	w.noErr(c.Leave(t.Context()))
	w.ok("group", "remove", "orders", "--yes")
	if out := w.ok("group", "ls", "-o", "jsonl"); out != "" {
		t.Errorf("after the removal: %q", out)
	}
}

// An owner that is not on the list is shown with its name.
func TestGroupUnlisted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.joins("pod-a\u202e", 2, 0)
	eventually(t, "owned", func() bool { return as[groupView](w, "group", "show", "orders").Free == 0 })
	if out := w.ok("group", "show", "orders"); strings.Contains(out, "\u202e") || !strings.Contains(out, `pod-a\u202e`) {
		t.Errorf("a name is not escaped: %s", out)
	}
	resp, err := w.etcd.Get(t.Context(), w.prefix+"group/", clientv3.WithPrefix())
	w.noErr(err)
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Key), "/member/") {
			_, err := w.etcd.Put(t.Context(), string(kv.Key), `{"v":9}`)
			w.noErr(err)
		}
	}
	v := as[groupView](w, "group", "show", "orders")
	if len(v.MemberList) != 2 || v.MemberList[0].State != explain.StateUnreadable || v.MemberList[1].State != explain.StateUnlisted || v.MemberList[1].Owns != 2 {
		t.Errorf("%+v", v)
	}
}
