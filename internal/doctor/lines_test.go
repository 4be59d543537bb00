package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/testwork"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// waits puts a place in line, with a lease of its own.
func (e *Examination) waits(t *testing.T, line, owner string, since time.Time) {
	t.Helper()
	lease, err := e.etcd().Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	name := e.Claims.Prefix() + "wait/" + keyspace.Digest(line) + "/" + owner
	if _, err := e.etcd().Put(t.Context(), name, fmt.Sprintf(`{"v":1,"claim":%q,"owner":%[1]q,"since":%q}`, owner, explain.Stamp(since)), clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
}

// Two runs over the same etcd give the same examples: the oldest.
func TestSameExamples(t *testing.T) {
	t.Parallel()
	e, etcd := examine(t)
	ctx := t.Context()
	var want []string
	leases := map[clientv3.LeaseID]bool{}
	for i := range 8 {
		owner := fmt.Sprint("w", 7-i)
		want = append(want, owner)
		e.waits(t, owner, owner, time.Now())
		lease, err := etcd.Grant(ctx, 600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := etcd.Revoke(ctx, lease.ID); err != nil {
			t.Fatal(err)
		}
		leases[lease.ID] = true
	}
	places, err := e.places(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range heads(places, nil)[:3] {
		got = append(got, p.Owner)
	}
	if !slices.Equal(got, want[:3]) {
		t.Errorf("%q, want %q", got, want[:3])
	}
	e.Leases = 3
	first, _ := e.goneLeases(ctx, leases)
	for range 5 {
		again, _ := e.goneLeases(ctx, leases)
		for id := range again {
			if !first[id] {
				t.Fatal("other leases were asked for")
			}
		}
	}
}

// Work that is at most once is told from work that is begun again by itself.
func TestWorkAtMostOnce(t *testing.T) {
	t.Parallel()
	e, etcd := examine(t)
	e.Commands.Claimctl = "claimctl"
	ctx := t.Context()
	for key, opts := range map[string][]work.Option{"again": nil, "once": {work.AtMostOnce()}, "failed": {work.AtMostOnce()}} {
		job, err := testwork.Of(e.Claims).TryBegin(ctx, key, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if key == "failed" {
			_, err = job.Fail(ctx, etcdclaims.Permanent(fmt.Errorf("no such account")))
		} else {
			_, err = etcd.Delete(ctx, e.Claims.Prefix()+"own/"+key) // as when its lease ends
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	e.work(ctx)
	e.has(t, Warning, "work", "1 orphaned, their owners died: again")
	e.has(t, Warning, "work", "1 orphaned and at most once, which no caller begins again: once")
	e.has(t, Warning, "work", "1 dead and at most once: failed")
	for _, f := range e.Findings {
		if strings.Contains(f.Detail, "at most once") != strings.Contains(f.Remedy, "find out whether the effect happened") {
			t.Errorf("%+v", f)
		}
	}
}

// A line for slots waits for their holders, as for that of a key, if none of them is free.
func TestLineForSlots(t *testing.T) {
	t.Parallel()
	line := keyspace.Digest(keyspace.SlotFamily("gpus"))
	places := []place{{name: "first", digest: line, revision: 5}, {name: "second", digest: line, revision: 9}}
	held := []etcdclaims.Info{{Key: "gpus", Kind: "slots", Slots: 2}}
	for slot := range 2 {
		if first := heads(places, held); len(first) != 1 || first[0].name != "first" {
			t.Errorf("with %d slots held: %+v", slot, first)
		}
		held = append(held, etcdclaims.Info{Key: etcdclaims.SlotKey("gpus", slot)})
	}
	if first := heads(places, held); len(first) != 0 {
		t.Errorf("with all slots held: %+v is first of a free key", first)
	}
}
