package webui

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// A request waits for etcd at most so long, for all that it shows: firstPatience for what the page
	// does not have yet, nextPatience for what it has. So an outage makes no page slow.
	firstPatience, nextPatience = 2 * time.Second, 250 * time.Millisecond
)

// request is a request for a page.
type request struct {
	h     *Handler
	r     *http.Request
	query url.Values
	shows shows
	wait  patience
}

func (h *Handler) newRequest(r *http.Request, query url.Values) *request {
	now := time.Now()
	return &request{
		h: h, r: r, query: query, shows: shows{topics: make(map[string]bool)},
		wait: patience{until: now.Add(firstPatience), again: now.Add(nextPatience)},
	}
}

// param returns a parameter of the query.
func (q *request) param(name string) string { return strings.ToValidUTF8(q.query.Get(name), "\uFFFD") }

// longest is how much of a stored value is shown.
const longest = 4 << 10

// value returns a stored value in the form in which it is shown.
func (q *request) value(f Field, s string) string {
	if s == "" {
		return ""
	}
	return cut(q.h.cfg.Redact(f, s), longest)
}

// can reports whether the person may carry out an operation.
func (q *request) can(op Operation) bool {
	return !q.h.claims.Passthrough() && q.h.cfg.Access(q.r, op) == nil
}

// useClaims makes the page one that shows the claims with a prefix.
func (q *request) useClaims(prefix string) *board {
	q.shows.claims, q.shows.prefix = true, prefix
	q.h.board.wake(q.r.Context(), q.wait.until)
	return &q.h.board
}

// snapshotOf returns a snapshot, which becomes part of the page. A reading
// outlives the request, so it is given no more of it than the handler.
func snapshotOf[T any](q *request, topic string, every time.Duration, read func(context.Context, *Handler) (T, error)) (T, freshness) {
	q.shows.topics[topic] = true
	h := q.h
	value, fresh := h.snapshots.get(q.r.Context(), q.wait, topic, every, func(ctx context.Context) (any, error) { return read(ctx, h) })
	v, _ := value.(T)
	return v, fresh
}

// listPage lists entries of one kind.
type listPage[T any] struct {
	Rows  []T
	Pager pager
	More  bool // than were read
	Fresh freshness
}

// listOf returns the page of a list that the query names. most is how many entries are read at most.
func listOf[E, T any](q *request, all []E, fresh freshness, most int, row func(E) T) listPage[T] {
	p := listPage[T]{More: len(all) == most, Fresh: fresh}
	some, at := paged(q.param("page"), all)
	for _, e := range some {
		p.Rows = append(p.Rows, row(e))
	}
	p.Pager = at
	return p
}
