package live

import (
	"slices"
	"strings"
)

// Feed collects the changes since Take was last called.
type Feed struct {
	kinds   []string      // first words below the root
	News    chan struct{} // has an element when something changed
	changed map[string]KV // guarded by the view's mutex
}

// Subscribe returns a feed of the kinds. It begins with all keys that exist.
func (v *View) Subscribe(kinds ...string) *Feed {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := &Feed{kinds: kinds, News: make(chan struct{}, 1), changed: make(map[string]KV)}
	for key, is := range v.kvs {
		if !is.Gone && slices.Contains(kinds, v.Kind(key)) {
			f.changed[key] = is
		}
	}
	v.feeds[f] = true
	return f
}

// Unsubscribe ends a feed.
func (v *View) Unsubscribe(f *Feed) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.feeds, f)
}

// Take returns the changes since its last call.
func (v *View) Take(f *Feed) map[string]KV {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(f.changed) == 0 {
		return nil
	}
	changed := f.changed
	f.changed = make(map[string]KV)
	return changed
}

// HasNews reports whether there are changes in a directory since the last call of take.
func (v *View) HasNews(f *Feed, dir string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key := range f.changed {
		if strings.HasPrefix(key, dir) {
			return true
		}
	}
	return false
}

// signal puts an element into a channel of capacity one, unless it is full.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
