package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testwork"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// queueOf is a queue with these items.
func (w *world) queueOf(name string, items ...queue.Item) *queue.Queue {
	w.Helper()
	q, err := queue.New(w.client("a"), queue.Config{Name: name})
	w.noErr(err)
	w.Cleanup(func() { w.noErr(q.Close(context.Background())) })
	for _, it := range items {
		_, err = q.Enqueue(w.Context(), it)
		w.noErr(err)
	}
	return q
}

// take claims the one visible item.
func (w *world) take(q *queue.Queue) *queue.Delivery {
	w.Helper()
	batch, err := q.TryClaim(w.Context(), 1)
	w.noErr(err)
	if len(batch.Deliveries) != 1 {
		w.Fatalf("claimed %d items", len(batch.Deliveries))
	}
	return batch.Deliveries[0]
}

// lacks wants that the text has none of the parts.
func (w *world) lacks(text string, parts ...string) {
	w.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			w.Errorf("%q is in:\n%s", part, text)
		}
	}
}

// An item that waits shows when it vests, and why its last attempt failed.
func TestQueueVesting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	q := w.queueOf("mail", queue.NewItem(nil, queue.ID("failed")))
	due := time.Now().Add(time.Hour)
	_, err := w.take(q).Fail(t.Context(), etcdclaims.RetryAfter(errors.New("no luck"), time.Until(due)))
	w.noErr(err)
	_, err = q.Enqueue(t.Context(), queue.NewItem(nil, queue.ID("now"), queue.Priority(7)))
	w.noErr(err)
	day := due.UTC().Format("2006-01-02T15:")
	table := w.ok("queue", "waiting", "mail")
	w.finds(table, "ID", "WHERE", "PRIORITY", "ATTEMPTS", "VESTS", "LAST ERROR", "no luck", "later", "ready", day)
	w.lacks(table, "ENQUEUED", "SINCE", "OWNER", "WHY", "TOPIC")
	w.finds(w.ok("queue", "show", "mail", "failed"), "Vests: ", day)
	w.finds(w.ok("queue", "show", "mail", "now"), "Vests: ", "7")
	for _, i := range as[[]itemView](w, "queue", "waiting", "mail") {
		if i.Vesting.IsZero() || i.ID == "failed" && i.Vesting.Sub(due).Abs() > time.Minute {
			t.Errorf("vesting %v of %q", i.Vesting, i.ID)
		}
	}
	lease := w.take(q)
	w.finds(w.ok("queue", "taken", "mail"), "OWNER", "FENCE", "SINCE", "now", "a")
	w.noErr(lease.Discard(t.Context(), "no such address"))
	w.finds(w.ok("queue", "dead", "ls", "mail"), "SINCE", "WHY", "no such address")
}

// An error with a stack is a line in a list. What shows one item has its lines below each
// other, with control characters as escapes.
func TestErrorOfManyLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	q := w.queueOf("mail", queue.NewItem(nil, queue.ID("x"), queue.MaxAttempts(1)))
	_, err := w.take(q).Fail(t.Context(), errors.New("panicked: \x1b[2Jboom\ngoroutine 1 [running]:\nmain.main()\n\tmain.go:7\n"))
	w.noErr(err)
	w.finds(w.ok("queue", "dead", "ls", "mail"), `panicked: \x1b[2Jboom …`)
	w.finds(w.ok("queue", "show", "mail", "x"),
		"Why:           failed: panicked: \\x1b[2Jboom …\n",
		"boom\n            goroutine 1 [running]:\n            main.main()\n                main.go:7\n")
	w.finds(w.ok("queue", "show", "mail", "x", "-o", "json"), `[running]:\nmain.main()\n\t`)

	err = testwork.Of(w.client("a")).TryRun(t.Context(), "invoice/1", func(context.Context, *work.Work) error { return errors.New("no paper\nin tray 2") })
	if !errors.Is(err, work.ErrBackoff) {
		t.Fatal(err)
	}
	w.finds(w.ok("work", "ls"), "no paper …")
	w.finds(w.ok("work", "show", "invoice/1"), "Error:        no paper\n              in tray 2\n")
}

// Nothing is shown of a completed item that is not known any more.
func TestQueueCompleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	q := w.queueOf("mail", queue.NewItem([]byte("to x"), queue.ID("x")))
	w.noErr(w.take(q).Complete(t.Context()))
	out := w.ok("queue", "show", "mail", "x")
	w.finds(out, "completed", "Attempts: ", "Owner: ", "Fence: ")
	w.lacks(out, "Priority", "Vest", "Payload")
	w.lacks(w.ok("queue", "show", "mail", "x", "-o", "json"), "priority", "vesting", "payload")
}

// A queue that has only dead letters, or nothing, is found.
func TestQueuesWithoutWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	q := w.queueOf("dead", queue.NewItem(nil))
	w.noErr(w.take(q).Discard(t.Context(), "no such address"))
	empty := w.queueOf("empty", queue.NewItem(nil))
	w.noErr(w.take(empty).Complete(t.Context()))
	w.queueOf("busy", queue.NewItem(nil))
	resp, err := w.etcd.Get(t.Context(), w.prefix+"queue/active/", clientv3.WithPrefix())
	w.noErr(err)
	for _, kv := range resp.Kvs { // as the keeper does, a minute after the last item
		if !strings.Contains(string(kv.Value), "busy") {
			_, err := w.etcd.Delete(t.Context(), string(kv.Key))
			w.noErr(err)
		}
	}
	if out := w.ok("queue", "ls", "-o", "name"); out != "busy\n" {
		t.Errorf("ls: %q", out)
	}
	if out := w.ok("queue", "ls", "--all", "-o", "name"); out != "busy\ndead\nempty\n" {
		t.Errorf("ls --all: %q", out)
	}
	all := as[[]queueStats](w, "queue", "stats")
	if len(all) != 3 || all[0].Ready != 1 || all[1].Dead != 1 || all[2].Ready+all[2].Dead != 0 {
		t.Errorf("stats: %+v", all)
	}
}
