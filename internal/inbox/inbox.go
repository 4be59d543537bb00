// Package inbox lets goroutines change state that another one owns.
package inbox

import "sync"

// Inbox has what other goroutines ask of the one that owns some state. That one waits for
// News, and calls Work.
type Inbox struct {
	News chan struct{} // has an element when something was posted

	mu     sync.Mutex
	posted []func()
}

// New returns an empty inbox.
func New() *Inbox { return &Inbox{News: make(chan struct{}, 1)} }

// Post lets the owner call a function, after those that were posted before.
func (i *Inbox) Post(what func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.posted = append(i.posted, what)
	select {
	case i.News <- struct{}{}:
	default:
	}
}

// Work calls what was posted, on the goroutine of the caller.
func (i *Inbox) Work() {
	i.mu.Lock()
	posted := i.posted
	i.posted = nil
	i.mu.Unlock()
	for _, do := range posted {
		do()
	}
}
