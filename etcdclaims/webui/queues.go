package webui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// queueRow is a queue in a list.
type queueRow struct {
	Name string
	queue.Stats
	Err string
}

func (q *request) queues() (any, error) {
	all, fresh := q.allQueues()
	return listOf(q, all, fresh, mostQueues, func(r queueRow) queueRow { return r }), nil
}

// queueList has the counts of all queues.
type queueList []queueRow

// tally returns how many dead letters there are.
func (all queueList) tally() (n int) {
	for _, row := range all {
		n += row.Dead
	}
	return n
}

// allQueues returns the counts of all queues.
func (q *request) allQueues() (queueList, freshness) {
	return snapshotOf(q, queuesTopic, 5*time.Second, func(ctx context.Context, h *Handler) (queueList, error) {
		if h.claims.Passthrough() {
			return nil, nil
		}
		names, err := first(mostQueues, queue.Names(ctx, h.claims))
		if err != nil {
			return nil, err
		}
		slices.Sort(names)
		var rows []queueRow
		for _, name := range names {
			row := queueRow{Name: name}
			opened, err := h.queues.open(ctx, name)
			if err == nil {
				row.Stats, err = opened.Stats(ctx)
			}
			row.Err = text(err)
			rows = append(rows, row)
		}
		return rows, nil
	})
}

// stats returns the counts of a queue.
func (q *request) stats(name string, every time.Duration) (queue.Stats, freshness) {
	return snapshotOf(q, "queue "+name, every, func(ctx context.Context, h *Handler) (queue.Stats, error) {
		opened, err := h.queues.open(ctx, name)
		if err != nil {
			return queue.Stats{}, err
		}
		return opened.Stats(ctx)
	})
}

// queuePage lists items of one queue.
type queuePage struct {
	Queue queueRow
	List  string
	Lists []string
	Items []queue.Info
	Pager pager
	More  bool
	Fresh freshness

	CanPause, CanResume, CanRedrive, CanPurge bool
	// PurgeBefore is just after the newest death in the list: what the person has not
	// been shown stays. It is a worker's clock, not that of this process.
	PurgeBefore time.Time
}

// lists are the lists of items that a queue has.
var lists = []string{"dead", "taken", "waiting"}

func (q *request) queue() (any, error) {
	p := queuePage{Queue: queueRow{Name: q.param("queue")}, List: q.param("list"), Lists: lists}
	p.List = cmp.Or(p.List, lists[0])
	if !slices.Contains(lists, p.List) {
		return nil, errInput{fmt.Sprintf("there is no list %q", p.List)}
	}
	name := p.Queue.Name
	p.Queue.Stats, p.Fresh = q.stats(name, 2*time.Second)
	topic := fmt.Sprintf("items %s %s", p.List, name)
	items, fresh := snapshotOf(q, topic, 3*time.Second, func(ctx context.Context, h *Handler) ([]queue.Info, error) {
		opened, err := h.queues.open(ctx, name)
		if err != nil {
			return nil, err
		}
		of := map[string]func(context.Context) iter.Seq2[queue.Info, error]{
			"dead":    opened.DeadLetters,
			"taken":   opened.Taken,
			"waiting": opened.Waiting,
		}
		return first(mostRows, of[p.List](ctx))
	})
	p.More = len(items) == mostRows
	if p.Fresh.Err == nil {
		p.Fresh = fresh
	}
	p.Items, p.Pager = paged(q.param("page"), items)
	for i := range p.Items {
		p.Items[i].Why = q.value(FieldError, p.Items[i].Why)
	}
	can := func(a Action) bool { return q.can(Operation{Action: a, Queue: name}) }
	paused := !p.Queue.Paused.At.IsZero()
	p.CanPause, p.CanResume = !paused && can(actionPauseQueue), paused && can(actionResumeQueue)
	p.CanRedrive = p.Queue.Dead > 0 && can(actionRedriveAll)
	if p.List == "dead" && fresh.Err == nil && len(items) > 0 {
		newest := items[len(items)-1].Since // they are listed oldest first
		p.PurgeBefore, p.CanPurge = newest.Add(1), !newest.IsZero() && can(actionPurge)
	}
	return p, nil
}

// itemPage explains one item.
type itemPage struct {
	Queue      string
	ID         string
	Item       queue.Info
	Gone       bool
	Cancelled  *admin.Action // the newest record of its cancellation, if it is gone; nil if none was read
	Records    freshness     // of the records that Cancelled is from
	Payload    string
	Result     string
	Attempts   []queue.Attempt
	Fresh      freshness
	CanRedrive bool
	Cancel     Operation // without an action if the person may not cancel it
}

type looked struct {
	queue.Info
	gone bool
}

func (q *request) item() (any, error) {
	p := itemPage{Queue: q.param("queue"), ID: q.param("id")}
	topic := fmt.Sprintf("item %q %q", p.Queue, p.ID)
	item, fresh := snapshotOf(q, topic, 2*time.Second, func(ctx context.Context, h *Handler) (looked, error) {
		opened, err := h.queues.open(ctx, p.Queue)
		if err != nil {
			return looked{}, err
		}
		i, err := opened.Look(ctx, p.ID)
		if errors.Is(err, queue.ErrNotFound) {
			return looked{gone: true}, nil
		}
		return looked{Info: i}, err
	})
	p.Item, p.Gone, p.Fresh = item.Info, item.gone, fresh
	p.Payload, p.Item.Why = q.value(FieldPayload, string(item.Payload)), q.value(FieldError, item.Why)
	for _, a := range slices.Backward(item.History) {
		a.Error = q.value(FieldError, a.Error)
		p.Attempts = append(p.Attempts, a)
	}
	if p.Result = string(item.Result); p.Result != "" {
		p.Result = q.value(FieldResult, p.Result)
	}
	if p.Gone {
		if q.can(Operation{Action: ActionView, Page: "audit"}) { // it shows records of that page
			p.Cancelled, p.Records = q.cancellation(p.Queue, p.ID)
		}
		return p, nil
	}
	if cancel := cancelOf(p.Queue, item.Info); cancel.Action != "" && q.can(cancel) {
		p.Cancel = cancel
	}
	p.CanRedrive = item.Where == queue.Dead && q.can(Operation{Action: actionRedrive, Queue: p.Queue, Item: p.ID})
	return p, nil
}

// cancelOf returns the operation that removes an item as it was read. A worker's item is removed by an
// action of its own. The operation has no action if the item was completed.
func cancelOf(of string, i queue.Info) Operation {
	op := Operation{Queue: of, Item: i.ID}
	switch i.Where {
	case queue.Taken:
		op.Action, op.Fence = actionCancelTaken, i.Fence
	case queue.Ready, queue.Later, queue.Behind, queue.Dead:
		op.Action, op.Where, op.Attempts = actionCancelItem, i.Where, i.Attempts
	}
	return op
}

// cancellation returns the newest record of the cancellation of an item, or nil. An item with the same id
// can have been enqueued since.
func (q *request) cancellation(of, id string) (*admin.Action, freshness) {
	all, fresh := q.actions()
	for _, is := range all {
		if is.Queue == of && is.Item == id && is.Verb == "queue cancel" {
			is.Why = q.value(FieldNote, is.Why)
			return &is, fresh
		}
	}
	return nil, fresh
}
