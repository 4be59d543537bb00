package scenarios_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// putRecord puts the record of an action.
func putRecord(t *testing.T, etcd *clientv3.Client, prefix string, at time.Time, why string) {
	t.Helper()
	a := audit.BeginOn(t.Context(), etcd, prefix, "anna", at, audit.PauseQueue, audit.Target{Queue: "q"}, why)
	_, err := etcd.Txn(t.Context()).Then(a.Ops()...).Commit()
	if err := a.End(t.Context(), err); err != nil {
		t.Fatal(err)
	}
}

// An action removes records that are too old. A clock that is ahead does not remove them all.
func TestRecordsAreTrimmed(t *testing.T) {
	t.Parallel()
	etcd, prefix, now := testetcd.Shared(t).Client(t), testetcd.Prefix(t), time.Now()
	var ops []clientv3.Op
	for i := range 100 + 5 {
		at := now.Add(time.Duration(i)*time.Second - audit.MaxAge - time.Hour)
		ops = append(ops, clientv3.OpPut(audit.Under(prefix)+keyspace.Instant(at)+"-x", `{"v":1}`))
	}
	if _, err := etcd.Txn(t.Context()).Then(ops...).Commit(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{6, 2, 3} { // with the new ones
		putRecord(t, etcd, prefix, now.Add(time.Duration(i)*time.Second), "x")
		all, err := audit.Newest(t.Context(), etcd, prefix, 1000, time.Time{})
		if err != nil || len(all) != want {
			t.Errorf("after action %d: %d records, %v; want %d", i+1, len(all), err, want)
		}
	}
}

// Records are listed newest first. One of a newer version hides no other.
func TestNewestRecords(t *testing.T) {
	t.Parallel()
	etcd, prefix, now := testetcd.Shared(t).Client(t), testetcd.Prefix(t), time.Now().UTC()
	putRecord(t, etcd, prefix, now.Add(-2*time.Hour), strings.Repeat("€", 1024))
	newer := audit.Under(prefix) + keyspace.Instant(now.Add(-time.Hour)) + "-y"
	if _, err := etcd.Put(t.Context(), newer, `{"v":2,"who":["a","b"]}`); err != nil {
		t.Fatal(err)
	}
	putRecord(t, etcd, prefix, now, "x")
	all, err := audit.Newest(t.Context(), etcd, prefix, 10, time.Time{})
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	if got := all[0]; got.Why != "x" || got.Who != "anna" || got.Verb != "queue pause" || !got.At.Equal(now) ||
		got.Revision <= all[1].Revision {
		t.Errorf("%+v", got)
	}
	if got := all[1]; !keyspace.IsNewer(got.Err) || !got.At.Equal(now.Add(-time.Hour)) || got.Revision == 0 {
		t.Errorf("of a newer version: %+v", got)
	}
	if got := all[2].Why; len(got) > 1024 || !strings.HasSuffix(got, "€…") {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-10:])
	}
	for since, want := range map[time.Duration]int{time.Minute: 1, 90 * time.Minute: 2} {
		if some, err := audit.Newest(t.Context(), etcd, prefix, 10, now.Add(-since)); err != nil || len(some) != want {
			t.Errorf("since %v: %d records, %v; want %d", since, len(some), err, want)
		}
	}
	if one, err := audit.Newest(t.Context(), etcd, prefix, 1, time.Time{}); err != nil || len(one) != 1 || one[0].Why != "x" {
		t.Errorf("%+v, %v", one, err)
	}
}

// An error of another cause says nothing of permissions, and parts of an action have no record.
func TestActsWithoutRecord(t *testing.T) {
	t.Parallel()
	etcd, prefix := testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	other := errors.New("other")
	a := audit.BeginOn(t.Context(), etcd, prefix, "anna", time.Now(), audit.PauseQueue, audit.Target{}, "")
	a.Ops()
	if err := a.End(t.Context(), other); err != other { //nolint:errorlint // itself
		t.Error(err)
	}
	for name, ctx := range map[string]context.Context{"a part": audit.Part(t.Context()), "a program's": t.Context()} {
		a := audit.BeginOn(ctx, etcd, prefix, "app", time.Now(), audit.CancelItem, audit.Target{}, "")
		if a != nil || a.Ops() != nil || a.End(ctx, other) != other { //nolint:errorlint // itself
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// A client without the permission for records does all that programs do. The error of a call that is for operators names
// the permission, and nothing was changed.
func TestRecordDenied(t *testing.T) {
	t.Parallel()
	server := testetcd.Start(t, testetcd.NoSync())
	withRole(t, server.Client(t), table(t)["Queue"])
	w := granted{TB: t, user: server.ClientWith(t, clientv3.Config{Username: "user", Password: "user"})}
	q, err := queue.New(w.claims(w.user), queue.Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close(context.Background()) }()
	for _, id := range []string{"a", "b"} {
		if _, err := q.Enqueue(t.Context(), queue.NewItem(nil, queue.ID(id))); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Cancel(t.Context(), "a"); err != nil {
		t.Errorf("a program cancels: %v", err)
	}
	got, err := q.TryClaim(t.Context(), 1)
	if err != nil || len(got.Deliveries) != 1 {
		t.Fatal(got, err)
	}
	if err := errors.Join(got.Deliveries[0].Discard(t.Context(), "x"), q.Redrive(t.Context(), "b")); err != nil {
		t.Errorf("a program redrives: %v", err)
	}
	const grant = `grant readwrite on "/etcdclaims/audit/" (docs/permissions.md)`
	for name, err := range map[string]error{
		"pause":                q.Pause(t.Context(), "x"),
		"cancel, for a person": q.Cancel(admin.As(t.Context(), "anna", ""), "b"),
	} {
		if !errors.Is(err, etcdclaims.ErrPermissionDenied) || strings.Count(err.Error(), grant) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s, err := q.Stats(t.Context()); err != nil || !s.Paused.At.IsZero() || s.Ready != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A call that changes nothing leaves no record.
func TestUnchangedIsNotRecorded(t *testing.T) {
	t.Parallel()
	w := newStage(t, testetcd.Shared(t))
	ctx := admin.As(t.Context(), "anna", "INC-1")
	s, err := sched.New(w.operator, sched.Config{Group: "g"})
	w.ok(err)
	w.ok(errors.Join(defineData(ctx, s), defineData(ctx, s)))
	q := w.queue()
	for _, id := range []string{"dead1", "dead2"} { // which cannot be redriven without
		_, err := w.etcd.Delete(ctx, item.NewKeys(w.prefix, item.Spec{Name: "q"}).Content(id))
		w.ok(err)
	}
	if n, err := q.RedriveAll(ctx); n != 0 || err != nil {
		t.Errorf("redriven: %d, %v", n, err)
	}
	all, err := admin.Actions(ctx, w.operator, 100, time.Time{})
	w.ok(err)
	if len(all) != 1 || all[0].Verb != audit.DefineJob.Name {
		t.Errorf("%+v", all)
	}
}
