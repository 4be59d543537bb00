package main

import (
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What a newer version wrote is named as that, and no command to delete it is offered.
func TestNewerValues(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	ctx, c := t.Context(), w.client("api-7")
	put := func(key string, opts ...clientv3.OpOption) {
		t.Helper()
		_, err := w.etcd.Put(ctx, key, `{"v":99,"claim":{"id":1},"owner":"x"}`, opts...)
		w.noErr(err)
	}
	lease, err := w.etcd.Grant(ctx, 60)
	w.noErr(err)
	put(w.prefix+"own/leased", clientv3.WithLease(lease.ID))
	put(w.prefix + "own/lasting")
	put(w.prefix + "work/paid")
	put(w.prefix + "wait/0123456789abcdef0123456789abcdef/1")
	q, err := queue.New(c, queue.Config{Name: "mail"})
	w.noErr(err)
	_, err = q.Enqueue(ctx, queue.NewItem(nil, queue.ID("m1")))
	w.noErr(err)
	stored, err := w.etcd.Get(ctx, w.prefix, clientv3.WithPrefix())
	w.noErr(err)
	for _, kv := range stored.Kvs {
		if key := string(kv.Key); strings.Contains(key, "/content/") {
			put(key)
		}
	}
	for args, code := range map[string]int{
		"explain leased": 0, "explain lasting": 0, "explain paid": 0, "work show paid": 1,
		"queue show mail m1": 1, "doctor": 1,
	} {
		out := w.types(code, strings.Fields(args)...)
		w.finds(out, "written by a newer version")
		for _, destructive := range []string{" release ", " forget ", " del ", "overdue"} {
			if strings.Contains(out, destructive) {
				t.Errorf("%s offers %q: %s", args, destructive, out)
			}
		}
	}
	w.finds(w.ok("ls"), "leased", "newer")
}
