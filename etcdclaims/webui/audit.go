package webui

import (
	"context"
	"html/template"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/explain"
)

// mostActions is how many actions of operators are read.
const mostActions = 1000

// actionRow is what an operator did.
type actionRow struct{ admin.Action }

// What returns the verb and its object.
func (r actionRow) What() string { return explain.Action(r.Action) }

// Page returns the page that shows the object, or an empty URL.
func (r actionRow) Page() template.URL {
	switch {
	case r.Err != nil:
	case r.Item != "":
		return query("item", "queue", r.Queue, "id", r.Item)
	case r.Queue != "":
		return query("queue", "queue", r.Queue)
	case r.Job != "":
		return query("job", "group", r.Group, "job", r.Job)
	case r.Group != "":
		return query("group", "group", r.Group)
	case r.Key != "":
		return query("key", "key", r.Key)
	}
	return ""
}

func (q *request) audit() (any, error) {
	all, fresh := q.actions()
	return listOf(q, all, fresh, mostActions, func(is admin.Action) actionRow {
		is.Why, is.Detail = q.value(FieldNote, is.Why), q.value(FieldNote, is.Detail)
		return actionRow{is}
	}), nil
}

// actions are what operators did last, newest first.
func (q *request) actions() ([]admin.Action, freshness) {
	return snapshotOf(q, "audit", 5*time.Second, func(ctx context.Context, h *Handler) ([]admin.Action, error) {
		return admin.Actions(ctx, h.claims, mostActions, time.Time{})
	})
}
