package webui

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// between is the least time between two events of one tab.
const between = 250 * time.Millisecond

var (
	// heartbeat is how often a tab without events gets a sign of life.
	heartbeat = 15 * time.Second
	// writeTimeout is how long a tab may take to accept an event.
	writeTimeout = 10 * time.Second
)

// tabs are the pages that are open in browsers.
type tabs struct {
	mu   sync.Mutex
	most int
	open map[*tab]bool
}

// tab is one page in one browser. An event reports only that the page has changed: the
// browser then asks for it again.
type tab struct {
	shows   shows
	changed chan struct{} // capacity 1
}

// shows is what a page is made of.
type shows struct {
	topics map[string]bool // names of snapshots
	claims bool            // also claims, of keys with the prefix
	prefix string
}

func (t *tabs) init(most int) { t.most, t.open = most, make(map[*tab]bool) }

// add returns a new tab, or nil if there are too many.
func (t *tabs) add(s shows) *tab {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) >= t.most {
		return nil
	}
	n := &tab{shows: s, changed: make(chan struct{}, 1)}
	t.open[n] = true
	return n
}

func (t *tabs) remove(n *tab) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, n)
}

// topics returns the names of all snapshots that tabs show.
func (t *tabs) topics() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]bool)
	for n := range t.open {
		for name := range n.shows.topics {
			all[name] = true
		}
	}
	return all
}

func (t *tabs) topicChanged(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := range t.open {
		if n.shows.topics[name] {
			signal(n.changed)
		}
	}
}

// claimChanged notifies the tabs that show the claim of a key, or any if it is empty.
func (t *tabs) claimChanged(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := range t.open {
		if n.shows.claims && (key == "" || strings.HasPrefix(key, n.shows.prefix)) {
			signal(n.changed)
		}
	}
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

// count returns how many tabs are open.
func (t *tabs) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}
