package webui

import (
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

// count returns how many tabs are open.
func (t *tabs) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
