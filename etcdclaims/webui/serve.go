package webui

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"time"

	"go.uber.org/zap"
)

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	name := path.Base(r.URL.Path)
	if r.URL.Path == "" || r.URL.Path[len(r.URL.Path)-1] == '/' {
		name = "overview"
	}
	if !h.use() {
		http.Error(w, "closed", http.StatusServiceUnavailable)
		return
	}
	switch p, ok := pages[name]; {
	case name == "do":
		h.act(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case name == "style.css" || name == "script.js" || name == "icon.svg":
		w.Header().Set("Cache-Control", "no-cache")
		http.ServeFileFS(w, r, assets, "assets/"+name)
	case name == "events":
		h.stream(w, r)
	case ok:
		h.show(w, r, p)
	default:
		h.fail(w, http.StatusNotFound, errors.New("there is no such page"))
	}
}

// secure sets the headers of all answers. Nothing is loaded from elsewhere, and no page
// contains a script or style.
func secure(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
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

// stream sends an event whenever the page that the query names has changed, until the
// browser leaves it.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request) {
	where, err := url.Parse(r.URL.Query().Get("page"))
	if err != nil {
		http.Error(w, "page: malformed", http.StatusBadRequest)
		return
	}
	p, ok := pages[where.Path]
	if !ok {
		http.Error(w, "page: there is no such page", http.StatusNotFound)
		return
	}
	if err := h.cfg.Access(r, Operation{Action: ActionView, Page: p.Name}); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	q := h.newRequest(r, where.Query())
	if _, err := p.load(q); err != nil { // what it is made of is known then
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	q.status()
	t := h.tabs.add(q.shows)
	if t == nil {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many tabs are open", http.StatusServiceUnavailable)
		return
	}
	defer h.tabs.remove(t)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	h.follow(w, r, t)
}

// follow writes the events of a tab.
func (h *Handler) follow(w http.ResponseWriter, r *http.Request, t *tab) {
	control := http.NewResponseController(w)
	send := func(text string) bool {
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // where it is supported
		if _, err := fmt.Fprint(w, text); err != nil || control.Flush() != nil {
			return false
		}
		_ = control.SetWriteDeadline(time.Time{}) // HTTP/2 resets a stream at its deadline even if nothing is being written
		return true
	}
	if !send("retry: 2000\nevent: ready\ndata:\n\n") {
		return
	}
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-h.ctx.Done():
			return
		case <-alive.C:
			if !send(":\n\n") {
				return
			}
			continue
		case <-t.changed:
		}
		if !send("event: changed\ndata:\n\n") {
			return
		}
		select {
		case <-time.After(between):
		case <-r.Context().Done():
			return
		case <-h.ctx.Done():
			return
		}
	}
}
