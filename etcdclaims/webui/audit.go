package webui

import (
	"context"
	"html/template"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/explain"
)

// mostActions is how many actions of operators are read.
const mostActions = 1000

// auditPage lists what operators did.
type auditPage struct {
	Actions []actionRow
	Pager   pager
	More    bool
	Fresh   freshness
}

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
	all, fresh := snapshotOf(q, "audit", 5*time.Second, func(ctx context.Context, h *Handler) ([]actionRow, error) {
		found, err := admin.Actions(ctx, h.claims, mostActions, time.Time{})
		rows := make([]actionRow, len(found))
		for i, is := range found {
			rows[i] = actionRow{is}
		}
		return rows, err
	})
	p := auditPage{Fresh: fresh, More: len(all) == mostActions}
	p.Actions, p.Pager = paged(q.param("page"), all)
	p.Actions = slices.Clone(p.Actions) // the snapshot is of all requests
	for i := range p.Actions {
		is := &p.Actions[i]
		is.Why, is.Detail = q.value(FieldNote, is.Why), q.value(FieldNote, is.Detail)
	}
	return p, nil
}
