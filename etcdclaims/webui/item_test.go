package webui_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/webui"
)

// An item is cancelled from its page, by one action where it waits, and by another while a worker has it.
func TestCancelItem(t *testing.T) {
	cfg := webui.Config{Access: permissive, User: func(*http.Request) string { return "alice" }}
	virtually(t, cfg, func(w *world) {
		w.busy()
		ctx := w.Context()
		q, err := queue.Open(ctx, w.claims, "mails")
		w.ok(err)
		defer q.Close(ctx)
		answers := func(code int, action webui.Action, fields ...string) {
			w.Helper()
			if answer := w.post(form(action, append([]string{"queue", "mails"}, fields...)...)); answer.Code != code {
				w.Errorf("%s %v: %d, %s; want %d", action, fields, answer.Code, answer.Body, code)
			}
		}
		b, err := q.TryClaim(ctx, 1)
		w.ok(err)
		d := b.Deliveries[0]
		waits := map[string]string{"mail-1": "mail-2", "mail-2": "mail-1"}[d.ID()]
		fence := strconv.FormatInt(d.Fence(), 10)
		w.shows("item?queue=mails&id="+waits,
			`value="cancel-item"`, `name="where" value="ready"`, `name="attempts" value="0"`)
		w.shows("item?queue=mails&id="+d.ID(),
			`value="cancel-taken"`, `name="fence" value="`+fence+`"`, "the context of its handler ends")
		answers(http.StatusBadRequest, "cancel-item", "item", waits)
		answers(http.StatusBadRequest, "cancel-item", "item", waits, "where", "taken", "attempts", "0")
		answers(http.StatusBadRequest, "cancel-item", "item", waits, "where", "ready", "attempts", "-1")
		answers(http.StatusConflict, "cancel-item", "item", waits, "where", "ready", "attempts", "1")
		answers(http.StatusConflict, "cancel-item", "item", waits, "where", "later", "attempts", "0")
		answers(http.StatusConflict, "cancel-taken", "item", waits, "fence", "1", "reason", "wrong address")
		answers(http.StatusSeeOther, "cancel-item", "item", waits, "where", "ready", "attempts", "0")
		answers(http.StatusConflict, "cancel-item", "item", d.ID(), "where", "ready", "attempts", "0")
		answers(http.StatusBadRequest, "cancel-taken", "item", d.ID(), "fence", fence)
		answers(http.StatusBadRequest, "cancel-taken", "item", d.ID(), "reason", "wrong address")
		w.ok(d.Err())
		w.ok(d.Release(ctx))
		b, err = q.TryClaim(ctx, 1) // another delivery than the person saw
		w.ok(err)
		d = b.Deliveries[0]
		answers(http.StatusConflict, "cancel-taken", "item", d.ID(), "fence", fence, "reason", "wrong address")
		w.ok(d.Check())
		fence = strconv.FormatInt(d.Fence(), 10)
		answers(http.StatusSeeOther, "cancel-taken", "item", d.ID(), "fence", fence, "reason", "wrong address")
		<-d.Context().Done()
		cause := context.Cause(d.Context())
		if !errors.Is(cause, queue.ErrCancelled) || !strings.Contains(cause.Error(), "by alice: wrong address") {
			w.Errorf("the worker is told %v", cause)
		}
		answers(http.StatusNotFound, "cancel-taken", "item", d.ID(), "fence", fence, "reason", "wrong address")
		if all := w.actions(); len(all) != 2 || all[0].Who != "alice" || all[0].Why != "wrong address" ||
			all[0].Item != d.ID() {
			w.Errorf("the record is %+v", all)
		}
		time.Sleep(5 * time.Second)
		body := w.shows("item?queue=mails&id="+d.ID()+"&done=cancel-taken",
			"The item was removed.", "last cancelled by", "alice", "wrong address")
		if strings.Contains(body, "<form") {
			w.Error("an item that is gone has a form")
		}
	})
}

// The page of an item that is gone shows its last cancellation as a record, not as what became of it.
func TestGoneItem(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		ctx := w.Context()
		worker, _ := w.client("worker-3")
		q, err := queue.New(worker, queue.Config{Name: "mails", Retention: -1})
		w.ok(err)
		defer q.Close(context.Background())
		enqueue := func(id string) {
			w.Helper()
			_, err := q.Enqueue(ctx, queue.NewItem(nil, queue.ID(id)))
			w.ok(err)
		}
		enqueue("again")
		w.ok(q.Cancel(admin.As(ctx, "alice", "typo"), "again"))
		enqueue("again")
		b, err := q.TryClaim(ctx, 1)
		w.ok(err)
		w.ok(b.Deliveries[0].Complete(ctx))
		body := w.shows("item?queue=mails&id=again", "There is no such item", "last cancelled by <bdi>alice</bdi>",
			"at 2000-01-01", "typo", "It can have been enqueued again since")
		w.lacks(body, "it was cancelled", "cannot be read")
		body = w.shows("item?queue=mails&id=never", "There is no such item", "For example", "have no cancellation of it")
		w.lacks(body, "cancelled by")
		w.shows("item?queue=mails&id=again")
		w.server.Stop(w.T)
		time.Sleep(10 * time.Second)
		w.get("item?queue=mails&id=again") // begins to read the records
		time.Sleep(10 * time.Second)
		w.shows("item?queue=mails&id=again", "The records of what operators did were read at 2000-01-01", "alice")
		w.server.Restart(w.T)
	})
}

// Who may not view the records of operators does not see them on the page of an item.
func TestGoneItemWithoutAudit(t *testing.T) {
	cfg := webui.Config{Access: func(_ *http.Request, op webui.Operation) error {
		if op.Action != webui.ActionView || op.Page == "audit" {
			return errors.New("denied")
		}
		return nil
	}}
	virtually(t, cfg, func(w *world) {
		ctx := w.Context()
		worker, _ := w.client("worker-3")
		q, err := queue.New(worker, queue.Config{Name: "mails"})
		w.ok(err)
		defer q.Close(context.Background())
		_, err = q.Enqueue(ctx, queue.NewItem(nil, queue.ID("secret")))
		w.ok(err)
		w.ok(q.Cancel(admin.As(ctx, "alice", "typo"), "secret"))
		body := w.shows("item?queue=mails&id=secret", "There is no such item")
		w.lacks(body, "alice", "typo", "records of what operators did")
	})
}
