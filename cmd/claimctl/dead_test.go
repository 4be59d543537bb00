package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An error of redrive-all or purge counts the items that were changed before it.
func TestDeadCountedInError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	q, err := queue.New(w.client("a"), queue.Config{Name: "q", MaxAttempts: 1})
	w.noErr(err)
	for _, id := range []string{"x", "y", "z"} {
		_, err := q.Enqueue(t.Context(), queue.NewItem([]byte(id), queue.ID(id)))
		w.noErr(err)
		batch, err := q.TryClaim(t.Context(), 1)
		w.noErr(err)
		_, err = batch.Deliveries[0].Fail(t.Context(), errors.New("no"))
		w.noErr(err)
	}
	w.noErr(q.Close(t.Context()))
	for _, args := range [][]string{{"purge", "q"}, {"redrive-all", "q"}, {"purge", "q", "--older-than", "1h"}} {
		want := "x\ny\nz\n"
		if len(args) > 2 {
			want = ""
		}
		if out := w.ok(append(append([]string{"queue", "dead"}, args...), "--dry-run", "-o", "name")...); out != want {
			t.Errorf("%q would change %q, want %q", args, out, want)
		}
	}
	w.fails(exitUsage, "repeat with --yes", "queue", "dead", "purge", "q")
	w.fails(exitUnreachable, "removed before: 0", "queue", "dead", "purge", "q", "--yes", "--timeout", "1ns")
	w.fails(exitUnreachable, "redriven before: 0", "queue", "dead", "redrive-all", "q", "--timeout", "1ns")
	place, err := w.etcd.Get(t.Context(), w.prefix, clientv3.WithPrefix())
	w.noErr(err)
	for _, kv := range place.Kvs {
		if strings.HasSuffix(string(kv.Key), "/place/z") {
			_, err := w.etcd.Put(t.Context(), string(kv.Key), `{"v":99}`)
			w.noErr(err)
		}
	}
	w.fails(exitFailure, "redriven before: 2", "queue", "dead", "redrive-all", "q")
}
