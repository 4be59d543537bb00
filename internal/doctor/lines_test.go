package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/option"
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
	if _, err := e.etcd().Put(t.Context(), name, fmt.Sprintf(`{"v":1,"claim":%q,"owner":%[1]q,"since":%q}`, owner, Stamp(since)), clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
}

// A line whose first has waited for long is reported while the holder renews, the oldest first.
func TestStuckKey(t *testing.T) {
	t.Parallel()
	e, etcd := examine(t)
	ctx := t.Context()
	for key, opts := range map[string][]etcdclaims.AcquireOption{
		"orders/42": nil, "leader/mailer": nil, "busy": nil, "sched/billing/owner": {option.OwnKey{}}, "licence": {etcdclaims.Slots(1)}, "pool": {etcdclaims.Slots(2)},
	} {
		if _, err := e.Claims.TryAcquire(ctx, key, opts...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := etcd.Put(ctx, e.Claims.Prefix()+"own/forever", `{"v":1}`); err != nil { // is reported as such
		t.Fatal(err)
	}
	now := time.Now()
	e.waits(t, "orders/42", "api-8", now.Add(-20*time.Minute))
	e.waits(t, "orders/42", "api-9", now.Add(-30*time.Minute)) // is behind api-8, and its clock is off
	e.waits(t, "leader/mailer", "standby", now.Add(-40*time.Minute))
	e.waits(t, "busy", "api-8", now.Add(-time.Minute))
	e.waits(t, "sched/billing/owner", "cron-2", now.Add(-time.Hour))
	e.waits(t, "forever", "api-8", now.Add(-time.Hour))
	e.waits(t, keyspace.SlotFamily("licence"), "api-8", now.Add(-18*time.Minute))
	lines := func() Finding {
		t.Helper()
		e.Findings = nil
		h, err := e.holders(ctx)
		if err != nil {
			t.Fatal(err)
		}
		e.lines(ctx, h)
		if len(e.Findings) != 1 || e.Findings[0].Check != "lines" {
			t.Fatalf("%+v", e.Findings)
		}
		return e.Findings[0]
	}
	f := lines()
	want := fmt.Sprintf("the first in line waits for more than 15m0s while the holder renews: "+
		"leader/mailer (standby since %s, 1 in line, held by a), orders/42 (api-8 since %s, 2 in line, held by a), licence (api-8 since %s, 1 in line, held by a)",
		Stamp(now.Add(-40*time.Minute)), Stamp(now.Add(-20*time.Minute)), Stamp(now.Add(-18*time.Minute)))
	if f.Level != Note || f.Detail != want || !strings.Contains(f.Remedy, "explain KEY") {
		t.Errorf("%+v, want %s", f, want)
	}
	e.Stuck, e.Standby = 19*time.Minute, []string{"leader/"}
	if f := lines(); f.Level != Warning || strings.Contains(f.Detail, "leader/") || strings.Contains(f.Detail, "licence") || !strings.Contains(f.Detail, "more than 19m0s") || !strings.Contains(f.Detail, "orders/42") {
		t.Errorf("%+v", f)
	}
	e.Stuck = time.Hour
	if f := lines(); f.Level != OK {
		t.Errorf("%+v", f)
	}
}

// A key whose holder does not renew is free soon, without anybody's doing.
func TestDeadHolderIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		host := server.Host(t)
		a := claimtest.NewClient(t, host, etcdclaims.Config{Owner: "a"})
		b := claimtest.NewClient(t, server.Host(t), etcdclaims.Config{Owner: "b"})
		e := &Examination{Claims: claimtest.NewClient(t, server.Host(t), etcdclaims.Config{}), Limit: 100, Leases: 100, Patience: 5 * time.Second}
		if _, err := a.TryAcquire(t.Context(), "orders/42"); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() { _, err := b.Acquire(t.Context(), "orders/42"); got <- err }()
		lines := func() Finding {
			t.Helper()
			e.Findings = nil
			h, err := e.holders(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			e.lines(t.Context(), h)
			return e.Findings[0]
		}
		time.Sleep(20 * time.Minute)
		if f := lines(); f.Level != Note || !strings.Contains(f.Detail, "orders/42 (b since 2000-01-01T00:00:0") || !strings.Contains(f.Detail, "Z, 1 in line, held by a)") {
			t.Errorf("%+v", f)
		}
		host.Cut()
		time.Sleep(9 * time.Second)
		if f := lines(); f.Level != OK || f.Detail != "1 in line" {
			t.Errorf("%+v", f)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		host.Heal()
	})
}

// A waiter without a lease does not wait any more.
func TestLiving(t *testing.T) {
	t.Parallel()
	all := []place{{name: "none"}, {name: "gone", lease: 1}, {name: "alive", lease: 2}}
	if got := living(all, map[clientv3.LeaseID]bool{1: true}); len(got) != 1 || got[0].name != "alive" || all[0].name != "none" {
		t.Errorf("%+v of %+v", got, all)
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
	deaf, err := e.unserved(ctx, holders{}, places)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range deaf {
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
		if strings.Contains(f.Detail, "at most once") != strings.Contains(f.Remedy, "find out whether the effect happened. If not: claimctl work retry KEY") {
			t.Errorf("%+v", f)
		}
	}
}

// A line for slots waits for their holders, as for that of a key, if none of them is free.
func TestLineForSlots(t *testing.T) {
	t.Parallel()
	now := time.Now()
	line := keyspace.Digest(keyspace.SlotFamily("gpus"))
	places := []place{{name: "first", digest: line, revision: 5, Since: now.Add(-time.Hour)}, {name: "second", digest: line, revision: 9, Since: now.Add(-time.Hour)}}
	held := []etcdclaims.Info{{Key: "gpus", Kind: "slots", Slots: 2}}
	for slot := range 2 {
		if first := heads(places, held)[line]; first.name != "first" || len(longLines(held, places, now)) != 0 {
			t.Errorf("with %d slots held: %+v is first, and waits for holders", slot, first)
		}
		held = append(held, etcdclaims.Info{Key: etcdclaims.SlotKey("gpus", slot)})
	}
	if first, ok := heads(places, held)[line]; ok || len(longLines(held, places, now)) != 1 {
		t.Errorf("with all slots held: %+v is first of a free key", first)
	}
}
