package webui

import (
	"bytes"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
)

const (
	// A request waits for etcd at most so long, for all that it shows: firstPatience for what the page
	// does not have yet, nextPatience for what it has. So an outage makes no page slow.
	firstPatience, nextPatience = 2 * time.Second, 250 * time.Millisecond
)

// page is one of the pages.
type page struct {
	Name  string
	Title string
	Menu  bool // it is in the menu
	load  func(q *request) (any, error)
}

// order is the order of the menu.
var order = []page{
	{"overview", "Overview", true, (*request).overview},
	{"claims", "Claims", true, (*request).claims},
	{"lines", "Lines", true, (*request).lines},
	{"work", "Work", true, (*request).work},
	{"schedules", "Schedules", true, (*request).schedules},
	{"queues", "Queues", true, (*request).queues},
	{"groups", "Groups", true, (*request).partitionGroups},
	{"sessions", "Sessions", true, (*request).sessions},
	{"audit", "Audit", true, (*request).audit},
	{"refusals", "Refusals", true, (*request).refusals},
	{"health", "Health", true, (*request).health},
	{"key", "Key", false, (*request).key},
	{"job", "Job", false, (*request).job},
	{"queue", "Queue", false, (*request).queue},
	{"item", "Item", false, (*request).item},
	{"group", "Group", false, (*request).group},
}

var (
	pages     map[string]page
	templates map[string]*template.Template
)

func init() {
	pages, templates = make(map[string]page), make(map[string]*template.Template)
	parse := func(name string) *template.Template {
		all := template.New("layout").Funcs(functions)
		for _, file := range []string{"layout", name} {
			text, err := assets.ReadFile("assets/" + file + ".html")
			if err != nil {
				panic(err)
			}
			template.Must(all.New(file + ".html").Parse(tables.Replace(string(text))))
		}
		return all.Lookup("layout.html")
	}
	for _, p := range order {
		pages[p.Name], templates[p.Name] = p, parse(p.Name)
	}
	templates["error"] = parse("error")
}

// tables gives the parts of tables their roles, which browsers forget where the style sheet makes
// cards of them. A cell can begin a line of a template: the end of the line before is no text of a cell.
var tables = strings.NewReplacer(
	"<table", `<table role="table"`, "<thead", `<thead role="rowgroup"`, "<tbody", `<tbody role="rowgroup"`, "<tr", `<tr role="row"`,
	"<th>", `<th role="columnheader">`, "<th ", `<th role="columnheader" `, "<th{", `<th role="columnheader"{`,
	"\n<td", `<td role="cell"`, "<td", `<td role="cell"`,
)

// functions are those of the templates.
var functions = template.FuncMap{
	"visible": visible,
	"short":   func(s string) string { return visible(cut(s, 120)) },
	"fence":   func(n int64) string { return strconv.FormatInt(n, 10) },
	"time":    timestamp,
	"ago":     ago,
	"lasts":   lasts,
	"exact":   exact,
	"at":      at,
	"span":    span,
	"seconds": func(d time.Duration) int { return int(d / time.Second) },
	"add":     func(a, b int) int { return a + b },
	"owner":   ownerText,
	"query":   query,
	"listed":  listed,
	"does":    does,
	"count":   count,
	"digits":  digits,
	"stamp":   func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
}

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

// errInput is the error of a request that does not make sense.
type errInput struct{ text string }

func (e errInput) Error() string { return e.text }

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

// view is what the layout shows.
type view struct {
	Page    page
	Heading string
	Title   string
	Menu    []page
	Live    string // the page as the script names it
	Now     time.Time
	Status  status
	Done    string
	Content any
	Err     error
}

// show serves a page.
func (h *Handler) show(w http.ResponseWriter, r *http.Request, p page) {
	if err := h.cfg.Access(r, Operation{Action: ActionView, Page: p.Name}); err != nil {
		h.fail(w, http.StatusForbidden, err)
		return
	}
	q := h.newRequest(r, r.URL.Query())
	now := q.status()
	if now.Err != "" { // it waits for the members alone
		q.wait.until = time.Now().Add(memberTimeout + nextPatience)
	}
	content, err := p.load(q)
	var input errInput
	switch {
	case errors.As(err, &input):
		h.fail(w, http.StatusBadRequest, err)
		return
	case err != nil:
		h.fail(w, http.StatusBadGateway, err)
		return
	}
	live := p.Name
	if r.URL.RawQuery != "" {
		query := r.URL.Query()
		query.Del("done")
		live += "?" + query.Encode()
	}
	h.render(w, http.StatusOK, p.Name, view{Page: p, Live: live, Content: content, Status: now, Done: done[Action(q.param("done"))]})
}

// fail serves a page that shows an error.
func (h *Handler) fail(w http.ResponseWriter, code int, err error) {
	h.render(w, code, "error", view{Page: page{Title: http.StatusText(code)}, Err: err})
}

func (h *Handler) render(w http.ResponseWriter, code int, name string, v view) {
	v.Heading, v.Title, v.Now = "Claims", v.Page.Title, time.Now()
	if h.cfg.Title != "" {
		v.Heading = h.cfg.Title
	}
	for _, p := range order {
		if p.Menu && (p.Name != "refusals" || h.cfg.Refusals != nil) {
			v.Menu = append(v.Menu, p)
		}
	}
	var out bytes.Buffer
	if err := templates[name].Execute(&out, v); err != nil {
		h.log.Error("page cannot be rendered", zap.String("page", name), zap.Error(err))
		http.Error(w, "the page cannot be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(out.Bytes()) // the browser may be gone
}
