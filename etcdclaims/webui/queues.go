package webui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
)

const (
	mostQueues = 200
	// closeTimeout bounds the closing of what this handler has of a queue: a session.
	closeTimeout = 5 * time.Second
)

// queues are the queues that were looked at.
type queues struct {
	h      *Handler
	mu     sync.Mutex
	byName map[string]*queue.Queue
}

func (s *queues) init(h *Handler) { s.h, s.byName = h, make(map[string]*queue.Queue) }

// open returns a queue that exists.
func (s *queues) open(ctx context.Context, name string) (*queue.Queue, error) {
	s.mu.Lock()
	q := s.byName[name]
	s.mu.Unlock()
	if q != nil {
		return q, nil
	}
	opened, err := queue.Open(ctx, s.h.claims, name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.byName[name]; q != nil {
		return q, nil
	}
	if len(s.byName) >= 2*mostQueues {
		return nil, fmt.Errorf("queue %q: too many queues were looked at", name)
	}
	s.byName[name] = opened
	return opened, nil
}

func (s *queues) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.byName {
		_ = q.Close(ctx) // it has no items
	}
	clear(s.byName)
}

// queueRow is a queue in a list.
type queueRow struct {
	Name string
	queue.Stats
	Err string
}

// queuesPage lists queues.
type queuesPage struct {
	Queues []queueRow
	Pager  pager
	More   bool
	Fresh  Fresh
}

func (q *request) queues() (any, error) {
	all, fresh := q.allQueues()
	p := queuesPage{Fresh: fresh, More: len(all) == mostQueues}
	p.Queues, p.Pager = paged(q, all)
	return p, nil
}

// allQueues returns the counts of all queues.
func (q *request) allQueues() ([]queueRow, Fresh) {
	return snapshotOf(q, "queues", 5*time.Second, func(ctx context.Context) ([]queueRow, error) {
		var rows []queueRow
		if q.h.claims.Passthrough() {
			return nil, nil
		}
		for name, err := range queue.Names(ctx, q.h.claims) {
			if err != nil {
				return nil, err
			}
			row := queueRow{Name: name}
			opened, err := q.h.queues.open(ctx, name)
			if err == nil {
				row.Stats, err = opened.Stats(ctx)
			}
			row.Err = text(err)
			if rows = append(rows, row); len(rows) == mostQueues {
				break
			}
		}
		slices.SortFunc(rows, func(a, b queueRow) int { return cmp.Compare(a.Name, b.Name) })
		return rows, nil
	})
}

// stats returns the counts of a queue.
func (q *request) stats(name string, every time.Duration) (queue.Stats, Fresh) {
	return snapshotOf(q, "queue "+name, every, func(ctx context.Context) (queue.Stats, error) {
		opened, err := q.h.queues.open(ctx, name)
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
	Fresh Fresh

	CanPause, CanResume, CanRedrive, CanPurge bool
}

// lists are the lists of items that a queue has.
var lists = []string{"dead", "taken", "waiting"}

func (q *request) queue() (any, error) {
	p := queuePage{Queue: queueRow{Name: q.param("queue")}, List: q.param("list"), Lists: lists}
	if p.List == "" {
		p.List = lists[0]
	}
	if !slices.Contains(lists, p.List) {
		return nil, errInput{fmt.Sprintf("there is no list %q", p.List)}
	}
	name := p.Queue.Name
	p.Queue.Stats, p.Fresh = q.stats(name, 2*time.Second)
	items, fresh := snapshotOf(q, fmt.Sprintf("items %s %s", p.List, name), 3*time.Second, func(ctx context.Context) ([]queue.Info, error) {
		opened, err := q.h.queues.open(ctx, name)
		if err != nil {
			return nil, err
		}
		all := map[string]func(context.Context) iter.Seq2[queue.Info, error]{"dead": opened.DeadLetters, "taken": opened.Leased, "waiting": opened.Waiting}[p.List](ctx)
		var items []queue.Info
		for i, err := range all {
			if err != nil {
				return nil, err
			}
			if items = append(items, i); len(items) == mostRows {
				break
			}
		}
		return items, nil
	})
	p.More = len(items) == mostRows
	if p.Fresh.Err == nil {
		p.Fresh = fresh
	}
	p.Items, p.Pager = paged(q, items)
	for i := range p.Items {
		p.Items[i].Why = q.value(FieldError, p.Items[i].Why)
	}
	can := func(a Action) bool { return q.can(Operation{Action: a, Queue: name}) }
	paused := !p.Queue.Paused.At.IsZero()
	p.CanPause, p.CanResume = !paused && can(ActionPauseQueue), paused && can(ActionResumeQueue)
	p.CanRedrive, p.CanPurge = p.Queue.Dead > 0 && can(ActionRedriveAll), p.Queue.Dead > 0 && can(ActionPurge)
	return p, nil
}

// itemPage explains one item.
type itemPage struct {
	Queue      string
	ID         string
	Item       queue.Info
	Gone       bool
	Payload    string
	Attempts   []queue.Attempt
	Fresh      Fresh
	CanRedrive bool
}

type looked struct {
	queue.Info
	gone bool
}

func (q *request) item() (any, error) {
	p := itemPage{Queue: q.param("queue"), ID: q.param("id")}
	item, fresh := snapshotOf(q, fmt.Sprintf("item %q %q", p.Queue, p.ID), 2*time.Second, func(ctx context.Context) (looked, error) {
		opened, err := q.h.queues.open(ctx, p.Queue)
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
	p.CanRedrive = item.Where == queue.Dead && q.can(Operation{Action: ActionRedrive, Queue: p.Queue, Item: p.ID})
	return p, nil
}
