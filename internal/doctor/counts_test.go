package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/durable"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What is deleted by hand is an error until somebody mends it, also if all keys below the prefix are gone. What
// operators removed is none.
func TestCounts(t *testing.T) {
	t.Parallel()
	e, etcd := examine(t)
	e.Thorough = true
	ctx, prefix := t.Context(), e.Claims.Prefix()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	look := func(level Level, texts ...string) {
		t.Helper()
		e.Findings = nil
		e.counts(ctx)
		if len(e.Findings) != 1 || e.Findings[0].Level != level {
			t.Fatalf("%+v, want %s", e.Findings, level)
		}
		for _, text := range texts {
			if !strings.Contains(e.Findings[0].Detail+" "+strings.Join(e.Findings[0].Commands, " "), text) {
				t.Errorf("%+v does not have %q", e.Findings[0], text)
			}
		}
		last, err := durable.ReadLast(ctx, etcd, prefix)
		ok(err)
		if level == OK && last.Revision != 0 { // a day passes
			last.At = time.Date(2006, 1, 2, 0, 0, 0, 0, time.UTC)
			_, err = etcd.Put(ctx, durable.LastKey(prefix), keyspace.Encode(last))
			ok(err)
		}
	}
	look(OK, "nothing")
	q, err := queue.New(e.Claims, queue.Config{Name: "mails"})
	ok(err)
	bury := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			_, err := q.Enqueue(ctx, queue.NewItem(nil, queue.ID(id)))
			ok(err)
		}
		got, err := q.TryClaim(ctx, len(ids))
		ok(err)
		for _, d := range got.Deliveries {
			ok(d.Discard(ctx, "x"))
		}
	}
	letters := []string{"1", "2", "3", "4", "5"}
	bury(letters...)
	ok(q.Pause(ctx, "x"))
	s, err := sched.New(e.Claims, sched.Config{Group: "g"})
	ok(err)
	_, err = s.Define(ctx, sched.Definition{Name: "j", Schedule: "0 0 1 1 *", Kind: "k"})
	ok(err)
	look(OK, "queues: 1; queue pauses: 1; dead letters: 5; job definitions: 1")
	look(OK)
	n, err := q.Purge(ctx, time.Now().Add(time.Hour))
	if err != nil || n != len(letters) {
		t.Fatal(n, err)
	}
	ok(q.Resume(ctx))
	ok(s.Undefine(admin.As(ctx, "anna", ""), "j", sched.AnyVersion))
	look(OK, "queues: 1")
	bury(letters...)
	ok(q.Pause(ctx, "x"))
	look(OK)
	ok(q.Close(ctx)) // it would put its spec back
	for range 2 {    // it is still there a day later
		_, err = etcd.Delete(ctx, prefix, clientv3.WithPrefix())
		ok(err)
		look(Error, "since 2006-01-02", "queues: 0, were 1; queue pauses: 0, were 1; dead letters: 0, were 5",
			"restore -f BACKUP", "del "+durable.LastKey(prefix))
	}
	_, err = etcd.Delete(ctx, durable.LastKey(prefix))
	ok(err)
	look(OK, "nothing")
}
